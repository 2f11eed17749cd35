//! Reservations: claims, leases, collapse.

use super::*;

const KEY: PartitionKey = PartitionKey(1);

#[test]
fn a_lease_of_sixteen_claims_seventeen_then_thirty_four() {
    let mut reservations = Reservations::default();
    let first = reservations.claim(KEY, Offset(0), Offset(1), 16).unwrap();
    assert_eq!(first.reserved, Offset(17));
    for offset in 1..=16u64 {
        assert!(reservations.claim(KEY, Offset(offset), Offset(offset + 1), 16).is_none());
    }
    let second = reservations.claim(KEY, Offset(17), Offset(18), 16).unwrap();
    assert_eq!(second.reserved, Offset(34));
    assert!(reservations.covers(KEY, Offset(34)) && !reservations.covers(KEY, Offset(35)));
}

#[test]
fn a_batch_larger_than_the_lease_is_claimed_whole() {
    let mut reservations = Reservations::default();
    let claim = reservations.claim(KEY, Offset(0), Offset(1_000), 16).unwrap();
    assert_eq!(claim.reserved, Offset(1_016));
}

#[test]
fn an_advance_never_lowers_and_an_install_does() {
    let mut reservations = Reservations::default();
    reservations.claim(KEY, Offset(5), Offset(10), 100);
    let low = [(KEY, Reservation { frontier: Offset(2), reserved: Offset(3) })];
    reservations.merge(ReservationMode::Advance, &low);
    assert_eq!(reservations.get(KEY), Reservation { frontier: Offset(5), reserved: Offset(110) });
    reservations.merge(ReservationMode::Install, &low);
    assert_eq!(reservations.get(KEY).reserved, Offset(3));
}

#[test]
fn a_clean_stop_collapses_to_what_exists() {
    let mut reservations = Reservations::default();
    reservations.claim(KEY, Offset(0), Offset(10), 100);
    let collapsed = reservations.collapse(|_| Some(Offset(10)));
    assert_eq!(collapsed, [(KEY, Reservation { frontier: Offset(10), reserved: Offset(10) })]);
    assert!(reservations.covers(KEY, Offset(10)) && !reservations.covers(KEY, Offset(11)));
}

#[test]
fn records_round_trip_and_layouts_without_a_reservation_are_refused() {
    let entries = [
        (KEY, Reservation { frontier: Offset(1), reserved: Offset(9) }),
        (PartitionKey(2), Reservation { frontier: Offset(4), reserved: Offset(4) }),
    ];
    for mode in [ReservationMode::Advance, ReservationMode::Install] {
        let (header, body) = encode(mode, &entries);
        assert_eq!(decode(&header, &body), Ok((mode, entries.to_vec())));
        let short = Body::from(body.to_bytes().slice(..40));
        assert_eq!(decode(&header, &short), Err(ReservationError::Malformed));
        assert_eq!(decode(&header.slice(..7), &body), Err(ReservationError::Malformed));
    }
    let (header, body) = encode(ReservationMode::Advance, &entries);
    let mut other = header.to_vec();
    other[0] = 0;
    assert_eq!(decode(&Bytes::from(other), &body), Err(ReservationError::Version(0)));
    let mut lowered = body.to_bytes().to_vec();
    lowered[16] = 0;
    assert_eq!(decode(&header, &Body::from(lowered)), Err(ReservationError::Malformed));
}

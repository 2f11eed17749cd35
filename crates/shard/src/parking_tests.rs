//! Parking: limits, order, age.

use super::*;
use crate::lane::api::{Origin, Ticket};
use borzoi_types::{LogId, ShardId};
use bytes::BytesMut;

fn request(key: u64, ticket: u64, bytes: usize) -> LaneRequest {
    LaneRequest {
        origin: Origin::here(ShardId(0), Ticket(ticket)),
        key: PartitionKey(key),
        lane: LogId(1),
        kind: LaneRequestKind::Send { batch: BytesMut::zeroed(bytes), count: 1, identity: None },
    }
}

fn parking() -> Parking {
    Parking::new(Duration::from_secs(2))
}

fn tickets(requests: &[LaneRequest]) -> Vec<u64> {
    requests.iter().map(|request| request.origin.ticket.0).collect()
}

#[test]
fn requests_of_a_partition_leave_in_the_order_they_came_and_totals_return_to_zero() {
    let mut parking = parking();
    for ticket in 0..10 {
        parking.park(Mono(ticket), request(ticket % 2, ticket, 100)).unwrap();
    }
    assert_eq!(parking.bytes(), 10 * 4_096);
    assert_eq!(tickets(&parking.take(PartitionKey(1))), [1, 3, 5, 7, 9]);
    assert_eq!(tickets(&parking.take(PartitionKey(0))), [0, 2, 4, 6, 8]);
    assert_eq!((parking.bytes(), parking.len(), parking.deadline()), (0, 0, None));
    assert!(parking.take(PartitionKey(1)).is_empty());
}

#[test]
fn the_hundred_and_twenty_ninth_request_of_a_partition_is_given_back() {
    let mut parking = parking();
    for ticket in 0..128 {
        parking.park(Mono(0), request(1, ticket, 1)).unwrap();
    }
    let back = parking.park(Mono(0), request(1, 128, 1)).unwrap_err();
    assert_eq!(back.origin.ticket, Ticket(128));
    parking.park(Mono(0), request(2, 129, 1)).unwrap();
    assert_eq!(parking.counters().overflows, 1);
}

#[test]
fn bytes_are_limited_per_partition_and_per_shard() {
    let mut parking = parking();
    let big = PARKED_BYTES_PER_PARTITION_MAX - REQUEST_BYTES;
    for key in 0..4 {
        parking.park(Mono(0), request(key, key, big)).unwrap();
        parking.park(Mono(0), request(key, key, 1)).unwrap_err();
    }
    assert_eq!(parking.bytes(), PARKED_BYTES_PER_SHARD_MAX);
    parking.park(Mono(0), request(9, 9, 1)).unwrap_err();
    parking.take(PartitionKey(0));
    parking.park(Mono(0), request(9, 9, big)).unwrap();
    parking.park(Mono(0), request(10, 10, big + 1)).unwrap_err();
}

#[test]
fn requests_expire_at_their_age_and_not_before() {
    let mut parking = parking();
    parking.park(Mono(0), request(1, 1, 1)).unwrap();
    parking.park(Mono(5), request(2, 2, 1)).unwrap();
    parking.park(Mono(5), request(1, 3, 1)).unwrap();
    let window = Duration::from_secs(2).as_nanos();
    assert_eq!(parking.deadline(), Some(Mono(window)));
    assert!(parking.expire(Mono(window - 1)).is_empty());
    assert_eq!(tickets(&parking.expire(Mono(window))), [1]);
    assert_eq!(tickets(&parking.expire(Mono(window + 5))), [2, 3]);
    assert_eq!((parking.bytes(), parking.len()), (0, 0));
    assert_eq!(parking.counters().expired, 3);
}

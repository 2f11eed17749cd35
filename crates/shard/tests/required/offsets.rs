//! A1 to A5, A7 to A9, A11: what is reserved, when, and what a start makes of it.

use crate::power::{Comeback, FAST, fast_node, lose_everything, restart, send};
use crate::support::model::{End, Model};
use crate::support::{Node, Place, options};
use borzoi_metadata::Change;
use borzoi_shard::boot::BootError;
use borzoi_shard::lane::Lane;
use borzoi_shard::lane::api::LaneReply;
use borzoi_shard::lane::reservation::{
    Reservation, ReservationError, ReservationMode, Reservations, decode, encode,
};
use borzoi_storage::disk::{DiskErrorKind, DiskOperation};
use borzoi_storage::sim_disk::{Fate, Fault};
use borzoi_types::{Body, Durability, Duration, LogId, Offset, PartitionKey};
use bytes::Bytes;

fn lane(node: &Node, at: Place) -> &Lane {
    node.shards[0].back().lanes().find(|lane| lane.log() == at.lane).unwrap()
}

fn reserved(node: &Node, at: Place) -> Reservation {
    lane(node, at).reservations().get(at.key)
}

fn writes(node: &Node, at: Place) -> u64 {
    lane(node, at).counters().reservations
}

#[test]
fn a1_frontier_and_reservation_stand_side_by_side_and_survive_a_restart() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    send(&mut node, &mut model, at, 3, 10);
    let first = reserved(&node, at);
    assert_eq!(first, Reservation { frontier: Offset(0), reserved: Offset(19) });
    // The next claim takes up what exists by then and never lowers anything.
    for _ in 0..20 {
        send(&mut node, &mut model, at, 1, 10);
        let now = reserved(&node, at);
        assert!(now.reserved >= now.frontier, "{now:?}");
        assert!(now.frontier >= first.frontier && now.reserved >= first.reserved, "{now:?}");
    }
    let second = reserved(&node, at);
    assert_eq!(second, Reservation { frontier: Offset(19), reserved: Offset(36) });
    let node = restart(&node, node.disk.kill(), 6);
    assert!(reserved(&node, at).reserved >= second.reserved, "what was claimed stays claimed");
}

#[test]
fn a2_no_answer_and_no_poll_shows_an_offset_before_its_claim_is_durable() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    for round in 0..40 {
        model.send(&mut node, at, Durability::Replicated, 1 + round % 3, 10);
        loop {
            node.run_events_batched();
            assert_eq!(model.note_replies(&mut node), 0);
            if let Some(told) = model.highest_seen(at) {
                // Everything unsynced is lost at this instant: the claim is there nevertheless.
                let image = lose_everything(&node, Comeback::OtherBoot, 9);
                let again = restart(&node, image, 6);
                let claimed = reserved(&again, at).reserved;
                assert!(claimed > told, "{told:?} was told, {claimed:?} was durable");
            }
            let Some((shard, ticket, action)) = node.next_action() else { break };
            node.finish(shard, ticket, &action);
        }
    }
    assert!(model.sends.values().all(|send| send.confirmed.is_some()));
    assert!(writes(&node, at) >= 4, "the lease was used up several times");
}

#[test]
fn a2_an_append_whose_claim_cannot_be_written_is_told_to_nobody() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    let (operation, kind) = (DiskOperation::Sync, DiskErrorKind::Io);
    node.disk.inject(Fault { operation, file: None, after: 0, kind, lasting: true });
    for _ in 0..3 {
        model.send(&mut node, at, Durability::Replicated, 1, 10);
        node.settle();
    }
    assert_eq!(node.fatal.len(), 1, "the node ends");
    model.note_replies(&mut node);
    assert!(model.sends.values().all(|send| send.confirmed.is_none()), "nothing is confirmed");
    let consumer = borzoi_shard::lane::api::ConsumerKey::Consumer(1);
    let start = borzoi_shard::lane::api::PollStart::First;
    let get = crate::support::poll_request(start, 10, consumer, false);
    let poll = node.request(at, get);
    node.settle();
    match node.replies.remove(&poll) {
        None | Some(LaneReply::Refused(_)) => {}
        Some(LaneReply::Polled { count, .. }) => assert_eq!(count, 0, "nothing is served"),
        Some(other) => panic!("{other:?}"),
    }
    node.disk.heal();
    let image = node.disk.power_cut_and_boot([9; 16], |_| Fate::Lost);
    let mut node = restart(&node, image, 6);
    assert!(Model::read_all(&mut node, at).is_empty());
}

#[test]
fn a3_a_lease_of_16_records_17_at_offset_0_writes_nothing_until_16_and_34_at_17() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    assert_eq!(send(&mut node, &mut model, at, 1, 10), Offset(0));
    assert_eq!((reserved(&node, at).reserved, writes(&node, at)), (Offset(17), 1));
    for offset in 1..=16 {
        assert_eq!(send(&mut node, &mut model, at, 1, 10), Offset(offset));
        assert_eq!((reserved(&node, at).reserved, writes(&node, at)), (Offset(17), 1));
    }
    assert_eq!(send(&mut node, &mut model, at, 1, 10), Offset(17));
    assert_eq!((reserved(&node, at).reserved, writes(&node, at)), (Offset(34), 2));
    // A batch larger than the lease is claimed whole.
    assert_eq!(send(&mut node, &mut model, at, 100, 10), Offset(18));
    assert_eq!((reserved(&node, at).reserved, writes(&node, at)), (Offset(134), 3));
}

#[test]
fn a4_appends_behind_one_claim_find_the_block_extended_and_write_no_other() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    // Ten prepares, each of its own batch of events, before the disk has done anything.
    for _ in 0..10 {
        model.send(&mut node, at, Durability::Replicated, 1, 10);
        node.run_events_batched();
    }
    assert_eq!(model.note_replies(&mut node), 0);
    assert!(model.sends.values().all(|send| send.confirmed.is_none()), "the claim is not written");
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0);
    assert!(model.sends.values().all(|send| send.confirmed.is_some()));
    assert_eq!(writes(&node, at), 1, "one claim for all of them");
    assert_eq!(model.highest_seen(at), Some(Offset(9)));
}

#[test]
fn a5_the_first_offset_after_a_loss_is_the_reservation_and_the_floor_is_spent_once() {
    for comeback in [Comeback::OtherBoot, Comeback::SameBoot] {
        let (mut node, at) = fast_node();
        let mut model = Model::default();
        send(&mut node, &mut model, at, 2, 10);
        send(&mut node, &mut model, at, 3, 10);
        assert_eq!(reserved(&node, at).reserved, Offset(18));
        let image = lose_everything(&node, comeback, 9);
        let mut node = restart(&node, image, 6);
        assert_eq!(send(&mut node, &mut model, at, 2, 10), Offset(18), "{comeback:?}");
        assert_eq!(send(&mut node, &mut model, at, 1, 10), Offset(20), "{comeback:?}");
        assert_eq!(send(&mut node, &mut model, at, 4, 10), Offset(21), "{comeback:?}");
    }
}

#[test]
fn a7_a_crash_between_flushed_and_confirmed_messages_goes_on_above_the_confirmed_ones() {
    for comeback in [Comeback::OtherBoot, Comeback::SameBoot] {
        let (mut node, at) = fast_node();
        let mut model = Model::default();
        send(&mut node, &mut model, at, 4, 10);
        node.pass(Duration::from_millis(20));
        node.settle();
        // These are confirmed within the claim, and no flush follows.
        for _ in 0..5 {
            model.send(&mut node, at, Durability::Replicated, 1, 10);
            node.settle();
        }
        assert_eq!(model.note_replies(&mut node), 0);
        assert_eq!(model.highest_seen(at), Some(Offset(8)));
        let image = lose_everything(&node, comeback, 9);
        model.life_ended(End::PowerCut);
        let mut node = restart(&node, image, 6);
        let held = Model::read_all(&mut node, at);
        let flushed: Vec<Offset> = (0..4).map(Offset).collect();
        assert_eq!(held.keys().copied().collect::<Vec<_>>(), flushed, "the others were lost");
        let base = send(&mut node, &mut model, at, 1, 10);
        assert!(base > Offset(8), "{base:?}, {comeback:?}");
        model.check_partition(&mut node, at, "after the loss");
    }
}

#[test]
fn a8_a_clean_stop_leaves_no_hole_whatever_the_machine_does_then() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    send(&mut node, &mut model, at, 5, 10);
    assert_eq!(reserved(&node, at).reserved, Offset(21));
    node.stop();
    assert_eq!(
        reserved(&node, at),
        Reservation { frontier: Offset(5), reserved: Offset(5) },
        "the reservation collapses to the frontier"
    );
    let images = [
        node.disk.kill(),
        lose_everything(&node, Comeback::OtherBoot, 9),
        lose_everything(&node, Comeback::SameBoot, 9),
    ];
    for image in images {
        let mut model = model.clone();
        let mut node = restart(&node, image, 6);
        assert_eq!(send(&mut node, &mut model, at, 1, 10), Offset(5));
        model.check_partition(&mut node, at, "after a clean stop");
    }
}

#[test]
fn a8_a_stop_whose_flush_fails_leaves_the_reservation_standing() {
    // Of the syncs of a stop each one fails once: the last flush, and that of the collapse.
    for after in 0..4 {
        let (mut node, at) = fast_node();
        let mut model = Model::default();
        send(&mut node, &mut model, at, 2, 10);
        send(&mut node, &mut model, at, 3, 10);
        let (operation, kind) = (DiskOperation::Sync, DiskErrorKind::Io);
        node.disk.inject(Fault { operation, file: None, after, kind, lasting: false });
        node.push(borzoi_types::ShardId(0), borzoi_shard::Event::Stop);
        node.settle();
        let failed = !node.fatal.is_empty();
        assert!(failed || !node.stopped.is_empty(), "it stops or says why not");
        node.disk.heal();
        for comeback in [Comeback::OtherBoot, Comeback::SameBoot] {
            let mut model = model.clone();
            let image = lose_everything(&node, comeback, 9);
            let mut node = restart(&node, image, 6);
            let base = send(&mut node, &mut model, at, 1, 10);
            assert!(base >= Offset(5), "{base:?} after {after} syncs, {comeback:?}");
            if !failed {
                assert_eq!(base, Offset(5), "a stop that succeeded leaves no hole");
            }
        }
    }
}

#[test]
fn a9_an_advance_never_lowers_an_install_may_and_a_purge_clears_both() {
    let key = PartitionKey(1);
    let mut reservations = Reservations::default();
    reservations.claim(key, Offset(5), Offset(10), 100);
    let low = [(key, Reservation { frontier: Offset(2), reserved: Offset(3) })];
    reservations.merge(ReservationMode::Advance, &low);
    let kept = Reservation { frontier: Offset(5), reserved: Offset(110) };
    assert_eq!(reservations.get(key), kept);
    reservations.merge(ReservationMode::Install, &low);
    assert_eq!(reservations.get(key), low[0].1);

    let (mut node, at) = fast_node();
    let mut model = Model::default();
    send(&mut node, &mut model, at, 5, 10);
    node.command(Change::PurgeTopic(crate::support::topic_name(FAST)));
    node.settle();
    assert_eq!(reserved(&node, at), Reservation::default(), "the purged key has no claim");
    let purged = node.place(FAST, 0).unwrap();
    assert_eq!(reserved(&node, purged), Reservation::default());
    assert_eq!(send(&mut node, &mut model, purged, 1, 10), Offset(0), "it starts again at zero");
    let image = lose_everything(&node, Comeback::OtherBoot, 9);
    let mut node = restart(&node, image, 6);
    assert_eq!(send(&mut node, &mut model, purged, 1, 10), Offset(17), "by its own claim");
}

#[test]
fn a11_a_record_without_the_reservation_or_of_another_version_is_refused_by_name() {
    let entries = [(PartitionKey(1), Reservation { frontier: Offset(1), reserved: Offset(9) })];
    let (header, body) = encode(ReservationMode::Advance, &entries);
    assert_eq!(decode(&header, &body), Ok((ReservationMode::Advance, entries.to_vec())));
    // Key and frontier alone, as a layout without the reservation would have them.
    let without = Body::from(body.to_bytes().slice(..16));
    assert_eq!(decode(&header, &without), Err(ReservationError::Malformed));
    // A reservation of zero below its frontier is no record either.
    let mut zero = body.to_bytes().to_vec();
    zero[16..24].fill(0);
    assert_eq!(decode(&header, &Body::from(zero)), Err(ReservationError::Malformed));
    for version in [0u16, 2, 9] {
        let mut other = header.to_vec();
        other[..2].copy_from_slice(&version.to_le_bytes());
        let error = decode(&Bytes::from(other), &body).unwrap_err();
        assert_eq!(error, ReservationError::Version(version));
        let refused = BootError::Reservation { log: LogId(7), error }.to_string();
        assert!(refused.contains(&version.to_string()) && refused.contains('7'), "{refused}");
    }
}

#[test]
fn a5_a_lane_of_level_persisted_needs_no_reservation_and_leaves_no_hole() {
    let mut node =
        Node::start(crate::support::new_disk(), &options(1), crate::support::start_time(), 5);
    node.settle();
    node.command(crate::support::create_stream());
    node.command(crate::support::create_topic("durable", 1, Durability::Persisted));
    node.settle();
    let at = node.place("durable", 0).unwrap();
    let mut model = Model::default();
    model.send(&mut node, at, Durability::Persisted, 5, 10);
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0);
    assert_eq!(reserved(&node, at), Reservation::default());
    for comeback in [Comeback::OtherBoot, Comeback::SameBoot] {
        let mut model = model.clone();
        let image = lose_everything(&node, comeback, 9);
        let mut node = restart(&node, image, 6);
        model.check_partition(&mut node, at, "the log proves what it confirmed");
        let ticket = model.send(&mut node, at, Durability::Persisted, 1, 10);
        node.settle();
        assert_eq!(model.note_replies(&mut node), 0);
        assert_eq!(model.sends[&ticket].confirmed, Some(Offset(5)));
    }
}

//! Tests of the table of requests that other nodes answer.

use super::*;
use borzoi_types::{Offset, ShardId};
use bytes::BytesMut;

const LANE: LogId = LogId(3);
const LEADER: ReplicaId = ReplicaId(1);
const OTHER: ReplicaId = ReplicaId(2);
const START: Mono = Mono(1_000);

fn table() -> Forwarding {
    Forwarding::new(1, Duration::from_secs(2))
}

fn origin(ticket: u64) -> Origin {
    Origin::here(ShardId(0), Ticket(ticket))
}

fn request(ticket: u64, kind: LaneRequestKind) -> LaneRequest {
    LaneRequest { origin: origin(ticket), key: PartitionKey(7), lane: LANE, kind }
}

fn send(bytes: usize) -> LaneRequestKind {
    LaneRequestKind::Send { batch: BytesMut::zeroed(bytes), count: 1, identity: None }
}

fn poll() -> LaneRequestKind {
    let consumer = crate::lane::api::ConsumerKey::Consumer(1);
    let start = crate::lane::api::PollStart::Offset(Offset::ZERO);
    LaneRequestKind::Poll { start, count: 1, consumer, auto_commit: false, generation: 0 }
}

/// What the actions say, in short.
fn said(actions: &mut Vec<Action>) -> Vec<String> {
    let all = actions.drain(..).map(|action| match action {
        Action::Send(peer, _, request) => format!("send {peer} {}", request.origin.ticket.0),
        Action::Submit(request) => format!("submit {}", request.origin.ticket.0),
        Action::Refuse(origin, refusal) => format!("refuse {} {refusal:?}", origin.ticket.0),
    });
    all.collect()
}

fn sent_ticket(actions: &[Action]) -> Ticket {
    match actions {
        [Action::Send(_, ticket, _)] => *ticket,
        other => panic!("expected one request that leaves, got {other:?}"),
    }
}

fn after(millis: u64) -> Mono {
    START.plus(Duration::from_millis(millis))
}

#[test]
fn a_request_leaves_at_once_and_its_answer_finds_the_origin_once() {
    let (mut table, mut actions) = (table(), Vec::new());
    table.take(START, Route::Peer(LEADER), request(5, send(10)), &mut actions);
    let ticket = sent_ticket(&actions);
    assert_eq!(table.answered(START, LEADER, ticket, false), Some(origin(5)));
    assert_eq!(table.answered(START, LEADER, ticket, false), None);
    assert_eq!((table.len(), table.counters().late), (0, 1));
    assert_eq!(table.deadline(), None);
}

#[test]
fn requests_without_a_leader_leave_in_order_when_there_is_one() {
    let (mut table, mut actions) = (table(), Vec::new());
    for ticket in 1..=3 {
        table.take(START, Route::Nowhere, request(ticket, send(10)), &mut actions);
    }
    assert_eq!(said(&mut actions), Vec::<String>::new());
    table.route_changed(after(1), LANE, Route::Peer(LEADER), &mut actions);
    assert_eq!(said(&mut actions), ["send 1 1", "send 1 2", "send 1 3"]);
    assert_eq!(table.bytes, 0);
    table.route_changed(after(2), LANE, Route::Peer(LEADER), &mut actions);
    assert_eq!(said(&mut actions), Vec::<String>::new(), "a request leaves once");
}

#[test]
fn requests_without_a_leader_are_submitted_here_when_this_node_leads() {
    let (mut table, mut actions) = (table(), Vec::new());
    table.take(START, Route::Nowhere, request(1, send(10)), &mut actions);
    table.route_changed(after(1), LANE, Route::Here, &mut actions);
    assert_eq!(said(&mut actions), ["submit 1"]);
    assert!(table.is_empty());
}

#[test]
fn a_request_without_a_leader_is_refused_when_its_time_is_up_and_was_not_executed() {
    let (mut table, mut actions) = (table(), Vec::new());
    table.take(START, Route::Nowhere, request(1, send(10)), &mut actions);
    table.tick(after(1_999), |_| Route::Nowhere, &mut actions);
    assert_eq!(said(&mut actions), Vec::<String>::new());
    table.tick(after(2_000), |_| Route::Nowhere, &mut actions);
    assert_eq!(said(&mut actions), ["refuse 1 NotServing"]);
    assert_eq!((table.len(), table.bytes), (0, 0));
}

#[test]
fn the_fate_of_a_send_is_unknown_after_a_lost_link_another_leader_or_too_long() {
    let (mut table, mut actions) = (table(), Vec::new());
    table.take(START, Route::Peer(LEADER), request(1, send(10)), &mut actions);
    table.take(START, Route::Peer(LEADER), request(2, poll()), &mut actions);
    actions.clear();
    table.peer_down(after(1), OTHER, &mut actions);
    assert_eq!(said(&mut actions), Vec::<String>::new());
    table.peer_down(after(1), LEADER, &mut actions);
    assert_eq!(said(&mut actions), ["refuse 1 Unknown", "refuse 2 NotServing"]);

    table.take(START, Route::Peer(LEADER), request(3, send(10)), &mut actions);
    actions.clear();
    table.route_changed(after(1), LANE, Route::Peer(OTHER), &mut actions);
    assert_eq!(said(&mut actions), ["refuse 3 Unknown"]);

    table.take(START, Route::Peer(LEADER), request(4, send(10)), &mut actions);
    actions.clear();
    let end = FORWARDED_SECONDS_MAX * 1_000;
    table.tick(after(end - 1), |_| Route::Peer(LEADER), &mut actions);
    assert_eq!(said(&mut actions), Vec::<String>::new());
    table.tick(after(end), |_| Route::Peer(LEADER), &mut actions);
    assert_eq!(said(&mut actions), ["refuse 4 Unknown"]);
    assert!(table.is_empty());
}

#[test]
fn a_question_is_asked_again_of_whoever_leads_then_and_given_up_in_the_end() {
    let (mut table, mut actions) = (table(), Vec::new());
    table.take(START, Route::Peer(LEADER), request(1, LaneRequestKind::AwaitDeleted), &mut actions);
    let ticket = sent_ticket(&actions);
    actions.clear();
    table.route_changed(after(1), LANE, Route::Peer(OTHER), &mut actions);
    assert_eq!(said(&mut actions), ["send 2 1"]);
    assert_eq!(table.answered(after(2), OTHER, ticket, true), None, "it was not taken");
    table.tick(after(50), |_| Route::Peer(OTHER), &mut actions);
    assert_eq!(said(&mut actions), Vec::<String>::new());
    table.tick(after(102), |_| Route::Peer(OTHER), &mut actions);
    assert_eq!(said(&mut actions), ["send 2 1"]);
    table.peer_down(after(103), OTHER, &mut actions);
    table.tick(after(203), |_| Route::Here, &mut actions);
    assert_eq!(said(&mut actions), ["submit 1"]);

    table.take(START, Route::Nowhere, request(2, LaneRequestKind::AwaitCreated), &mut actions);
    table.tick(after(FORWARDED_QUESTION_SECONDS_MAX * 1_000), |_| Route::Nowhere, &mut actions);
    assert_eq!(said(&mut actions), ["refuse 2 NotServing"]);
}

#[test]
fn the_table_is_bounded_in_requests_and_in_parked_bytes() {
    let (mut table, mut actions) = (table(), Vec::new());
    let half = PARKED_BYTES_PER_SHARD_MAX / 2;
    table.take(START, Route::Nowhere, request(1, send(half)), &mut actions);
    table.take(START, Route::Nowhere, request(2, send(half)), &mut actions);
    table.take(START, Route::Nowhere, request(3, send(1)), &mut actions);
    assert_eq!(said(&mut actions), ["refuse 3 Busy"]);
    for ticket in 3..=FORWARDED_REQUESTS_MAX as u64 {
        table.take(START, Route::Nowhere, request(ticket, poll()), &mut actions);
    }
    assert_eq!(said(&mut actions), Vec::<String>::new());
    assert_eq!(table.len(), FORWARDED_REQUESTS_MAX);
    table.take(START, Route::Peer(LEADER), request(9, poll()), &mut actions);
    assert_eq!(said(&mut actions), ["refuse 9 Busy"]);
}

#[test]
fn numbers_of_one_life_of_a_node_are_not_those_of_another() {
    let mut first = Forwarding::new(1, Duration::ZERO);
    let mut second = Forwarding::new(2, Duration::ZERO);
    assert_ne!(first.next_ticket(), second.next_ticket());
}

#[test]
fn a_stop_refuses_what_has_not_left_and_waits_a_moment_for_the_rest() {
    let (mut table, mut actions) = (table(), Vec::new());
    table.take(START, Route::Nowhere, request(1, send(10)), &mut actions);
    table.take(START, Route::Peer(LEADER), request(2, send(10)), &mut actions);
    table.take(START, Route::Peer(LEADER), request(3, LaneRequestKind::AwaitCreated), &mut actions);
    actions.clear();
    table.stop(after(1), Duration::from_secs(1), &mut actions);
    assert_eq!(said(&mut actions), ["refuse 1 Stopping", "refuse 3 Stopping"]);
    table.tick(after(1_001), |_| Route::Nowhere, &mut actions);
    assert_eq!(said(&mut actions), ["refuse 2 Unknown"]);
}

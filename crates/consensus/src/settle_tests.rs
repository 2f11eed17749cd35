//! What a replica starts with, for what a journal can hold.

use super::{DamageKind, DamagedRecord, LogRecords, SettleError, Settled, settle};
use crate::header::{Anchor, Prepare, PrepareHeader, PrepareKind};
use crate::suffix::{Evidence, LogSuffix};
use crate::view_state::ViewState;
use borzoi_types::{Body, ClusterId, LogId, Micros, Op, View, checksum};
use std::sync::Arc;

const CLUSTER: ClusterId = ClusterId(1);
const LOG: LogId = LogId(1);

fn prepare(op: u64, view: u32, commit: u64, below: Anchor) -> Arc<Prepare> {
    let body = Body::from(op.to_le_bytes().to_vec());
    let header = PrepareHeader {
        checksum: 0,
        body_checksum: checksum::xxh3_128_body(&body),
        parent: below.checksum,
        cluster: CLUSTER,
        log: LOG,
        view: View(view),
        op: Op(op),
        commit: Op(commit),
        timestamp: Micros(op),
        kind: PrepareKind::Normal,
        body_len: 8,
        config_epoch: 0,
    }
    .sealed();
    Arc::new(Prepare { header, body })
}

/// Operations `from + 1..=to` of `view` above `below`, each knowing two below it as committed.
fn run(below: Anchor, to: u64, view: u32) -> Vec<Arc<Prepare>> {
    let mut below = below;
    let mut out = Vec::new();
    for op in below.op.get() + 1..=to {
        let one = prepare(op, view, op.saturating_sub(3), below);
        below = one.header.anchor();
        out.push(one);
    }
    out
}

fn root() -> Anchor {
    Anchor::root(CLUSTER, LOG)
}

fn view_state(view: u32, log_view: u32, commit: u64, log: &[Arc<Prepare>]) -> ViewState {
    let headers: Vec<PrepareHeader> =
        log.iter().map(|p| p.header).filter(|h| h.op.get() > commit).collect();
    ViewState {
        cluster: CLUSTER,
        log: LOG,
        view: View(view),
        log_view: View(log_view),
        commit: Op(commit),
        suffix: LogSuffix {
            head: log.last().map_or(root(), |p| p.header.anchor()),
            evidence: vec![Evidence::Clean; headers.len()],
            headers,
        },
        must_learn: false,
    }
}

fn records(view_states: Vec<ViewState>, prepares: Vec<Arc<Prepare>>) -> LogRecords {
    let (cluster, log) = (CLUSTER, LOG);
    LogRecords { cluster, log, replica_count: 3, view_states, prepares, damaged: Vec::new() }
}

fn damaged(of: &Prepare, kind: DamageKind, with_header: bool) -> DamagedRecord {
    DamagedRecord {
        op: Some(of.header.op),
        header: with_header.then_some(of.header),
        checksum: Some(of.header.checksum),
        view_record: false,
        kind,
    }
}

fn head(settled: &Settled) -> u64 {
    assert_eq!(
        settled.view_state.suffix.head.op.get() - settled.base.op.get(),
        settled.slots.len() as u64,
        "slots reach the head"
    );
    settled.view_state.suffix.head.op.get()
}

#[test]
fn an_empty_journal_settles_to_the_root() {
    let settled = settle(records(vec![], vec![]), None, true).expect("settles");
    assert_eq!((head(&settled), settled.view_state.view), (0, View(0)));
    assert!(!settled.view_state.must_learn);
}

#[test]
fn later_records_of_the_same_log_view_extend_the_adopted_log() {
    let log = run(root(), 9, 1);
    let state = view_state(1, 1, 0, &log[..4]);
    let settled = settle(records(vec![state], log), None, true).expect("settles");
    assert_eq!(head(&settled), 9);
    assert!(settled.slots.iter().all(|slot| slot.evidence == Evidence::Held));
    assert_eq!(settled.view_state.commit, Op(6), "as the last header says");
}

#[test]
fn what_an_older_view_left_above_the_adopted_head_is_void() {
    let log = run(root(), 6, 1);
    let state = view_state(2, 2, 3, &log[..4]);
    let settled = settle(records(vec![state], log), None, true).expect("settles");
    assert_eq!(head(&settled), 4, "5 and 6 chain, and were discarded");
    assert!(settled.orphans.is_empty());
}

#[test]
fn the_newest_view_record_decides() {
    let old = run(root(), 6, 1);
    let new = run(old[3].header.anchor(), 7, 2);
    let first = view_state(1, 1, 0, &old);
    let mut adopted = old[..4].to_vec();
    adopted.push(Arc::clone(&new[0]));
    let second = view_state(2, 2, 3, &adopted);
    let all = old.iter().chain(&new).cloned().collect();
    let settled = settle(records(vec![first, second], all), None, true).expect("settles");
    assert_eq!(head(&settled), 7);
    assert_eq!(settled.slots[4].header, Some(new[0].header));
}

#[test]
fn an_operation_never_found_was_never_held_and_one_that_was_held_is_faulty() {
    let log = run(root(), 5, 1);
    let mut state = view_state(1, 1, 2, &log);
    state.suffix.evidence = vec![Evidence::Held, Evidence::Held, Evidence::Clean];
    let present = vec![Arc::clone(&log[0]), Arc::clone(&log[1]), Arc::clone(&log[2])];
    let settled = settle(records(vec![state], present), None, true).expect("settles");
    let evidence: Vec<Evidence> = settled.slots.iter().map(|slot| slot.evidence).collect();
    use Evidence::{Clean, Faulty, Held};
    assert_eq!(evidence, [Held, Held, Held, Faulty, Clean]);
}

#[test]
fn damage_with_a_known_header_is_faulty_and_keeps_its_place() {
    let log = run(root(), 6, 1);
    let mut input = records(vec![view_state(1, 1, 0, &log[..1])], log.clone());
    input.prepares.remove(5);
    input.damaged.push(damaged(&log[5], DamageKind::Faulty, true));
    let settled = settle(input, None, true).expect("settles");
    assert_eq!(head(&settled), 6);
    assert_eq!(settled.slots[5].evidence, Evidence::Faulty);
    assert!(!settled.view_state.must_learn);
}

#[test]
fn damage_without_a_header_above_the_commit_ends_the_log_and_the_trust() {
    let log = run(root(), 9, 1);
    let mut input = records(vec![view_state(1, 1, 0, &log[..1])], log.clone());
    input.prepares.remove(7);
    input.damaged.push(damaged(&log[7], DamageKind::Faulty, false));
    let settled = settle(input, None, true).expect("settles");
    assert_eq!(head(&settled), 7);
    assert!(settled.view_state.must_learn, "it may have acknowledged the eighth");
    assert_eq!(settled.orphans.len(), 1, "the ninth is kept for peers");
}

#[test]
fn damage_below_the_commit_leaves_a_hole_and_the_log_goes_on() {
    let log = run(root(), 9, 1);
    let mut input = records(vec![view_state(1, 1, 0, &log[..1])], log.clone());
    input.prepares.remove(3);
    input.damaged.push(damaged(&log[3], DamageKind::Faulty, false));
    let settled = settle(input, None, true).expect("settles");
    assert_eq!(head(&settled), 9);
    assert_eq!(settled.chained_from, Op(5));
    assert_eq!(settled.slots[2].header, Some(log[2].header), "kept as a candidate");
    assert!(!settled.view_state.must_learn, "what is missing is committed");
}

#[test]
fn damage_that_names_no_operation_ends_the_trust() {
    let log = run(root(), 3, 1);
    let mut input = records(vec![view_state(1, 1, 0, &log)], log);
    let kind = DamageKind::Faulty;
    let nothing =
        DamagedRecord { op: None, header: None, checksum: None, view_record: false, kind };
    input.damaged.push(nothing);
    assert!(settle(input, None, true).expect("settles").view_state.must_learn);
}

#[test]
fn a_damaged_view_record_may_not_vote() {
    let log = run(root(), 3, 1);
    let mut input = records(vec![view_state(1, 1, 0, &log)], log);
    input.damaged.push(DamagedRecord {
        op: None,
        header: None,
        checksum: None,
        view_record: true,
        kind: DamageKind::Faulty,
    });
    assert_eq!(settle(input, None, true), Err(SettleError::ViewRecordDamaged { log: LOG }));
}

#[test]
fn an_untrusted_tail_must_learn_and_keeps_saying_so() {
    let log = run(root(), 3, 1);
    let input = records(vec![view_state(1, 1, 0, &log)], log);
    let settled = settle(input, None, false).expect("settles");
    assert!(settled.view_state.must_learn);
    let carried = settled.carried();
    let again = settle(records(vec![carried.view_state], carried.prepares), None, true);
    assert!(again.expect("settles").view_state.must_learn);
}

#[test]
fn the_checkpoint_cuts_below_and_wins_over_a_log_that_contradicts_it() {
    let log = run(root(), 6, 1);
    let base = log[3].header.anchor();
    let input = records(vec![view_state(1, 1, 2, &log)], log.clone());
    let settled = settle(input.clone(), Some(base), true).expect("settles");
    assert_eq!((settled.base, head(&settled), settled.slots.len()), (base, 6, 2));
    let other = Anchor { op: Op(4), checksum: 42 };
    let settled = settle(input.clone(), Some(other), true).expect("settles");
    assert_eq!((settled.base, head(&settled)), (other, 4), "transferred state is committed state");
    let solo = LogRecords { replica_count: 1, ..input };
    let refused = settle(solo, Some(other), true);
    assert_eq!(refused, Err(SettleError::Diverged { log: LOG, op: Op(4) }));
}

#[test]
fn a_checkpoint_beyond_the_log_is_the_log() {
    let log = run(root(), 6, 1);
    let beyond = Anchor { op: Op(50), checksum: 42 };
    let input = records(vec![view_state(1, 1, 2, &log)], log);
    let settled = settle(input, Some(beyond), true).expect("settles");
    assert_eq!((settled.base, head(&settled)), (beyond, 50));
}

#[test]
fn a_solo_node_cuts_what_is_unknown_and_refuses_what_was_durable() {
    let log = run(root(), 6, 1);
    let mut input = records(vec![view_state(1, 1, 0, &log[..1])], log.clone());
    input.replica_count = 1;
    input.prepares.truncate(4);
    input.damaged.push(damaged(&log[4], DamageKind::Unknown, true));
    let settled = settle(input.clone(), None, true).expect("cut");
    assert_eq!((head(&settled), settled.cut), (4, Some(Op(5))));
    assert!(settled.view_state.must_learn, "it starts with a loss epoch");
    input.damaged[0] = damaged(&log[4], DamageKind::Faulty, true);
    let refused = settle(input.clone(), None, true);
    assert_eq!(refused, Err(SettleError::Damaged { log: LOG, op: Some(Op(5)) }));
    input.damaged.clear();
    input.prepares = vec![Arc::clone(&log[0]), Arc::clone(&log[3])];
    input.view_states = vec![view_state(1, 1, 4, &log[..4])];
    let refused = settle(input, None, true);
    assert_eq!(refused, Err(SettleError::Missing { log: LOG, op: Op(3) }));
}

#[test]
fn records_of_another_log_are_refused() {
    let log = run(root(), 2, 1);
    let mut input = records(vec![], log);
    input.log = LogId(9);
    assert_eq!(settle(input, None, true), Err(SettleError::Foreign { log: LogId(9) }));
}

//! Decisions about which log a view starts with, ballot by ballot.

use super::{Ballot, Decision, merge};
use crate::header::{Anchor, PrepareHeader, PrepareKind};
use crate::message::DoViewChange;
use crate::quorum::Quorums;
use crate::suffix::{Evidence, LogSuffix};
use Evidence::{Clean, Faulty, Held, Unknown};
use borzoi_types::{ClusterId, LogId, Micros, Op, ReplicaId, View};
use bytes::Bytes;

/// Headers 1..=len, the ones above `fork` prepared by `view`.
fn log(len: u64, fork: u64, view: u32) -> Vec<PrepareHeader> {
    let mut parent = Anchor::root(ClusterId(1), LogId(1)).checksum;
    let mut headers = Vec::new();
    for op in 1..=len {
        let header = PrepareHeader {
            checksum: 0,
            body_checksum: 0,
            parent,
            cluster: ClusterId(1),
            log: LogId(1),
            view: if op > fork { View(view) } else { View(1) },
            op: Op(op),
            commit: Op(0),
            timestamp: Micros(0),
            kind: PrepareKind::Normal,
            body_len: 0,
            config_epoch: 0,
        }
        .sealed();
        parent = header.checksum;
        headers.push(header);
    }
    headers
}

fn ballot(
    log_view: u32,
    commit: u64,
    headers: &[PrepareHeader],
    says: &[Evidence],
) -> DoViewChange {
    let above: Vec<PrepareHeader> =
        headers.iter().filter(|header| header.op.get() > commit).copied().collect();
    assert_eq!(above.len(), says.len(), "evidence for each header above the commit");
    let head = headers.last().map_or(Anchor::root(ClusterId(1), LogId(1)), PrepareHeader::anchor);
    DoViewChange {
        view: View(9),
        log_view: View(log_view),
        commit: Op(commit),
        released: Op::ZERO,
        suffix: LogSuffix { head, headers: above, evidence: says.to_vec() },
        must_learn: false,
        attachment: Bytes::new(),
    }
}

fn untrusted(mut dvc: DoViewChange) -> DoViewChange {
    dvc.must_learn = true;
    dvc
}

fn decide(n: u8, accept_loss: bool, dvcs: &[DoViewChange]) -> Decision {
    let ballots: Vec<Ballot<'_>> = dvcs
        .iter()
        .enumerate()
        .map(|(index, dvc)| Ballot { replica: ReplicaId(index as u8), dvc })
        .collect();
    merge(&ballots, n, Quorums::of(n), accept_loss)
}

/// Head of the decided log and whether it is a declared loss.
fn head(n: u8, dvcs: &[DoViewChange]) -> Option<(u64, bool)> {
    match decide(n, false, dvcs) {
        Decision::Wait => None,
        Decision::Start { suffix, loss, .. } => Some((suffix.head.op.get(), loss)),
    }
}

#[test]
fn fewer_than_a_view_change_quorum_decide_nothing() {
    let l = log(3, 3, 1);
    assert_eq!(head(3, &[ballot(1, 3, &l, &[])]), None);
    assert_eq!(head(3, &[ballot(1, 3, &l, &[]), ballot(1, 3, &l, &[])]), Some((3, false)));
}

#[test]
fn the_highest_log_view_wins_over_the_longest_log() {
    let long = log(9, 9, 1);
    let newer = log(5, 4, 2);
    let old = ballot(1, 4, &long, &[Held; 5]);
    let new = ballot(2, 4, &newer, &[Held]);
    assert_eq!(head(3, &[old.clone(), new.clone()]), Some((5, false)));
    let Decision::Start { suffix, source, .. } = decide(3, false, &[old, new]) else {
        panic!("two of three decide");
    };
    assert_eq!(suffix.head, newer[4].anchor());
    assert_eq!(source, ReplicaId(1));
}

#[test]
fn of_one_log_view_the_longest_log_wins() {
    let l = log(6, 6, 1);
    let short = ballot(1, 3, &l[..4], &[Held]);
    let long = ballot(1, 3, &l, &[Held, Held, Held]);
    assert_eq!(head(3, &[short, long]), Some((6, false)));
}

#[test]
fn an_operation_that_a_nack_quorum_never_held_is_discarded_with_all_above_it() {
    let l = log(6, 6, 1);
    let a = ballot(1, 3, &l, &[Held, Clean, Clean]);
    let b = ballot(1, 3, &l, &[Held, Clean, Clean]);
    assert_eq!(head(3, &[a, b]), Some((4, false)));
}

#[test]
fn a_held_operation_is_kept_whatever_others_say() {
    let l = log(4, 4, 1);
    let a = ballot(1, 3, &l, &[Held]);
    let b = ballot(1, 3, &l[..3], &[]);
    let c = ballot(1, 3, &l[..3], &[]);
    assert_eq!(head(3, &[a, b, c]), Some((4, false)));
}

#[test]
fn a_damaged_operation_is_no_nack_and_waits_for_the_third_replica() {
    let l = log(4, 4, 1);
    let damaged = ballot(1, 3, &l, &[Faulty]);
    let never = ballot(1, 3, &l[..3], &[]);
    assert_eq!(head(3, &[damaged.clone(), never.clone()]), None, "it may have committed");
    let holder = ballot(1, 3, &l, &[Held]);
    assert_eq!(head(3, &[damaged.clone(), never.clone(), holder]), Some((4, false)));
    assert_eq!(head(3, &[damaged, never.clone(), never]), Some((3, false)), "two never held it");
}

#[test]
fn an_unknown_operation_is_discarded_only_when_all_have_answered() {
    let l = log(4, 4, 1);
    let unknown = ballot(1, 3, &l, &[Unknown]);
    let never = ballot(1, 3, &l[..3], &[]);
    assert_eq!(head(3, &[unknown.clone(), never.clone()]), None);
    assert_eq!(head(3, &[unknown.clone(), never, unknown.clone()]), Some((3, false)));
    let damaged = ballot(1, 3, &l, &[Faulty]);
    let never = ballot(1, 3, &l[..3], &[]);
    assert_eq!(head(3, &[unknown, never, damaged]), None, "damage is never void");
}

#[test]
fn another_operation_in_its_place_is_a_nack() {
    let canonical = log(5, 4, 2);
    let other = log(5, 4, 3);
    let a = ballot(4, 4, &canonical, &[Clean]);
    let b = ballot(3, 4, &other, &[Held]);
    assert_eq!(head(3, &[a, b]), Some((4, false)));
}

#[test]
fn an_older_log_that_holds_the_same_operation_keeps_it() {
    let l = log(4, 4, 1);
    let damaged_newer = ballot(2, 3, &l, &[Faulty]);
    let holder_older = ballot(1, 3, &l, &[Held]);
    assert_eq!(head(3, &[damaged_newer, holder_older]), Some((4, false)));
}

#[test]
fn what_anyone_knows_to_be_committed_is_not_weighed() {
    let l = log(6, 6, 1);
    let damaged = ballot(1, 3, &l, &[Faulty, Faulty, Held]);
    let knows = ballot(1, 5, &l[..5], &[]);
    let Decision::Start { commit, suffix, .. } = decide(3, false, &[damaged, knows]) else {
        panic!("committed operations are repaired, not voted on");
    };
    assert_eq!((commit, suffix.head.op), (Op(5), Op(6)));
    assert_eq!(suffix.headers.len(), 1);
}

#[test]
fn an_untrusted_replica_does_not_count_and_never_nacks_but_its_copies_do() {
    let l = log(4, 4, 1);
    let clean = ballot(1, 3, &l[..3], &[]);
    let damaged = ballot(1, 3, &l, &[Faulty]);
    let silent = untrusted(ballot(1, 3, &l[..3], &[]));
    let holder = untrusted(ballot(1, 3, &l, &[Held]));
    assert_eq!(head(3, &[clean.clone(), silent.clone()]), None, "one trusted is no quorum");
    assert_eq!(head(3, &[clean.clone(), damaged.clone(), silent]), None, "one nack is no quorum");
    assert_eq!(head(3, &[clean, damaged, holder]), Some((4, false)), "a copy is a copy");
}

#[test]
fn an_untrusted_replica_does_not_choose_the_log_view() {
    let l = log(3, 3, 1);
    let newer = log(4, 3, 2);
    let a = ballot(1, 3, &l, &[]);
    let b = ballot(1, 3, &l, &[]);
    let c = untrusted(ballot(2, 3, &newer, &[Held]));
    assert_eq!(head(3, &[c, a, b]), Some((3, false)));
}

#[test]
fn without_enough_trust_all_must_answer_and_a_loss_is_declared() {
    let l = log(5, 5, 1);
    let a = untrusted(ballot(1, 2, &l, &[Held, Clean, Held]));
    let b = untrusted(ballot(1, 2, &l[..3], &[Held]));
    let c = ballot(1, 2, &l[..2], &[]);
    assert_eq!(head(3, &[a.clone(), b.clone()]), None);
    assert_eq!(head(3, &[a.clone(), b.clone(), c]), Some((3, true)), "cut where nobody holds");
    let accepted = decide(3, true, &[a, b]);
    assert!(matches!(accepted, Decision::Start { loss: true, .. }), "an operator accepted it");
}

#[test]
fn an_operator_may_accept_what_waiting_cannot_resolve() {
    let l = log(4, 4, 1);
    let damaged = ballot(1, 3, &l, &[Faulty]);
    let never = ballot(1, 3, &l[..3], &[]);
    let Decision::Start { suffix, loss, .. } = decide(3, true, &[damaged, never]) else {
        panic!("accepted");
    };
    assert_eq!((suffix.head.op, loss), (Op(3), true));
}

#[test]
fn a_pair_needs_both_and_one_nack_discards() {
    let l = log(4, 4, 1);
    let a = ballot(1, 3, &l, &[Faulty]);
    let b = ballot(1, 3, &l[..3], &[]);
    assert_eq!(head(2, std::slice::from_ref(&a)), None);
    assert_eq!(head(2, &[a, b]), Some((3, false)));
}

#[test]
fn a_commit_beyond_the_chosen_log_is_a_contradiction_and_waits() {
    let l = log(6, 6, 1);
    let newer = ballot(2, 3, &l[..4], &[Held]);
    let knows = ballot(1, 6, &l, &[]);
    assert_eq!(head(3, &[newer, knows]), None);
}

//! Which log a view starts with: a pure function of the do-view-change messages at hand.
//!
//! Why it is safe. An operation commits in view w only by acknowledgements given in view w, each
//! after the acknowledger's log_view record for w was durable. A view-change quorum of trusted
//! replicas meets that replication quorum, so the highest log_view among them is at least w, and by
//! induction every log adopted in a view of w or later contains the operation. Hence the log of
//! the highest log_view contains everything committed.
//!
//! Its head may be cut, but only at an operation that cannot have committed: a nack quorum of
//! replicas that never acknowledged it in any view whose acknowledgements still count, which leaves
//! fewer than a replication quorum. A damaged or unknown record is never a nack. When neither the
//! body nor a nack quorum is at hand, the answer is to wait for more replicas.
//!
//! Declared loss is the way out when waiting cannot help: every replica has answered and too few
//! are trusted, or an operator accepts the loss (then one replica may be missing, and operations
//! that cannot be decided are cut). Such a view starts with a loss epoch.

use crate::header::{Anchor, PrepareHeader};
use crate::message::DoViewChange;
use crate::quorum::Quorums;
use crate::suffix::{Evidence, LogSuffix};
use borzoi_types::{Op, ReplicaId, View};

/// One replica's do-view-change.
#[derive(Clone, Copy)]
pub(crate) struct Ballot<'a> {
    pub(crate) replica: ReplicaId,
    pub(crate) dvc: &'a DoViewChange,
}

/// What the ballots say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Too few ballots, or an operation that might have committed and that nobody holds.
    Wait,
    /// Start with this log.
    Start {
        suffix: LogSuffix,
        commit: Op,
        /// Whose log it is: it has every header and most bodies.
        source: ReplicaId,
        /// Operations discarded on nack quorums, for counters.
        discarded: u64,
        /// Begun without a trusted quorum: the view starts with a loss epoch.
        loss: bool,
    },
}

/// Decides. `accept_loss`: an operator allows one replica to be missing for a declared loss.
pub(crate) fn merge(
    ballots: &[Ballot<'_>],
    replica_count: u8,
    quorums: Quorums,
    accept_loss: bool,
) -> Decision {
    assert!(ballots.len() <= usize::from(replica_count), "one ballot per replica");
    let trusted = ballots.iter().filter(|ballot| !ballot.dvc.must_learn).count();
    let everyone = usize::from(replica_count);
    let answered = Answered {
        all: ballots.len() == everyone,
        enough_for_loss: ballots.len() + usize::from(accept_loss) >= everyone,
    };
    let mut loss = trusted < usize::from(quorums.view_change);
    if ballots.is_empty() || (loss && !answered.enough_for_loss) {
        return Decision::Wait;
    }
    let Some(best) = canonical(ballots, loss) else { return Decision::Wait };
    let highest = ballots.iter().map(|ballot| ballot.dvc.commit).max().unwrap_or(Op::ZERO);
    let force = accept_loss && answered.enough_for_loss;
    let commit = highest.min(best.dvc.suffix.head.op);
    let decided = if highest > commit {
        // Contradicts the argument above: somebody lost what it promised. Wait for others.
        None
    } else {
        cut(ballots, best, commit, quorums, answered.all)
    };
    let cut = match decided {
        Some(cut) => cut,
        None if loss || force => {
            loss = true;
            cut_at_first_not_held(ballots, best, commit)
        }
        None => return Decision::Wait,
    };
    let suffix = suffix_between(&best.dvc.suffix, commit, cut);
    assert!(suffix.is_chained(), "a cut chain is a chain");
    assert!(suffix.head.op >= commit, "what is committed is kept");
    let discarded = best.dvc.suffix.head.op.get() - suffix.head.op.get();
    Decision::Start { suffix, commit, source: best.replica, discarded, loss }
}

/// The longest log of the highest log_view that a voter has.
fn canonical<'a>(ballots: &[Ballot<'a>], loss: bool) -> Option<Ballot<'a>> {
    let voters = ballots.iter().filter(|ballot| loss || !ballot.dvc.must_learn);
    let log_view: View = voters.map(|ballot| ballot.dvc.log_view).max()?;
    assert!(loss || ballots.iter().any(|ballot| !ballot.dvc.must_learn), "a trusted voter");
    let candidates = ballots.iter().filter(|ballot| ballot.dvc.log_view == log_view);
    candidates.copied().max_by_key(|ballot| (ballot.dvc.suffix.head.op, ballot.dvc.commit))
}

/// Who has answered, for what is allowed only then.
struct Answered {
    all: bool,
    enough_for_loss: bool,
}

/// The last operation to keep; `None` when that cannot be known yet.
fn cut(
    ballots: &[Ballot<'_>],
    best: Ballot<'_>,
    commit: Op,
    quorums: Quorums,
    all_answered: bool,
) -> Option<Op> {
    for header in best.dvc.suffix.headers.iter().filter(|header| header.op > commit) {
        let tally = Tally::of(ballots, header);
        if tally.held {
            continue;
        }
        assert!(!tally.held, "a held operation is kept");
        let refused = tally.nacks >= usize::from(quorums.nack);
        let void = all_answered && !tally.faulty;
        return (refused || void).then(|| Op(header.op.get() - 1));
    }
    Some(best.dvc.suffix.head.op)
}

/// Declared loss: the last operation before the first that nobody holds.
fn cut_at_first_not_held(ballots: &[Ballot<'_>], best: Ballot<'_>, commit: Op) -> Op {
    let above = best.dvc.suffix.headers.iter().filter(|header| header.op > commit);
    let lost = above.into_iter().find(|header| !Tally::of(ballots, header).held);
    lost.map_or(best.dvc.suffix.head.op, |header| Op(header.op.get() - 1))
}

/// What the ballots say about one operation.
struct Tally {
    held: bool,
    faulty: bool,
    nacks: usize,
}

impl Tally {
    fn of(ballots: &[Ballot<'_>], header: &PrepareHeader) -> Self {
        let mut tally = Self { held: false, faulty: false, nacks: 0 };
        for ballot in ballots {
            match evidence(ballot.dvc, header) {
                Evidence::Held => tally.held = true,
                Evidence::Faulty => tally.faulty = true,
                Evidence::Unknown => {}
                // An untrusted replica may have acknowledged and forgotten.
                Evidence::Clean => tally.nacks += usize::from(!ballot.dvc.must_learn),
            }
        }
        assert!(tally.nacks <= ballots.len(), "a replica nacks once");
        tally
    }
}

/// What `dvc` says about exactly this operation: another one in its place, or none, is a nack.
fn evidence(dvc: &DoViewChange, header: &PrepareHeader) -> Evidence {
    assert!(header.op > dvc.commit, "only what nobody knows to be committed is weighed");
    match dvc.suffix.get(header.op) {
        Some((own, evidence)) if own.checksum == header.checksum => evidence,
        Some(_) => Evidence::Clean,
        None => {
            assert!(header.op > dvc.suffix.head.op, "a suffix reaches down to its commit");
            Evidence::Clean
        }
    }
}

/// The part of `suffix` above `commit` and up to `head`.
fn suffix_between(suffix: &LogSuffix, commit: Op, head: Op) -> LogSuffix {
    assert!(commit <= head && head <= suffix.head.op, "a cut lies in the suffix");
    let checksum = suffix.checksum_at(head).expect("a cut lies in the suffix");
    let inside = |header: &&PrepareHeader| header.op > commit && header.op <= head;
    let headers: Vec<PrepareHeader> = suffix.headers.iter().filter(inside).copied().collect();
    let evidence = vec![Evidence::Clean; headers.len()];
    LogSuffix { head: Anchor { op: head, checksum }, headers, evidence }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;

//! Makes a failing run smaller: fewer nodes, shards, faults, sends, less trouble on the way, as
//! long as it fails in the same way.

use crate::faults::{FaultKind, Profile};
use crate::run::{Outcome, run, run_and_explain};
use crate::trace::Keep;
use core::fmt;

/// One change of a profile that makes a run smaller. Its text form is what the command line takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// So many nodes.
    Nodes(usize),
    /// So many shards at most.
    Shards(u16),
    /// Without this kind of fault.
    Without(FaultKind),
    /// This many sends suffice.
    Sends(u64),
    /// Faults end after so many milliseconds.
    Until(u64),
    /// Links lose, repeat and change nothing.
    CalmLinks,
    /// Disks are quick.
    CalmDisks,
    /// One event a batch.
    SingleEvents,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(count) => write!(f, "nodes={count}"),
            Self::Shards(count) => write!(f, "shards={count}"),
            Self::Without(kind) => write!(f, "without={}", kind.name()),
            Self::Sends(count) => write!(f, "sends={count}"),
            Self::Until(millis) => write!(f, "until={millis}"),
            Self::CalmLinks => f.write_str("calm-links"),
            Self::CalmDisks => f.write_str("calm-disks"),
            Self::SingleEvents => f.write_str("single-events"),
        }
    }
}

impl core::str::FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a change of a run");
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let number = || value.parse::<u64>().map_err(|_| bad());
        Ok(match name {
            "nodes" => Self::Nodes(usize::try_from(number()?).map_err(|_| bad())?),
            "shards" => Self::Shards(u16::try_from(number()?).map_err(|_| bad())?),
            "without" => Self::Without(FaultKind::from_name(value).ok_or_else(bad)?),
            "sends" => Self::Sends(number()?),
            "until" => Self::Until(number()?),
            "calm-links" => Self::CalmLinks,
            "calm-disks" => Self::CalmDisks,
            "single-events" => Self::SingleEvents,
            _ => return Err(bad()),
        })
    }
}

impl Change {
    /// Applies it to a profile.
    pub fn apply(&self, profile: &mut Profile) {
        match self {
            Self::Nodes(count) => {
                profile.nodes = (*count).max(1);
                profile.faults.retain(|kind, _| kind.is_possible(*count));
            }
            Self::Shards(count) => profile.shards_max = (*count).max(1),
            Self::Without(kind) => {
                profile.faults.remove(kind);
            }
            Self::Sends(count) => profile.sends_wanted = *count,
            Self::Until(millis) => profile.faults_until = *millis,
            Self::CalmLinks => {
                let link = &mut profile.link;
                (link.loss, link.duplicate, link.reorder, link.corrupt) = (0, 0, 0, 0);
            }
            Self::CalmDisks => {
                let faults = core::mem::take(&mut profile.faults);
                let (link, delay) = (profile.link, profile.client_delay);
                profile.calm();
                (profile.faults, profile.link, profile.client_delay) = (faults, link, delay);
            }
            Self::SingleEvents => profile.batch_max = 1,
        }
    }
}

/// What distinguishes one failure from another: the beginning of its message and its place, without
/// the numbers in it.
fn kind_of(outcome: &Outcome) -> Option<String> {
    let message = &outcome.failure.as_ref()?.message;
    let words: String = message.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
    let place = message.rsplit_once('[').map_or("", |(_, place)| place);
    Some(format!("{words} {place}"))
}

/// The smallest run found that fails like `failed`, the changes that make it, and how many runs
/// were tried. `tell` hears of every step.
#[must_use]
pub fn minimise(failed: &Outcome, tell: &mut dyn FnMut(&str)) -> (Outcome, Vec<Change>) {
    let mut profile = failed.profile.clone();
    let mut changes: Vec<Change> = Vec::new();
    let wanted = kind_of(failed);
    let mut candidates: Vec<Change> =
        [1, 3].into_iter().filter(|n| *n < profile.nodes).map(Change::Nodes).collect();
    candidates.push(Change::Shards(1));
    candidates.extend(profile.faults.keys().map(|kind| Change::Without(*kind)));
    let sends = [10, 25, 50, 100].map(Change::Sends);
    let until = [100, 300, 1_000, 3_000, 10_000].map(Change::Until);
    candidates.extend([Change::CalmLinks, Change::CalmDisks, Change::SingleEvents]);
    candidates.extend(sends.into_iter().chain(until));
    for change in candidates {
        let mut smaller = profile.clone();
        change.apply(&mut smaller);
        if smaller == profile {
            continue;
        }
        let outcome = run(&smaller, Keep::Nothing);
        let same = kind_of(&outcome) == wanted;
        tell(&format!("{} {change}", if same { "smaller:" } else { "needed: not" }));
        let replaces =
            |old: &Change| core::mem::discriminant(old) == core::mem::discriminant(&change);
        let already = !matches!(change, Change::Without(_)) && changes.iter().any(replaces);
        if same && !already {
            profile = smaller;
            changes.push(change);
        }
    }
    (run_and_explain(&profile), changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_back_what_they_write() {
        let all = [
            Change::Nodes(3),
            Change::Shards(1),
            Change::Without(FaultKind::DiskFull),
            Change::Sends(20),
            Change::Until(500),
            Change::CalmLinks,
            Change::CalmDisks,
            Change::SingleEvents,
        ];
        for change in all {
            assert_eq!(change.to_string().parse(), Ok(change));
        }
        assert!("without=rain".parse::<Change>().is_err());
    }
}

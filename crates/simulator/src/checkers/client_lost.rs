//! Checker 15: no confirmed message is lost.
//!
//! Every message that was confirmed, and whose partition was not purged or deleted since, is read
//! at its offset from every node at the end. Level `replicated` may lose what was confirmed before
//! a power cut that took every copy.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{Confirmed, History, MessageRef, Seen, State};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Lost {
    looked: u64,
}

/// Where in a partition messages are missing.
fn part(missing: u64, present: &BTreeMap<u64, &Seen>) -> &'static str {
    let first = present.keys().next();
    let last = present.keys().next_back();
    match (first, last) {
        (Some(&first), _) if missing < first => "prefix",
        (_, Some(&last)) if missing < last => "middle",
        _ => "suffix",
    }
}

impl Lost {
    fn compare(
        &mut self,
        history: &History,
        facts: &Facts,
        sent: &Confirmed,
        (node, list): (usize, &BTreeMap<u64, &Seen>),
    ) -> Result<(), String> {
        let shrinks = history.may_shrink(sent.topic);
        let earliest = list.keys().next().copied().unwrap_or(u64::MAX);
        let excused = history.may_be_lost(sent.topic, facts, history.ended(sent.op));
        for (offset, message) in sent.places() {
            self.looked += 1;
            let found = list.get(&offset).is_some_and(|seen| **seen == Seen::Known(message));
            if found || excused || (shrinks && offset < earliest) {
                continue;
            }
            let (place, line) = (part(offset, list), history.line(sent.op));
            let MessageRef(message) = message;
            return Err(format!(
                "confirmed message {message} is not at offset {offset} on node {node}: \
                 lost {place}; {line}"
            ));
        }
        Ok(())
    }
}

impl HistoryChecker for Lost {
    fn number(&self) -> u8 {
        15
    }

    fn name(&self) -> &'static str {
        "no confirmed message is lost"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String> {
        if history.final_from.is_none() || facts.safe_stop {
            return Ok(());
        }
        let mut lists: BTreeMap<_, Vec<(usize, BTreeMap<u64, &Seen>)>> = BTreeMap::new();
        for (&place, nodes) in &history.finals {
            let of = nodes.iter().map(|(&node, list)| {
                (node, list.iter().map(|(offset, seen)| (*offset, seen)).collect())
            });
            lists.insert(place, of.collect());
        }
        for sent in history.confirmed() {
            let record = history.topic(sent.topic);
            let life = history.last_life(sent.topic, sent.partition);
            if record.state != State::Live || life.is_none() || life != sent.life {
                continue;
            }
            match lists.get(&(sent.topic, sent.partition)) {
                Some(nodes) => {
                    for (node, list) in nodes {
                        self.compare(history, facts, &sent, (*node, list))?;
                    }
                }
                None if sent.partition < record.partitions => {
                    let (topic, at) = (&record.name, sent.partition);
                    return Err(format!("partition {at} of {topic} could not be read at the end"));
                }
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;
    use borzoi_types::Mono;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Lost::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn sample(finals: &[(u64, u32)]) -> Sample {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.send(1, 0, 1, 2);
        sample.finals(&[&[(0, 0), (1, 1), (2, 2)], finals]);
        sample
    }

    #[test]
    fn messages_that_every_node_has_are_not_lost() {
        assert_eq!(check(&sample(&[(0, 0), (1, 1), (2, 2)])), Ok(()));
    }

    #[test]
    fn a_lost_prefix_middle_and_suffix_are_told_apart() {
        let lost = |finals: &[(u64, u32)]| check(&sample(finals)).unwrap_err();
        assert!(lost(&[(1, 1), (2, 2)]).contains("prefix"));
        assert!(lost(&[(0, 0), (2, 2)]).contains("middle"));
        assert!(lost(&[(0, 0), (1, 1)]).contains("suffix"));
        assert!(lost(&[(0, 0), (1, 2), (2, 1)]).contains("offset 1"));
        assert!(lost(&[]).contains("node 1"));
    }

    #[test]
    fn a_power_cut_excuses_replicated_messages_confirmed_before_it_and_no_others() {
        let lost_at = |at: u64| Facts { unsynced_lost: vec![Mono(at)], ..Facts::default() };
        let mut sample = sample(&[(0, 0), (1, 1)]);
        let late = sample.now;
        let check = |sample: &Sample, at| Lost::default().check(&sample.history, &lost_at(at));
        assert!(check(&sample, late).is_err(), "level persisted");
        sample = sample.replicated();
        assert_eq!(check(&sample, late), Ok(()));
        assert!(check(&sample, 1).is_err(), "confirmed after the cut");
    }

    #[test]
    fn what_was_purged_or_deleted_is_not_lost_and_what_came_after_is_watched() {
        let mut sample = Sample::new();
        sample.send(1, 0, 2, 0);
        sample.done(0, Intent::PurgeTopic(TOPIC), Value::Nothing);
        sample.send(1, 0, 1, 0);
        sample.finals(&[&[(0, 2)]]);
        assert_eq!(check(&sample), Ok(()));
        sample.finals(&[&[]]);
        assert!(check(&sample).is_err());
    }

    #[test]
    fn retention_may_take_a_prefix_only() {
        let mut good = sample(&[(2, 2)]);
        good.history.topics[0].retention = true;
        assert_eq!(check(&good), Ok(()));
        let mut bad = sample(&[(0, 0), (2, 2)]);
        bad.history.topics[0].retention = true;
        assert!(check(&bad).is_err());
    }

    #[test]
    fn a_partition_that_cannot_be_read_is_reported() {
        let mut sample = Sample::new();
        sample.send(1, 1, 1, 0);
        sample.finals(&[]);
        assert!(check(&sample).unwrap_err().contains("could not be read"));
    }
}

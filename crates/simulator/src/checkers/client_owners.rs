//! Checker 22: one owner per partition and generation of a group. Within a group a generation is
//! one assignment: no partition belongs to two members, and later questions see no earlier one.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{GroupRef, History, Intent, OpRef, Value};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct Owners {
    looked: u64,
}

impl HistoryChecker for Owners {
    fn number(&self) -> u8 {
        22
    }

    fn name(&self) -> &'static str {
        "one owner per partition and group generation"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        let mut owners: BTreeMap<(GroupRef, u64, u32), OpRef> = BTreeMap::new();
        let mut newest: BTreeMap<GroupRef, (u64, OpRef)> = BTreeMap::new();
        for at in history.by_end() {
            let op = history.op(at);
            let Intent::SyncGroup(group) = op.intent else { continue };
            let Some(Value::Assignment(Some((generation, partitions)))) = op.value() else {
                continue;
            };
            self.looked += 1;
            for &partition in partitions {
                let first = *owners.entry((group, *generation, partition)).or_insert(at);
                if history.op(first).client != op.client {
                    let (one, other) = (history.line(first), history.line(at));
                    return Err(format!("partition {partition} has two owners: {one}; {other}"));
                }
            }
            let (seen, by) = newest.get(&group).copied().unwrap_or((0, at));
            if *generation < seen && history.ended(by) < op.invoked {
                let (one, other) = (history.line(by), history.line(at));
                return Err(format!("a generation of a group came back: {one}; {other}"));
            }
            if *generation >= seen {
                newest.insert(group, (*generation, at));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = Owners::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    fn sync(sample: &mut Sample, client: usize, generation: u64, partitions: &[u32]) {
        let value = Value::Assignment(Some((generation, partitions.to_vec())));
        sample.done(client, Intent::SyncGroup(GroupRef(0)), value);
    }

    #[test]
    fn partitions_may_move_with_the_generation() {
        let mut sample = Sample::new();
        sample.group();
        sync(&mut sample, 1, 1, &[0, 1]);
        sync(&mut sample, 2, 2, &[1]);
        sync(&mut sample, 1, 2, &[0]);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn two_owners_in_one_generation_are_found() {
        let mut sample = Sample::new();
        sample.group();
        sync(&mut sample, 1, 1, &[0, 1]);
        sync(&mut sample, 2, 1, &[1]);
        assert!(check(&sample).unwrap_err().contains("two owners"));
    }

    #[test]
    fn a_generation_that_comes_back_is_found() {
        let mut sample = Sample::new();
        sample.group();
        sync(&mut sample, 1, 4, &[0]);
        sync(&mut sample, 2, 3, &[1]);
        assert!(check(&sample).unwrap_err().contains("came back"));
    }
}

//! Checker 25: the final reads through every node are equal.

use super::HistoryChecker;
use crate::facts::Facts;
use crate::history::{History, Seen};

/// See the module.
#[derive(Debug, Default)]
pub struct FinalReads {
    looked: u64,
}

impl HistoryChecker for FinalReads {
    fn number(&self) -> u8 {
        25
    }

    fn name(&self) -> &'static str {
        "final reads from every node are equal"
    }

    fn looked(&self) -> u64 {
        self.looked
    }

    fn check(&mut self, history: &History, _facts: &Facts) -> Result<(), String> {
        for (&(topic, partition), nodes) in &history.finals {
            let Some((&first, expected)) = nodes.first_key_value() else { continue };
            for (&node, list) in nodes {
                self.looked += 1;
                let shrinks = history.may_shrink(topic);
                if let Some(fault) = difference(expected, list, shrinks) {
                    let name = &history.topic(topic).name;
                    return Err(format!(
                        "partition {partition} of {name} differs between nodes {first} and {node} \
                         at {fault}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Where two reads differ. The later one may have lost a prefix by retention.
fn difference(one: &[(u64, Seen)], other: &[(u64, Seen)], shrinks: bool) -> Option<String> {
    let from = other.first().map_or(u64::MAX, |(offset, _)| *offset);
    let skipped = if shrinks { one.partition_point(|(offset, _)| *offset < from) } else { 0 };
    let one = &one[skipped..];
    let at = one.iter().zip(other).position(|(one, other)| one != other);
    let at = at.or((one.len() != other.len()).then(|| one.len().min(other.len())))?;
    Some(format!("{:?} and {:?}", one.get(at), other.get(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::*;

    fn check(sample: &Sample) -> Result<(), String> {
        let mut checker = FinalReads::default();
        let result = checker.check(&sample.history, &Facts::default());
        assert!(result.is_err() || checker.looked() > 0, "it looked at nothing");
        result
    }

    #[test]
    fn equal_reads_are_equal() {
        let mut sample = Sample::new();
        sample.finals(&[&[(0, 0), (1, 1)], &[(0, 0), (1, 1)]]);
        assert_eq!(check(&sample), Ok(()));
    }

    #[test]
    fn a_shorter_a_longer_and_another_read_are_found() {
        let others: [&[(u64, u32)]; 4] =
            [&[(0, 0)], &[(0, 0), (1, 1), (2, 2)], &[(0, 0), (1, 2)], &[(1, 1)]];
        for other in others {
            let mut sample = Sample::new();
            sample.finals(&[&[(0, 0), (1, 1)], other]);
            assert!(check(&sample).unwrap_err().contains("nodes 0 and 1"), "{other:?}");
        }
    }

    #[test]
    fn retention_between_two_reads_takes_a_prefix() {
        let mut sample = Sample::new();
        sample.history.topics[0].retention = true;
        sample.finals(&[&[(0, 0), (1, 1)], &[(1, 1)]]);
        assert_eq!(check(&sample), Ok(()));
        sample.finals(&[&[(0, 0), (1, 1)], &[(0, 0)]]);
        assert!(check(&sample).is_err());
    }
}

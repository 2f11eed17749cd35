//! Which partition a balanced send goes to.
//!
//! A batch that a client sends again under its number must meet the lane that remembers it, on any
//! connection, shard and node. So the choice follows from what is sent and not from what was sent
//! before: consecutive numbers go round the partitions, and each round starts where a hash says,
//! so that a client which uses every second number for something else still reaches all of them.
//!
//! Some clients repeat the number of the request before with another batch. They get a new
//! identity with every connection, so the next turn of the topic serves them.
//!
//! While partitions are added or removed a repeated batch may reach another partition.

use borzoi_types::{ClientId, PartitionId, RequestNumber};

/// The last balanced send of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Balanced {
    request: RequestNumber,
    hash: u64,
    turn: u64,
}

/// The next balanced send of a connection, its batch identified by `hash`; `of_topic` takes the
/// topic's next turn.
pub(crate) fn next(
    last: Option<Balanced>,
    request: RequestNumber,
    hash: u64,
    of_topic: impl FnOnce() -> u64,
) -> Balanced {
    let turn = match last {
        Some(last) if last.request == request && last.hash == hash => last.turn,
        Some(last) if last.request == request => of_topic(),
        _ => request.0,
    };
    Balanced { request, hash, turn }
}

impl Balanced {
    /// The partition, if there are any.
    pub(crate) fn partition(self, client: ClientId, partitions: u32) -> Option<PartitionId> {
        let count = u64::from(partitions);
        let round = self.turn.checked_div(count)?;
        let mut seed = client.0.to_le_bytes().to_vec();
        seed.extend_from_slice(&round.to_le_bytes());
        let start = borzoi_types::checksum::xxh3_64(&seed) % count;
        let partition = (self.turn % count + start) % count;
        u32::try_from(partition).ok().map(PartitionId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(turn: u64, partitions: u32) -> u32 {
        let balanced = next(None, RequestNumber(turn), 1, || 0);
        balanced.partition(ClientId(5), partitions).unwrap().0
    }

    #[test]
    fn consecutive_numbers_go_round_all_partitions() {
        for round in 0..50 {
            let mut reached: Vec<u32> = (0..4).map(|at| partition(round * 4 + at, 4)).collect();
            reached.sort_unstable();
            assert_eq!(reached, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn every_second_number_reaches_every_partition() {
        let mut reached = [0; 2];
        for at in 0..1_000 {
            reached[partition(at * 2, 2) as usize] += 1;
        }
        assert!(reached.iter().all(|count| (400..600).contains(count)), "{reached:?}");
    }

    #[test]
    fn a_batch_sent_again_goes_where_it_went_and_another_under_its_number_goes_on() {
        let first = next(None, RequestNumber(7), 1, || 40);
        let other = next(Some(first), RequestNumber(7), 2, || 40);
        assert_eq!(next(Some(first), RequestNumber(7), 1, || 41), first);
        assert_eq!((first.turn, other.turn), (7, 40));
        assert_eq!(next(Some(other), RequestNumber(7), 2, || 41), other);
        let later = next(Some(other), RequestNumber(9), 3, || 41);
        assert_eq!(next(None, RequestNumber(9), 3, || 42), later, "on any connection");
    }

    #[test]
    fn no_partitions_are_no_choice() {
        assert_eq!(next(None, RequestNumber(1), 1, || 0).partition(ClientId(1), 0), None);
    }
}

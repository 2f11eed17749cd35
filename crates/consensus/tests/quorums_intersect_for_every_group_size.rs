//! Every quorum intersection the protocol relies on, by enumeration of all subsets for groups of
//! one to seven.

use borzoi_consensus::Quorums;

/// Every subset of `n` members with exactly `size` of them, as bits.
fn subsets(n: u8, size: u8) -> Vec<u32> {
    (0..1u32 << n).filter(|set| set.count_ones() == u32::from(size)).collect()
}

#[test]
fn quorums_intersect_for_every_group_size() {
    for n in 1..=7u8 {
        let Quorums { replication, view_change, nack } = Quorums::of(n);
        assert!(replication >= 1 && replication <= n && view_change <= n && nack <= n);
        for committed in subsets(n, replication) {
            // A new primary sees every committed operation.
            for seen in subsets(n, view_change) {
                assert_ne!(committed & seen, 0, "n = {n}: a view change misses a commit");
                // Who has not left the old view cannot commit in it any more.
                let stayed = !seen & ((1 << n) - 1);
                assert!(stayed.count_ones() < u32::from(replication), "n = {n}");
            }
            // What a nack quorum never acknowledged has not committed.
            for nacks in subsets(n, nack) {
                assert_ne!(committed & nacks, 0, "n = {n}: a committed operation is discarded");
            }
        }
    }
}

#[test]
fn quorums_are_those_of_the_architecture() {
    let expected = [(1, 1, 1), (2, 2, 1), (2, 2, 2), (2, 3, 3), (3, 3, 3), (3, 4, 4), (3, 5, 5)];
    for (n, (replication, view_change, nack)) in (1..=7).zip(expected) {
        assert_eq!(Quorums::of(n), Quorums { replication, view_change, nack }, "n = {n}");
    }
}

#[test]
fn a_group_goes_on_without_what_its_quorums_do_not_need() {
    for n in 3..=7u8 {
        let quorums = Quorums::of(n);
        assert!(quorums.view_change < n, "n = {n}: one may be down");
    }
}

//! The decision table of recovery: what becomes of one record, as a pure function.
//!
//! The table in words stands in `docs/internals/recovery.md`; the letters are the same.

/// Everything the decision depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Situation {
    /// The record's group is at or below the synced mark S of its journal.
    pub below_mark: bool,
    /// The record is whole and its checksums hold.
    pub intact: bool,
    /// An intact trailer names it.
    pub named: bool,
    /// An intact trailer of a later group exists.
    pub followed: bool,
    /// The newest intact checkpoint of its log contains it; known only of what is named.
    pub covered: bool,
    /// The journal has already been cut at an earlier record.
    pub after_cut: bool,
    /// The node is the only one of its cluster.
    pub solo: bool,
    /// Boot, device and inode are those of the generation and no write had failed.
    pub trusted: bool,
}

/// What becomes of the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// A: kept, and proved to have been durable.
    Proved,
    /// B: kept; it may have been acknowledged at level `replicated`.
    Kept,
    /// C: damaged, nobody can repair it: the node does not start.
    Refused,
    /// D: damaged and known by name: repaired from peers.
    Faulty,
    /// E: damaged and nameless: every log of the journal must learn from its peers.
    FaultyNameless,
    /// F: never durable: the journal is cut here.
    Torn,
    /// G: named and not readable, perhaps once durable: repaired, never a nack.
    Unknown,
    /// H: as G on a solo node: the journal is cut here, the bytes are set aside.
    CutAside,
    /// I: behind a cut.
    Void,
    /// J: below the mark and behind a cut: the journal contradicts itself, the node does not
    /// start.
    Contradiction,
    /// K: damaged, and a checkpoint contains what it said: nobody needs it any more.
    Covered,
}

impl Verdict {
    /// The letter in the table.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Proved => 'A',
            Self::Kept => 'B',
            Self::Refused => 'C',
            Self::Faulty => 'D',
            Self::FaultyNameless => 'E',
            Self::Torn => 'F',
            Self::Unknown => 'G',
            Self::CutAside => 'H',
            Self::Void => 'I',
            Self::Contradiction => 'J',
            Self::Covered => 'K',
        }
    }

    /// Whether everything behind the record is void.
    #[must_use]
    pub const fn cuts(self) -> bool {
        matches!(self, Self::Torn | Self::CutAside)
    }
}

/// A verdict, and whether the situation proves that written sectors have been lost although the
/// machine did not stop, so that the tail cannot be trusted to be complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What becomes of the record.
    pub verdict: Verdict,
    /// The tail must not be trusted.
    pub distrust: bool,
}

/// Decides about one record.
#[must_use]
pub fn decide(situation: Situation) -> Decision {
    let Situation { below_mark, intact, named, followed, covered, after_cut, solo, trusted } =
        situation;
    let verdict = match (after_cut, below_mark, intact) {
        (true, true, _) => Verdict::Contradiction,
        (true, false, _) => Verdict::Void,
        (false, true, true) => Verdict::Proved,
        (false, false, true) => Verdict::Kept,
        (false, true, false) if named && covered => Verdict::Covered,
        (false, true, false) => match (solo, named) {
            (true, _) => Verdict::Refused,
            (false, true) => Verdict::Faulty,
            (false, false) => Verdict::FaultyNameless,
        },
        (false, false, false) => match (solo, named) {
            (_, false) => Verdict::Torn,
            (false, true) => Verdict::Unknown,
            (true, true) => Verdict::CutAside,
        },
    };
    // Writes are made in order, so on a machine that kept running only the last one can be
    // incomplete, and its trailer is its last sector.
    let distrust = trusted && !below_mark && !intact && (named || followed);
    assert!(!verdict.cuts() || (!below_mark && !intact), "only unproved bad records cut");
    assert!(!distrust || trusted, "trust can only be lowered");
    assert!(verdict != Verdict::Covered || (!intact && below_mark), "what is intact is kept");
    Decision { verdict, distrust }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Situation> {
        let bit = |bits: u32, n: u32| bits >> n & 1 == 1;
        let situation = |bits: u32| Situation {
            below_mark: bit(bits, 0),
            intact: bit(bits, 1),
            named: bit(bits, 2),
            followed: bit(bits, 3),
            after_cut: bit(bits, 4),
            solo: bit(bits, 5),
            trusted: bit(bits, 6),
            covered: bit(bits, 7),
        };
        (0..256).map(situation).collect()
    }

    /// The table of `docs/internals/recovery.md`, row by row: S position, record, named,
    /// checkpoint, cut, nodes; `-` means either. Every combination matches exactly one row.
    const ROWS: &[(&str, char)] = &[
        ("below ok  -   -         whole -   ", 'A'),
        ("above ok  -   -         whole -   ", 'B'),
        ("below bad no  -         whole solo", 'C'),
        ("below bad yes behind    whole solo", 'C'),
        ("below bad yes behind    whole many", 'D'),
        ("below bad no  -         whole many", 'E'),
        ("above bad no  -         whole -   ", 'F'),
        ("above bad yes -         whole many", 'G'),
        ("above bad yes -         whole solo", 'H'),
        ("above -   -   -         cut   -   ", 'I'),
        ("below -   -   -         cut   -   ", 'J'),
        ("below bad yes contains  whole -   ", 'K'),
    ];

    fn matches(row: &str, s: Situation) -> bool {
        let words: Vec<&str> = row.split_whitespace().collect();
        let actual = [
            if s.below_mark { "below" } else { "above" },
            if s.intact { "ok" } else { "bad" },
            if s.named { "yes" } else { "no" },
            if s.covered { "contains" } else { "behind" },
            if s.after_cut { "cut" } else { "whole" },
            if s.solo { "solo" } else { "many" },
        ];
        words.iter().zip(actual).all(|(word, actual)| *word == "-" || *word == actual)
    }

    #[test]
    fn every_combination_matches_exactly_one_row_of_the_documented_table() {
        for situation in all() {
            let rows: Vec<char> =
                ROWS.iter().filter(|(row, _)| matches(row, situation)).map(|(_, l)| *l).collect();
            assert_eq!(rows, [decide(situation).verdict.letter()], "{situation:?}");
        }
    }

    #[test]
    fn the_document_shows_the_same_table() {
        let text = include_str!("../../../../docs/internals/recovery.md");
        for (row, letter) in ROWS {
            let words: Vec<&str> = row.split_whitespace().collect();
            let line = format!("| {letter} | {} |", words.join(" | "));
            assert!(text.contains(&line), "missing: {line}");
        }
    }

    #[test]
    fn nothing_durable_is_ever_cut_or_nacked_and_nothing_intact_is_lost_before_a_cut() {
        for situation in all() {
            let verdict = decide(situation).verdict;
            if situation.below_mark {
                assert!(!verdict.cuts() && verdict != Verdict::Void, "{situation:?}");
            }
            if situation.intact && !situation.after_cut {
                assert!(matches!(verdict, Verdict::Proved | Verdict::Kept), "{situation:?}");
            }
            if verdict == Verdict::Covered {
                assert!(situation.covered && situation.named, "{situation:?}");
            }
            if verdict == Verdict::Refused {
                assert!(situation.solo && situation.below_mark, "{situation:?}");
            }
        }
    }

    #[test]
    fn trust_is_lowered_only_by_evidence() {
        for situation in all() {
            let decision = decide(situation);
            if decision.distrust {
                assert!(!situation.intact && !situation.below_mark, "{situation:?}");
                assert!(situation.named || situation.followed, "{situation:?}");
            }
        }
    }
}

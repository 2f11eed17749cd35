//! The list of the checkers of what clients were told; each lives in a `client_*.rs` beside this.

use super::HistoryChecker;
use super::client_answers::Answers;
use super::client_committed::Committed;
use super::client_drain::Drain;
use super::client_duplicates::Duplicates;
use super::client_final_reads::FinalReads;
use super::client_lost::Lost;
use super::client_offsets::OneMessage;
use super::client_open::Open;
use super::client_order::Order;
use super::client_owners::Owners;
use super::client_phantom::Phantom;
use super::client_polls::Polls;
use super::client_reads::Reads;
use super::client_retention::Retention;

/// All of them, by number.
#[must_use]
pub fn all() -> Vec<Box<dyn HistoryChecker>> {
    vec![
        Box::<Lost>::default(),
        Box::<Phantom>::default(),
        Box::<OneMessage>::default(),
        Box::<Duplicates>::default(),
        Box::<Polls>::default(),
        Box::<Order>::default(),
        Box::<Committed>::default(),
        Box::<Owners>::default(),
        Box::<Reads>::default(),
        Box::<Open>::default(),
        Box::<FinalReads>::default(),
        Box::<Drain>::default(),
        Box::<Retention>::default(),
        Box::<Answers>::default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn the_checkers_of_clients_are_15_to_28_and_each_has_a_name() {
        let numbers: Vec<u8> = all().iter().map(|checker| checker.number()).collect();
        assert_eq!(numbers, (15..=28).collect::<Vec<u8>>());
        assert!(all().iter().all(|checker| !checker.name().is_empty()));
    }
}

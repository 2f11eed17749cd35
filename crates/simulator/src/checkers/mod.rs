//! What must hold, one checker a file. Each counts how often it looked, because a checker that
//! never looks proves nothing.

pub mod client;

use crate::facts::Facts;
use crate::history::History;

/// A checker of what clients were told; runs over the history of a finished run.
pub trait HistoryChecker {
    /// Its number in the list of checkers.
    fn number(&self) -> u8;

    /// Its name: what must hold, as a short phrase.
    fn name(&self) -> &'static str;

    /// Looks at the whole history.
    ///
    /// # Errors
    /// What was broken, with the calls concerned, as a sentence.
    fn check(&mut self, history: &History, facts: &Facts) -> Result<(), String>;

    /// How many things it has compared.
    fn looked(&self) -> u64;
}

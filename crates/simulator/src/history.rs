//! What clients asked and were told, with simulated time: the input of the client checkers.

use borzoi_types::Mono;

/// One call of one client, numbered by the client; unique together with the client's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// What happened to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallEvent {
    /// The client has begun it. What it asks, for the reader.
    Invoked(String),
    /// An answer has come. What it says, for the reader.
    Returned(String),
    /// The client has given up on an answer: it may have happened, or happen later.
    Abandoned,
}

/// One line of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// True simulated time.
    pub at: Mono,
    /// Which client.
    pub client: usize,
    /// Which of its calls.
    pub call: CallId,
    /// What happened.
    pub event: CallEvent,
}

/// Everything clients saw, in order of simulated time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    entries: Vec<Entry>,
    /// Sends that were confirmed.
    pub confirmed_sends: u64,
}

impl History {
    /// Adds a line. Time never goes back.
    pub fn push(&mut self, entry: Entry) {
        let last = self.entries.last().map_or(Mono(0), |last| last.at);
        assert!(entry.at >= last, "history is written in order");
        self.entries.push(entry);
    }

    /// All lines.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

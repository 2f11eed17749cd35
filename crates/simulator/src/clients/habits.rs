//! How a client behaves: several generations of published clients, drawn per client.

use crate::random::Dice;
use borzoi_types::Duration;

/// What a client does about numbers, identities and lost connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generation {
    /// Partition requests repeat the number of the one before; a new identity for each connection;
    /// what was under way is given up, or sent again as something new.
    Plain,
    /// Every request has a number of its own; a new identity for each connection; what was under
    /// way is given up, or sent again as something new.
    Numbered,
    /// Keeps its identity; what was under way is sent again with the same number and bytes to
    /// whatever node it reaches next.
    Resending,
    /// The same, with this many requests under way at once.
    Pipelined(usize),
}

impl Generation {
    /// Whether requests survive the loss of a connection under their identity and number.
    #[must_use]
    pub const fn keeps_identity(self) -> bool {
        matches!(self, Self::Resending | Self::Pipelined(_))
    }

    /// Requests that may be under way at once.
    #[must_use]
    pub const fn depth(self) -> usize {
        match self {
            Self::Pipelined(depth) => depth,
            _ => 1,
        }
    }
}

/// Everything that is drawn about one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Habits {
    /// See [`Generation`].
    pub generation: Generation,
    /// Silence after which a connection is given up.
    pub patience: Duration,
    /// Pause before a request that was answered 57 or 58 is sent again.
    pub retry_after: Duration,
    /// Shortest and longest pause before a new connection.
    pub reconnect: (Duration, Duration),
    /// Longest time for one operation; after it the client gives up.
    pub budget: Duration,
    /// Pause between operations, at most.
    pub think: Duration,
    /// Time without a request after which it pings.
    pub ping_every: Duration,
    /// Percent of new connections that go to another node.
    pub roams: u64,
    /// Percent of logins that use an access token when there is one.
    pub tokens: u64,
    /// Percent of requests between which it closes its connection for no reason, in hundredths.
    pub hangs_up: u64,
}

impl Habits {
    /// The habits of a client.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Self {
        let generation = match dice.below(6) {
            0 => Generation::Plain,
            1 => Generation::Numbered,
            2..=3 => Generation::Resending,
            _ => Generation::Pipelined(dice.index(7) + 2),
        };
        let millis = Duration::from_millis;
        let quick = *dice.pick(&[0, 5, 50, 250]);
        Self {
            generation,
            patience: millis(dice.between(1_000, 20_000)),
            retry_after: millis(dice.between(10, 250)),
            reconnect: (millis(dice.between(1, 100)), millis(dice.between(100, 2_000))),
            budget: millis(dice.between(30_000, 120_000)),
            think: millis(quick),
            ping_every: millis(dice.between(2_000, 15_000)),
            roams: *dice.pick(&[0, 30, 100]),
            tokens: *dice.pick(&[0, 30, 100]),
            hangs_up: *dice.pick(&[0, 0, 20, 200]),
        }
    }

    /// Habits of a client whose every operation must come to a known end.
    #[must_use]
    pub fn patient(mut self) -> Self {
        if !self.generation.keeps_identity() {
            self.generation = Generation::Resending;
        }
        self.budget = Duration::from_secs(3_600);
        self
    }

    /// Habits of a client that asks one thing at a time.
    #[must_use]
    pub const fn one_at_a_time(mut self) -> Self {
        if let Generation::Pipelined(_) = self.generation {
            self.generation = Generation::Resending;
        }
        self
    }
}

//! Deliberate faults, to prove that the simulator would find them.
//!
//! Each is one line in the core that asks [`is`]. Without the cargo feature `planted-bugs`, which
//! nothing that is released has, `is` is a constant `false` and the line is gone.

macro_rules! bugs {
    ($( $(#[$meta:meta])* $name:ident = $text:literal, )+) => {
        /// A fault that can be switched on.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Bug { $( $(#[$meta])* $name, )+ }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// Its name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => $text, )+ }
            }
        }
    };
}

bugs! {
    /// Level `persisted` is said to hold when the record is only written.
    AcknowledgeBeforeSync = "acknowledge-before-sync",
    /// A prepare counts before the reservation that it needs is durable.
    ForgetReservation = "forget-reservation",
    /// A start makes no offset jump.
    SkipJump = "skip-jump",
    /// Views are believed to be durable when they are written.
    ViewBeforeSync = "view-before-sync",
    /// The windows of sends are left out of checkpoints.
    DedupNotInCheckpoint = "dedup-not-in-checkpoint",
    /// A repeated send is executed again.
    SkipDedup = "skip-dedup",
    /// A send before a purge may be repeated behind it.
    PurgeForgetsSends = "purge-forgets-sends",
    /// An answer leaves twice.
    ReplyTwice = "reply-twice",
    /// The lane ignores a purge.
    KeepPurged = "keep-purged",
    /// The next poll starts one message too far.
    SkipMessage = "skip-message",
    /// A send is confirmed one offset too far.
    WrongConfirmation = "wrong-confirmation",
    /// An automatic store goes beyond what was delivered.
    CommitBeyondDelivered = "commit-beyond-delivered",
    /// A copy of metadata says no without asking.
    NoFromACopy = "no-from-a-copy",
    /// Every member of a group is told that it owns everything.
    TwoOwners = "two-owners",
    /// Requests whose time is up while they are parked vanish.
    LoseParked = "lose-parked",
    /// A partition key is given twice.
    ReuseKey = "reuse-key",
    /// A deletion of a stored offset is dropped by the log: it stays.
    KeepOffset = "keep-offset",
}

#[cfg(feature = "planted-bugs")]
static PLANTED: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// Switches one fault on, or all off, for the whole process.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    let number = bug.map_or(0, |bug| bug as usize + 1);
    PLANTED.store(number, core::sync::atomic::Ordering::SeqCst);
}

/// Whether a fault is switched on.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::Relaxed) == bug as usize + 1
}

/// Whether a fault is switched on: never.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
#[inline(always)]
pub const fn is(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Bug::ALL.len());
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn nothing_is_planted_without_the_feature() {
        const { assert!(!is(Bug::AcknowledgeBeforeSync)) };
        assert!(Bug::ALL.iter().all(|bug| !is(*bug)));
    }
}

//! Exactly-once windows of sends: what a lane remembers per session (architecture, section 9).
//!
//! A send is a duplicate only if session, number, hash *and* partition equal a remembered entry:
//! published clients repeat numbers for different sends, and one batch may be sent to two
//! partitions. The window is a set of the last [`SENDS_PER_SESSION_MAX`] committed sends, in commit
//! order, not a high-water mark. Part of the lane's replicated state and of its checkpoints.
//!
//! A purge moves the entries of a partition to its new key.
//!
//! Invariants: `floor <= highest`; entries stand in commit order; equal logs give equal windows.

use crate::lane::api::SendIdentity;
use borzoi_types::planted::{self, Bug};
use borzoi_types::{Offset, Op, PartitionKey, RequestNumber, SessionId};
use bytes::{Buf, BufMut, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// Committed sends remembered per session and lane: more than any published client keeps in
/// flight, small enough that every session may fill its window.
pub const SENDS_PER_SESSION_MAX: usize = 256;

const ENTRY_BYTES: usize = 40;

/// A remembered send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sent {
    request: RequestNumber,
    hash: u64,
    key: PartitionKey,
    base_offset: Offset,
    op: Op,
}

/// What an arriving send is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendClass {
    /// Execute it.
    New,
    /// It was executed: the original answer.
    Duplicate {
        /// Offset of its first message.
        base_offset: Offset,
        /// Operation that carried it.
        op: Op,
    },
    /// Older than the window remembers: answered with 59, never executed.
    TooOld,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Window {
    sent: VecDeque<Sent>,
    /// Highest number ever committed.
    highest: RequestNumber,
    /// Highest number that was forgotten.
    floor: RequestNumber,
}

/// The windows of all sessions of one lane.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendWindows {
    sessions: BTreeMap<SessionId, Window>,
}

impl SendWindows {
    /// The sessions remembered, in rising order.
    pub fn ids(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.keys().copied()
    }

    /// Sessions remembered.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// What a send that arrives now is, judged by committed sends.
    #[must_use]
    pub fn classify(&self, identity: &SendIdentity, key: PartitionKey) -> SendClass {
        let Some(window) = self.sessions.get(&identity.session) else {
            return SendClass::New;
        };
        if planted::is(Bug::SkipDedup) {
            return SendClass::New;
        }
        assert!(window.floor <= window.highest);
        if identity.request > window.highest {
            return SendClass::New;
        }
        let found = window.sent.iter().rev().find(|sent| {
            sent.hash == identity.hash && sent.request == identity.request && sent.key == key
        });
        match found {
            Some(sent) => SendClass::Duplicate { base_offset: sent.base_offset, op: sent.op },
            None if identity.request >= window.highest || identity.request > window.floor => {
                SendClass::New
            }
            None => SendClass::TooOld,
        }
    }

    /// Remembers a committed send.
    pub fn record(
        &mut self,
        identity: &SendIdentity,
        key: PartitionKey,
        base_offset: Offset,
        op: Op,
    ) {
        let window = self.sessions.entry(identity.session).or_default();
        if window.sent.len() == SENDS_PER_SESSION_MAX {
            let forgotten = window.sent.pop_front().expect("it is full");
            window.floor = window.floor.max(forgotten.request);
        }
        let request = identity.request;
        window.sent.push_back(Sent { request, hash: identity.hash, key, base_offset, op });
        window.highest = window.highest.max(request);
        assert!(window.sent.len() <= SENDS_PER_SESSION_MAX);
        assert!(window.floor <= window.highest);
    }

    /// Whether anything of this session is remembered.
    #[must_use]
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// A purge gives a partition a new key. What was sent to the old one stays sent: a repeated
    /// batch must not come back behind the purge that removed it.
    pub fn purged(&mut self, key: PartitionKey, new_key: PartitionKey) {
        let sent = self.sessions.values_mut().flat_map(|window| &mut window.sent);
        for sent in sent.filter(|sent| sent.key == key) {
            sent.key = new_key;
        }
    }

    /// Forgets a session that has ended.
    pub fn expire(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Appends the checkpoint form: u32 sessions, then per session u64 id, u64 highest, u64 floor,
    /// u32 entries, then per entry u64 request, u64 hash, u64 key, u64 base offset, u64 op.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(u32::try_from(self.sessions.len()).expect("bounded by the session table"));
        for (session, window) in &self.sessions {
            out.put_u64_le(session.0);
            out.put_u64_le(window.highest.0);
            out.put_u64_le(window.floor.0);
            out.put_u32_le(u32::try_from(window.sent.len()).expect("bounded by the window"));
            for sent in &window.sent {
                out.put_u64_le(sent.request.0);
                out.put_u64_le(sent.hash);
                out.put_u64_le(sent.key.0);
                out.put_u64_le(sent.base_offset.0);
                out.put_u64_le(sent.op.0);
            }
        }
    }

    /// Reads what [`Self::encode`] wrote and leaves `input` after it; none if it is malformed.
    #[must_use]
    pub fn decode(input: &mut impl Buf) -> Option<Self> {
        let mut sessions = BTreeMap::new();
        for _ in 0..input.try_get_u32_le().ok()? {
            let session = SessionId(input.try_get_u64_le().ok()?);
            let highest = RequestNumber(input.try_get_u64_le().ok()?);
            let floor = RequestNumber(input.try_get_u64_le().ok()?);
            let entries = input.try_get_u32_le().ok()? as usize;
            if entries > SENDS_PER_SESSION_MAX
                || input.remaining() < entries * ENTRY_BYTES
                || floor > highest
            {
                return None;
            }
            let mut sent = VecDeque::with_capacity(entries);
            for _ in 0..entries {
                sent.push_back(Sent {
                    request: RequestNumber(input.get_u64_le()),
                    hash: input.get_u64_le(),
                    key: PartitionKey(input.get_u64_le()),
                    base_offset: Offset(input.get_u64_le()),
                    op: Op(input.get_u64_le()),
                });
            }
            sessions.insert(session, Window { sent, highest, floor });
        }
        Some(Self { sessions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PartitionKey = PartitionKey(3);

    fn identity(request: u64, hash: u64) -> SendIdentity {
        SendIdentity { session: SessionId(1), request: RequestNumber(request), hash }
    }

    #[test]
    fn a_resend_gets_the_original_offsets_and_another_batch_under_the_same_number_is_executed() {
        let mut windows = SendWindows::default();
        windows.record(&identity(5, 55), KEY, Offset(10), Op(2));
        let original = SendClass::Duplicate { base_offset: Offset(10), op: Op(2) };
        assert_eq!(windows.classify(&identity(5, 55), KEY), original);
        assert_eq!(windows.classify(&identity(5, 56), KEY), SendClass::New);
        assert_eq!(windows.classify(&identity(5, 55), PartitionKey(4)), SendClass::New);
        assert_eq!(windows.classify(&identity(6, 55), KEY), SendClass::New);
        assert_eq!(windows.classify(&identity(3, 1), KEY), SendClass::New, "above the floor");
    }

    #[test]
    fn a_number_at_or_below_the_floor_is_too_old_but_a_repeated_highest_number_is_executed() {
        let mut windows = SendWindows::default();
        for n in 1..=SENDS_PER_SESSION_MAX as u64 + 10 {
            windows.record(&identity(n, n), KEY, Offset(n), Op(n));
        }
        assert_eq!(windows.classify(&identity(10, 10), KEY), SendClass::TooOld);
        assert_eq!(windows.classify(&identity(11, 99), KEY), SendClass::New);
        let mut repeated = SendWindows::default();
        for n in 0..2 * SENDS_PER_SESSION_MAX as u64 {
            repeated.record(&identity(7, n), KEY, Offset(n), Op(n + 1));
        }
        assert_eq!(repeated.classify(&identity(7, 5_000), KEY), SendClass::New);
        assert_eq!(repeated.classify(&identity(6, 5_000), KEY), SendClass::TooOld);
    }

    #[test]
    fn windows_survive_a_checkpoint_and_an_expired_session_is_forgotten() {
        let mut windows = SendWindows::default();
        for n in 1..=300 {
            let session = SessionId(n % 3);
            let identity = SendIdentity { session, request: RequestNumber(n), hash: n * 7 };
            windows.record(&identity, KEY, Offset(n), Op(n));
        }
        let mut bytes = BytesMut::new();
        windows.encode(&mut bytes);
        let mut input = bytes.clone().freeze();
        assert_eq!(SendWindows::decode(&mut input), Some(windows.clone()));
        assert_eq!(input.remaining(), 0);
        for cut in 0..bytes.len().min(200) {
            assert_eq!(SendWindows::decode(&mut bytes.clone().freeze().slice(..cut)), None);
        }
        windows.expire(SessionId(1));
        assert_eq!(windows.sessions(), 2);
    }

    #[test]
    fn what_was_sent_before_a_purge_is_not_sent_again_behind_it() {
        let mut windows = SendWindows::default();
        windows.record(&identity(5, 55), KEY, Offset(10), Op(2));
        windows.purged(KEY, PartitionKey(KEY.0 + 1));
        let answer = SendClass::Duplicate { base_offset: Offset(10), op: Op(2) };
        assert_eq!(windows.classify(&identity(5, 55), PartitionKey(KEY.0 + 1)), answer);
        assert_eq!(windows.classify(&identity(5, 55), KEY), SendClass::New);
    }
}

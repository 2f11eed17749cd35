//! Client sessions and the memory that makes requests execute at most once (architecture, section
//! 9; wire protocol, sections 4.3 and 4.5).
//!
//! Invariants:
//! - the table never exceeds [`SESSIONS_MAX`] and never forgets a client that is connected: a full
//!   table refuses logins;
//! - a session number is the operation that registered it, so it only rises;
//! - the window of a client is a set of request numbers: one that is in it is a duplicate, one at
//!   or below the floor is answered 59, any other executes.

use crate::codec::{Codec, DecodeError, Input, codec_struct};
use crate::identity::{ConnectionStamp, GroupKey, SessionRef, TokenHash, UserKey};
use crate::outcome::StoredReply;
use borzoi_types::limits::{SESSION_REPLIES_BYTES_MAX, SESSION_WINDOW_REQUESTS, SESSIONS_MAX};
use borzoi_types::{ClientId, Micros, RequestNumber, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// One remembered request.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Remembered {
    /// Request checksum of the frame; 0 when the client sent none.
    checksum: u128,
    /// The encoded [`StoredReply`]; absent when the replies together grew too large.
    reply: Option<Vec<u8>>,
}

codec_struct!(Remembered { checksum, reply });

/// What the window knows about a request number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remembrance {
    /// Nothing: it is to be executed.
    New,
    /// It was executed; this is what it came to.
    Known(StoredReply),
    /// It was executed, or is too old to tell; the reply is gone (59).
    Gone,
}

/// The request numbers of a client that were executed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Numbers at or below it that are not in the set are too old to tell. None at first.
    floor: Option<RequestNumber>,
    requests: BTreeMap<RequestNumber, Remembered>,
    /// Bytes of the encoded replies.
    bytes: usize,
}

impl Window {
    /// What is known about a request. Another request under a known number (both checksums there
    /// and different) gets no reply that is not its own.
    #[must_use]
    pub fn look_up(&self, request: RequestNumber, checksum: u128) -> Remembrance {
        let Some(known) = self.requests.get(&request) else {
            let too_old = self.floor.is_some_and(|floor| request <= floor);
            return if too_old { Remembrance::Gone } else { Remembrance::New };
        };
        let differs = known.checksum != checksum && known.checksum != 0 && checksum != 0;
        if differs {
            return Remembrance::Gone;
        }
        let reply = known.reply.as_deref().and_then(|bytes| {
            let mut input = Input::new(bytes);
            StoredReply::get(&mut input).ok()
        });
        reply.map_or(Remembrance::Gone, Remembrance::Known)
    }

    /// Remembers an executed request.
    fn remember(&mut self, request: RequestNumber, checksum: u128, reply: &StoredReply) {
        let mut bytes = Vec::new();
        reply.put(&mut bytes);
        self.bytes += bytes.len();
        let before = self.requests.insert(request, Remembered { checksum, reply: Some(bytes) });
        assert!(before.is_none(), "a known request is not executed again");
        while self.requests.len() > SESSION_WINDOW_REQUESTS {
            let (oldest, forgotten) = self.requests.pop_first().expect("longer than the window");
            self.bytes -= forgotten.reply.map_or(0, |bytes| bytes.len());
            self.floor = self.floor.max(Some(oldest));
        }
        self.shed_replies();
    }

    /// Gives up the oldest replies while there are too many bytes; the numbers stay known.
    fn shed_replies(&mut self) {
        for remembered in self.requests.values_mut() {
            if self.bytes <= SESSION_REPLIES_BYTES_MAX {
                return;
            }
            if let Some(bytes) = remembered.reply.take() {
                self.bytes -= bytes.len();
            }
        }
    }
}

impl Codec for Window {
    fn put(&self, out: &mut Vec<u8>) {
        self.floor.put(out);
        self.requests.put(out);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let floor = Codec::get(input)?;
        let requests: BTreeMap<RequestNumber, Remembered> = Codec::get(input)?;
        let replies = requests.values().filter_map(|known| known.reply.as_ref());
        let bytes = replies.map(Vec::len).sum();
        Ok(Self { floor, requests, bytes })
    }
}

/// One client's session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The identity the client chose.
    pub client: ClientId,
    /// Its present session number.
    pub session: SessionId,
    /// Its first session number, kept when it signs in anew: lanes remember its sends under this
    /// one, so a resend after a reconnect is recognised.
    pub first: SessionId,
    /// Whose it is; never changes.
    pub user: UserKey,
    /// The token it signed in with; none for a password.
    pub token: Option<TokenHash>,
    /// Where it is connected; none when the connection was lost.
    pub connection: Option<ConnectionStamp>,
    /// When it signed in, or lost its connection.
    pub since: Micros,
    /// Groups it is a member of.
    pub groups: BTreeSet<GroupKey>,
    /// What it asked before.
    pub window: Window,
}

codec_struct!(Session { client, session, first, user, token, connection, since, groups, window });

impl Session {
    /// Client and number.
    #[must_use]
    pub const fn reference(&self) -> SessionRef {
        SessionRef { client: self.client, session: self.session }
    }
}

/// What is to be done with a client's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Execute it as this user.
    Execute(UserKey),
    /// Answer what it came to before.
    Stored(StoredReply),
    /// Answer 59: it was executed, its reply is gone.
    AlreadyApplied,
    /// The client has no session (eviction 1).
    NoSession,
    /// The client has a newer session (eviction 7).
    SessionTooLow,
    /// The client has not had such a session yet: this copy of the state may be behind.
    SessionTooHigh,
}

/// All sessions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionTable {
    sessions: BTreeMap<ClientId, Session>,
    /// Sessions without a connection, longest first. Derived.
    away: BTreeSet<(Micros, ClientId)>,
}

impl SessionTable {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether a new client would be refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.sessions.len() >= SESSIONS_MAX
    }

    /// A client's session.
    #[must_use]
    pub fn get(&self, client: ClientId) -> Option<&Session> {
        self.sessions.get(&client)
    }

    /// All sessions in the order of their clients.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// Sessions without a connection since `before` or longer, longest first.
    pub fn away_since(&self, before: Micros) -> impl Iterator<Item = &Session> {
        let range = self.away.range(..=(before, ClientId::MAX));
        range.filter_map(|(_, client)| self.sessions.get(client))
    }

    /// What is to be done with a request.
    #[must_use]
    pub fn admit(
        &self,
        client: ClientId,
        session: SessionId,
        request: RequestNumber,
        checksum: u128,
    ) -> Admission {
        let Some(known) = self.sessions.get(&client) else { return Admission::NoSession };
        match session.cmp(&known.session) {
            core::cmp::Ordering::Less => return Admission::SessionTooLow,
            core::cmp::Ordering::Greater => return Admission::SessionTooHigh,
            core::cmp::Ordering::Equal => {}
        }
        match known.window.look_up(request, checksum) {
            Remembrance::New => Admission::Execute(known.user),
            Remembrance::Known(reply) => Admission::Stored(reply),
            Remembrance::Gone => Admission::AlreadyApplied,
        }
    }

    /// Adds or replaces a session. A new one needs room.
    pub(crate) fn store(&mut self, session: Session) {
        let client = session.client;
        let away = session.connection.is_none().then_some((session.since, client));
        if let Some(old) = self.sessions.insert(client, session) {
            self.away.remove(&(old.since, client));
        }
        self.away.extend(away);
        assert!(self.sessions.len() <= SESSIONS_MAX, "a full table refuses logins");
    }

    /// Ends a session.
    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Session> {
        let session = self.sessions.remove(&client)?;
        self.away.remove(&(session.since, client));
        Some(session)
    }

    /// The connection of a session is lost.
    pub(crate) fn disconnect(&mut self, client: ClientId, now: Micros) {
        if let Some(session) = self.sessions.get_mut(&client) {
            self.away.remove(&(session.since, client));
            session.connection = None;
            session.since = now;
            self.away.insert((now, client));
        }
    }

    /// Remembers an executed request; nothing happens when the session ended with it.
    pub(crate) fn remember(
        &mut self,
        client: ClientId,
        request: RequestNumber,
        checksum: u128,
        reply: &StoredReply,
    ) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.window.remember(request, checksum, reply);
        }
    }

    pub(crate) fn groups_mut(&mut self, client: ClientId) -> Option<&mut BTreeSet<GroupKey>> {
        self.sessions.get_mut(&client).map(|session| &mut session.groups)
    }
}

impl Codec for SessionTable {
    fn put(&self, out: &mut Vec<u8>) {
        let all: Vec<&Session> = self.sessions.values().collect();
        u32::try_from(all.len()).expect("limited to SESSIONS_MAX").put(out);
        for session in all {
            session.put(out);
        }
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let list: Vec<Session> = Codec::get(input)?;
        if list.len() > SESSIONS_MAX {
            return Err(DecodeError::Value { what: "session count", value: list.len() as u64 });
        }
        let mut table = Self::default();
        for session in list {
            let last = table.sessions.last_key_value();
            if last.is_some_and(|(last, _)| *last >= session.client) {
                return Err(DecodeError::Unordered { what: "sessions" });
            }
            table.store(session);
        }
        Ok(table)
    }
}

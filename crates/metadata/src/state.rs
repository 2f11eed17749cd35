//! The state itself: what exists, and the questions that others ask.

use crate::access::Action;
use crate::groups::{Group, Handover};
use crate::identity::{GroupKey, GroupPlace, PartitionPlace, PasswordHash, TokenHash, UserKey};
use crate::lanes::{Lane, Layout};
use crate::outcome::Notice;
use crate::partition_table::{PartitionRecord, PartitionTable};
use crate::permissions::Permissions;
use crate::sessions::SessionTable;
use crate::streams::{Stream, Topic};
use crate::users::{ROOT_CREATED, Token, User};
use borzoi_types::{
    ClientId, LogId, Micros, Op, PartitionId, PartitionKey, SessionId, StreamId, TopicId, UserId,
};
use borzoi_wire::body::UserStatus;
use borzoi_wire::{ErrorCode, Identifier, Name};
use std::collections::{BTreeMap, BTreeSet};

/// What is there before the first operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Genesis {
    /// The lanes of the cluster; see [`Layout::is_valid`].
    pub layout: Layout,
    /// Name of the root user.
    pub root_name: Name,
    /// Hash of its password.
    pub root_password: PasswordHash,
}

/// A partition, resolved from what a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// Where clients see it.
    pub place: PartitionPlace,
    /// Its never-reused identity.
    pub key: PartitionKey,
    /// Its lane.
    pub lane: LogId,
}

/// What metadata wants of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Desired<'a> {
    /// It exists.
    Present(&'a PartitionRecord),
    /// It was deleted, by this operation or a lower one.
    Deleted {
        /// A metadata operation at or after the deletion.
        by: Op,
    },
    /// It is not below the key counter: this copy of the state cannot know yet.
    NotYet,
}

/// A hand-over under way, with all that a lane's primary needs to see it through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingHandover {
    /// The group.
    pub group: GroupKey,
    /// Where clients see the group; its number keys the stored offsets.
    pub group_place: GroupPlace,
    /// The partition.
    pub partition: Resolved,
    /// The client that owns it.
    pub from: ClientId,
    /// Target, start and identity.
    pub handover: Handover,
}

/// Everything that should exist. Changed by [`Metadata::apply`] only; equal histories give equal
/// states, and equal states equal snapshots.
#[derive(Clone, Debug)]
pub struct Metadata {
    pub(crate) layout: Layout,
    pub(crate) applied: Op,
    pub(crate) next_key: PartitionKey,
    pub(crate) next_group: GroupKey,
    pub(crate) next_user: UserKey,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) users: BTreeMap<UserKey, User>,
    pub(crate) sessions: SessionTable,
    /// Lane n at index n - 1.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) partitions: PartitionTable,
    // Derived from the above.
    pub(crate) stream_names: BTreeMap<Name, StreamId>,
    pub(crate) user_ids: BTreeMap<UserId, UserKey>,
    pub(crate) user_names: BTreeMap<Name, UserKey>,
    pub(crate) tokens: BTreeMap<u64, Vec<(UserKey, Name)>>,
    pub(crate) groups: BTreeMap<GroupKey, GroupPlace>,
    pub(crate) handovers: BTreeSet<(PartitionKey, GroupKey)>,
    // About the last operation; not state.
    pub(crate) notices: Vec<Notice>,
    pub(crate) touched: BTreeSet<LogId>,
}

impl Metadata {
    /// The state of a cluster that was just formatted: root and nothing else.
    ///
    /// # Panics
    /// When the layout is not valid.
    #[must_use]
    pub fn format(genesis: Genesis) -> Self {
        assert!(genesis.layout.is_valid(), "a cluster has lanes of both levels, within the limit");
        let lanes = usize::try_from(genesis.layout.lanes()).expect("limited to LANES_MAX");
        let root = User {
            key: UserKey::ROOT,
            id: UserId(0),
            name: genesis.root_name,
            password: genesis.root_password,
            status: UserStatus::Active,
            permissions: None,
            created: ROOT_CREATED,
            tokens: BTreeMap::new(),
        };
        let mut metadata = Self::empty(genesis.layout, vec![Lane::default(); lanes]);
        metadata.user_ids.insert(root.id, root.key);
        metadata.user_names.insert(root.name.clone(), root.key);
        metadata.users.insert(root.key, root);
        metadata
    }

    pub(crate) fn empty(layout: Layout, lanes: Vec<Lane>) -> Self {
        Self {
            layout,
            applied: Op::ZERO,
            next_key: PartitionKey(1),
            next_group: GroupKey(1),
            next_user: UserKey(1),
            streams: BTreeMap::new(),
            users: BTreeMap::new(),
            sessions: SessionTable::default(),
            lanes,
            partitions: PartitionTable::default(),
            stream_names: BTreeMap::new(),
            user_ids: BTreeMap::new(),
            user_names: BTreeMap::new(),
            tokens: BTreeMap::new(),
            groups: BTreeMap::new(),
            handovers: BTreeSet::new(),
            notices: Vec::new(),
            touched: BTreeSet::new(),
        }
    }

    /// The last operation applied, by [`Metadata::apply`] or [`Metadata::advance`].
    #[must_use]
    pub const fn applied(&self) -> Op {
        self.applied
    }

    /// The lanes of the cluster.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The key that the next partition gets. A key below it that has no partition was deleted.
    #[must_use]
    pub const fn next_key(&self) -> PartitionKey {
        self.next_key
    }

    /// What the last operation changed that others act upon; replaced by the next one.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }
}

/// Streams, topics, partitions, groups.
impl Metadata {
    /// All streams in the order of their numbers.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &Stream> {
        self.streams.values()
    }

    /// The stream with this number.
    #[must_use]
    pub fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.get(&stream)
    }

    /// The topic with these numbers.
    #[must_use]
    pub fn topic(&self, stream: StreamId, topic: TopicId) -> Option<&Topic> {
        self.streams.get(&stream)?.topics.get(&topic)
    }

    /// The stream that a request names.
    ///
    /// # Errors
    /// 1009.
    pub fn find_stream(&self, stream: &Identifier) -> Result<&Stream, ErrorCode> {
        let id = match stream {
            Identifier::Numeric(number) => Some(StreamId(*number)),
            Identifier::Name(name) => self.stream_names.get(name).copied(),
        };
        id.and_then(|id| self.streams.get(&id)).ok_or(ErrorCode::StreamIdNotFound)
    }

    /// The topic that a request names, with its stream.
    ///
    /// # Errors
    /// 1009, 2010.
    pub fn find_topic(
        &self,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Result<(&Stream, &Topic), ErrorCode> {
        let stream = self.find_stream(stream)?;
        let topic = stream.find(topic).ok_or(ErrorCode::TopicIdNotFound)?;
        Ok((stream, topic))
    }

    /// The consumer group that a request names, with stream and topic.
    ///
    /// # Errors
    /// 1009, 2010, 5000.
    pub fn find_group(
        &self,
        stream: &Identifier,
        topic: &Identifier,
        group: &Identifier,
    ) -> Result<(&Stream, &Topic, &Group), ErrorCode> {
        let (stream, topic) = self.find_topic(stream, topic)?;
        let group = topic.find_group(group).ok_or(ErrorCode::ConsumerGroupIdNotFound)?;
        Ok((stream, topic, group))
    }

    /// The partition that a request names.
    ///
    /// # Errors
    /// 1009, 2010, 3007.
    pub fn resolve(
        &self,
        stream: &Identifier,
        topic: &Identifier,
        partition: PartitionId,
    ) -> Result<Resolved, ErrorCode> {
        let (stream, topic) = self.find_topic(stream, topic)?;
        self.resolve_in(stream.id, topic, partition)
    }

    /// A partition of a topic that was looked up before.
    ///
    /// # Errors
    /// 3007.
    pub fn resolve_in(
        &self,
        stream: StreamId,
        topic: &Topic,
        partition: PartitionId,
    ) -> Result<Resolved, ErrorCode> {
        let key = topic.partition(partition).ok_or(ErrorCode::PartitionNotFound)?;
        let record = self.partitions.get(key).expect("a topic's partitions live");
        let place = PartitionPlace { stream, topic: topic.id, partition };
        assert_eq!(record.place, place, "a partition is where its topic says");
        Ok(Resolved { place, key, lane: record.lane })
    }

    /// The partition with this key, in constant time.
    #[must_use]
    pub fn partition(&self, key: PartitionKey) -> Option<&PartitionRecord> {
        self.partitions.get(key)
    }

    /// The topic of the partition with this key.
    #[must_use]
    pub fn topic_of(&self, key: PartitionKey) -> Option<&Topic> {
        let place = self.partitions.get(key)?.place;
        self.topic(place.stream, place.topic)
    }

    /// Numbers of streams, topics, partitions and consumer groups.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            streams: self.streams.len(),
            topics: self.streams.values().map(|stream| stream.topics.len()).sum(),
            partitions: self.partitions.len(),
            groups: self.groups.len(),
        }
    }

    /// The group with this key and its place.
    #[must_use]
    pub fn group(&self, key: GroupKey) -> Option<(GroupPlace, &Group)> {
        let place = *self.groups.get(&key)?;
        let group = self.topic(place.stream, place.topic)?.groups.get(&place.group)?;
        Some((place, group))
    }

    /// Hand-overs under way, in the order of partition keys.
    pub fn handovers(&self) -> impl Iterator<Item = PendingHandover> + '_ {
        self.handovers.iter().filter_map(|(key, group)| self.pending_handover(*key, *group))
    }

    /// The hand-over of a partition in a group, if one is under way.
    #[must_use]
    pub fn pending_handover(&self, key: PartitionKey, group: GroupKey) -> Option<PendingHandover> {
        let record = self.partitions.get(key)?;
        let (group_place, found) = self.group(group)?;
        let number = record.place.partition;
        let (_, handover) = found.handovers().find(|(partition, _)| *partition == number)?;
        let owner = found.owner(number)?;
        let (_, from) = found.members().find(|(slot, _)| *slot == owner)?;
        let partition = Resolved { place: record.place, key, lane: record.lane };
        Some(PendingHandover { group, group_place, partition, from, handover })
    }
}

/// How much there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Streams.
    pub streams: usize,
    /// Topics.
    pub topics: usize,
    /// Partitions.
    pub partitions: usize,
    /// Consumer groups.
    pub groups: usize,
}

/// Lanes.
impl Metadata {
    pub(crate) fn lane(&self, lane: LogId) -> Option<&Lane> {
        self.lanes.get(usize::try_from(lane.0).ok()?.checked_sub(1)?)
    }

    pub(crate) fn lane_mut(&mut self, lane: LogId) -> &mut Lane {
        self.touched.insert(lane);
        let index = usize::try_from(lane.0).expect("a usize holds a u32");
        let lane = index.checked_sub(1).and_then(|index| self.lanes.get_mut(index));
        lane.expect("partitions are assigned to lanes of the layout")
    }

    /// Partitions assigned to a lane, in key order, from the first key at or above `from`.
    pub fn partitions_of_lane(
        &self,
        lane: LogId,
        from: PartitionKey,
    ) -> impl Iterator<Item = &PartitionRecord> {
        let keys = self.lane(lane).into_iter().flat_map(move |lane| lane.keys.range(from..));
        keys.filter_map(|key| self.partitions.get(*key))
    }

    /// How many partitions a lane has.
    #[must_use]
    pub fn lane_len(&self, lane: LogId) -> usize {
        self.lane(lane).map_or(0, |lane| lane.keys.len())
    }

    /// Keys of a lane that operations after `since` touched, in operation order, possibly
    /// repeated: created, deleted, replaced, options changed, segments to delete, group deleted.
    /// None when the feed does not reach back that far, which includes every restored copy: then
    /// look at all of [`Metadata::partitions_of_lane`] once and go on from
    /// [`Metadata::applied`].
    #[must_use]
    pub fn lane_changes(
        &self,
        lane: LogId,
        since: Op,
    ) -> Option<impl Iterator<Item = (Op, PartitionKey)>> {
        self.lane(lane)?.changes_since(since)
    }

    /// What metadata wants of a key of any lane.
    #[must_use]
    pub fn desired(&self, lane: LogId, key: PartitionKey) -> Desired<'_> {
        if key >= self.next_key {
            return Desired::NotYet;
        }
        match self.partitions.get(key) {
            Some(record) if record.lane == lane => Desired::Present(record),
            _ => {
                let buried = self.lane(lane).and_then(|lane| lane.tombstones.get(&key));
                Desired::Deleted { by: buried.copied().unwrap_or(self.applied) }
            }
        }
    }

    /// Segment deletions of a partition that its lane has not confirmed: the operation that wished
    /// each and how many segments.
    pub fn segment_wishes(&self, key: PartitionKey) -> impl Iterator<Item = (Op, u32)> + '_ {
        let lane = self.partitions.get(key).and_then(|record| self.lane(record.lane));
        lane.into_iter().flat_map(move |lane| {
            let wishes = lane.wishes.range((key, Op::ZERO)..=(key, Op::MAX));
            wishes.map(|((_, op), count)| (*op, *count))
        })
    }

    /// Whether something is kept of a lane until it confirms: keys that it is to delete, segments.
    #[must_use]
    pub fn lane_waits(&self, lane: LogId) -> bool {
        self.lane(lane).is_some_and(|lane| !lane.tombstones.is_empty() || !lane.wishes.is_empty())
    }

    /// The operation up to which a lane has confirmed everything in the log.
    #[must_use]
    pub fn lane_confirmed(&self, lane: LogId) -> Op {
        self.lane(lane).map_or(Op::ZERO, |lane| lane.confirmed)
    }
}

/// Users, tokens, sessions.
impl Metadata {
    /// All users in the order of their visible numbers.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.user_ids.values().filter_map(|key| self.users.get(key))
    }

    /// The user with this identity.
    #[must_use]
    pub fn user(&self, key: UserKey) -> Option<&User> {
        self.users.get(&key)
    }

    /// The user that a request names.
    ///
    /// # Errors
    /// 20.
    pub fn find_user(&self, user: &Identifier) -> Result<&User, ErrorCode> {
        let key = match user {
            Identifier::Numeric(number) => self.user_ids.get(&UserId(*number)),
            Identifier::Name(name) => self.user_names.get(name),
        };
        key.and_then(|key| self.users.get(key)).ok_or(ErrorCode::ResourceNotFound)
    }

    /// The owner of the token with this hash, whatever its status.
    ///
    /// # Errors
    /// 53 when there is no such token or it has expired at `now`.
    pub fn token_owner(&self, hash: &TokenHash, now: Micros) -> Result<&User, ErrorCode> {
        let found = self.find_token(hash).filter(|(_, token)| !token.is_expired(now));
        found.map(|(user, _)| user).ok_or(ErrorCode::InvalidPersonalAccessToken)
    }

    /// The token with this hash: found by a prefix of the hash, compared in constant time.
    pub(crate) fn find_token(&self, hash: &TokenHash) -> Option<(&User, &Token)> {
        let places = self.tokens.get(&hash.prefix())?;
        places.iter().find_map(|(owner, name)| {
            let user = self.users.get(owner)?;
            let token = user.tokens.get(name)?;
            (token.hash == *hash).then_some((user, token))
        })
    }

    /// When the token with this hash ends to be valid; none when it never does or is not there.
    #[must_use]
    pub fn token_expiry(&self, hash: &TokenHash) -> Option<Micros> {
        self.find_token(hash)?.1.expires
    }

    /// Whether there are tokens that have expired at `now`.
    #[must_use]
    pub fn has_expired_tokens(&self, now: Micros) -> bool {
        let mut tokens = self.users.values().flat_map(|user| user.tokens.values());
        tokens.any(|token| token.is_expired(now))
    }

    /// All sessions.
    #[must_use]
    pub const fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// The user on whose behalf a session acts at `now`.
    ///
    /// # Errors
    /// 40 when there is no such session, 54 when the token it signed in with is gone or has
    /// expired.
    pub fn session_user(
        &self,
        client: ClientId,
        session: SessionId,
        now: Micros,
    ) -> Result<UserKey, ErrorCode> {
        let known = self.sessions.get(client).filter(|known| known.session == session);
        let known = known.ok_or(ErrorCode::Unauthenticated)?;
        if let Some(hash) = known.token {
            let owner = self.token_owner(&hash, now).map(|owner| owner.key);
            if owner != Ok(known.user) {
                return Err(ErrorCode::PersonalAccessTokenExpired);
            }
        }
        Ok(known.user)
    }

    /// Whether a user may do something now. Objects named by the action were resolved before.
    ///
    /// # Errors
    /// 41 when not, 40 when the user does not exist any more.
    pub fn authorise(&self, user: UserKey, action: Action) -> Result<(), ErrorCode> {
        if matches!(action, Action::Ping | Action::Logout) {
            return Ok(());
        }
        let user = self.users.get(&user).ok_or(ErrorCode::Unauthenticated)?;
        let granted = match &user.permissions {
            _ if !user.is_active() => false,
            _ if user.is_root() => true,
            Some(permissions) => permissions.allow(user.key, action),
            None => Permissions::default().allow(user.key, action),
        };
        if granted { Ok(()) } else { Err(ErrorCode::Unauthorized) }
    }
}

//! Streams, topics and users, read from this shard's copy of metadata and from the counters of the
//! lanes.

use super::counters::Counts;
use super::request::{Caller, Known, Step};
use super::{Front, records};
use borzoi_metadata::{Action, Stream, Topic, User};
use borzoi_wire::body::{TokenRecord, UserDetails};
use borzoi_wire::{ErrorCode, Identifier, Reply};

/// Unwraps a step that ends a handler early.
macro_rules! or_return {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(step) => return step,
        }
    };
}
pub(super) use or_return;

impl Front {
    /// Counters of the partitions of `topics`: gathered already, or a step that gathers them.
    fn counts<'a, 'k>(
        &'a self,
        known: Known<'k>,
        topics: impl Iterator<Item = &'a Topic>,
    ) -> Result<std::borrow::Cow<'k, Counts>, Step> {
        if let Some(counts) = known.counts {
            return Ok(std::borrow::Cow::Borrowed(counts));
        }
        let keys = records::keys_of(&self.metadata, topics);
        if keys.is_empty() {
            return Ok(std::borrow::Cow::Owned(Counts::new()));
        }
        Err(Step::Counters(keys))
    }

    pub(super) fn get_stream(&self, caller: &Caller, known: Known<'_>, name: &Identifier) -> Step {
        let Ok(stream) = self.metadata.find_stream(name) else {
            return self.not_found(caller, known);
        };
        or_return!(self.authorise(caller, known, Action::GetStream(stream.id)));
        let counts = or_return!(self.counts(known, stream.topics.values()));
        self.read_reply(caller, Reply::Stream(records::stream_details(stream, &counts)))
    }

    pub(super) fn get_streams(&self, caller: &Caller, known: Known<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetStreams));
        let topics = self.metadata.streams().flat_map(|stream: &Stream| stream.topics.values());
        let counts = or_return!(self.counts(known, topics));
        let streams = self.metadata.streams();
        let list = streams.map(|stream| records::stream_record(stream, &counts)).collect();
        self.read_reply(caller, Reply::Streams(list))
    }

    pub(super) fn get_topic(
        &self,
        caller: &Caller,
        known: Known<'_>,
        stream: &Identifier,
        topic: &Identifier,
    ) -> Step {
        let Ok((stream, topic)) = self.metadata.find_topic(stream, topic) else {
            return self.not_found(caller, known);
        };
        or_return!(self.authorise(caller, known, Action::GetTopic(stream.id, topic.id)));
        let counts = or_return!(self.counts(known, core::iter::once(topic)));
        let details = records::topic_details(&self.metadata, topic, &counts);
        self.read_reply(caller, Reply::Topic(details))
    }

    pub(super) fn get_topics(
        &self,
        caller: &Caller,
        known: Known<'_>,
        stream: &Identifier,
    ) -> Step {
        let Ok(stream) = self.metadata.find_stream(stream) else {
            if self.may_be_behind(known.certain) {
                return Step::AskCommit;
            }
            return self.read_reply(caller, Reply::Topics(Vec::new()));
        };
        or_return!(self.authorise(caller, known, Action::GetTopics(stream.id)));
        let counts = or_return!(self.counts(known, stream.topics.values()));
        let topics = stream.topics.values();
        let list = topics.map(|topic| records::topic_header(topic, &counts)).collect();
        self.read_reply(caller, Reply::Topics(list))
    }

    pub(super) fn get_user(&self, caller: &Caller, known: Known<'_>, user: &Identifier) -> Step {
        let Ok(user) = self.metadata.find_user(user) else {
            return self.not_found(caller, known);
        };
        or_return!(self.authorise(caller, known, Action::GetUser(user.key)));
        let permissions = user.permissions.as_ref().map(Into::into);
        let details = UserDetails { user: record_of(user), permissions };
        self.read_reply(caller, Reply::User(details))
    }

    pub(super) fn get_users(&self, caller: &Caller, known: Known<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetUsers));
        self.read_reply(caller, Reply::Users(self.metadata.users().map(record_of).collect()))
    }

    /// The caller's own tokens, also those that have expired and are not yet cleaned away.
    pub(super) fn get_tokens(&self, caller: &Caller, known: Known<'_>) -> Step {
        or_return!(self.authorise(caller, known, Action::GetTokens));
        let Some(user) = self.metadata.user(caller.binding.user) else {
            return self.refuse(caller, known, ErrorCode::Unauthenticated);
        };
        let tokens = user.tokens.iter().map(|(name, token)| TokenRecord {
            name: name.clone(),
            expiry: token.expires.unwrap_or_default(),
        });
        self.read_reply(caller, Reply::Tokens(tokens.collect()))
    }
}

fn record_of(user: &User) -> borzoi_wire::body::UserRecord {
    records::user_record(user.id, user.created, user.status, user.name.clone())
}

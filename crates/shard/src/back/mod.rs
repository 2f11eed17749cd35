//! Everything behind the front: replicated logs, the journal, lanes, checkpoints, boot.

use crate::event::Effect;
use crate::front::Front;
use crate::lane::api::{CountersReply, CountersRequest, LaneReply, LaneRequest, Refusal, Ticket};
use crate::options::ShardOptions;
use borzoi_storage::disk::{DiskResult, DiskTicket};
use borzoi_types::{Body, LogId, Micros, Mono, Now, Op, ShardId};
use std::collections::VecDeque;

/// One committed metadata operation, for the metadata state machine of shard 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataCommit {
    /// Its position in the metadata log.
    pub op: Op,
    /// The primary's wall clock when it was prepared; the only time that apply may use.
    pub timestamp: Micros,
    /// The encoded command; empty for operations that only consensus reads (apply counts the op
    /// and changes nothing).
    pub body: Body,
}

/// What the back has for the front.
#[derive(Debug)]
pub enum BackOutput {
    /// An answer to a request that this shard's front submitted.
    LaneReply {
        /// The front's ticket.
        ticket: Ticket,
        /// The answer.
        reply: LaneReply,
    },
    /// An answer to a request for counters.
    Counters(CountersReply),
    /// Shard 0 only: a metadata operation has committed. In op order, each once.
    MetadataCommitted(MetadataCommit),
    /// Shard 0 only: whether this replica is the metadata primary and may propose.
    MetadataServing(bool),
}

/// Everything behind the front of one shard.
pub struct Back {
    options: ShardOptions,
    output: VecDeque<BackOutput>,
}

impl Back {
    /// Submits a request to a lane of any shard of this node. Answered exactly once, later in the
    /// same batch at the earliest, with [`BackOutput::LaneReply`] or by message.
    pub fn submit(&mut self, _now: Now, request: LaneRequest, effects: &mut Vec<Effect>) {
        self.reply(request.origin, LaneReply::Refused(Refusal::NotServing), effects);
    }

    /// Asks shard `from`... (answers a request for counters of partitions hosted here).
    pub fn counters(
        &mut self,
        from: ShardId,
        request: &CountersRequest,
        effects: &mut Vec<Effect>,
    ) {
        let _ = (from, request, effects);
    }

    /// Shard 0 only: proposes a metadata operation; its commit arrives as
    /// [`BackOutput::MetadataCommitted`] with the returned op.
    ///
    /// # Errors
    /// When this replica is not the serving primary, its pipeline is full or the journal is.
    pub fn propose_metadata(
        &mut self,
        _now: Now,
        _body: Body,
        _effects: &mut Vec<Effect>,
    ) -> Result<Op, Refusal> {
        Err(Refusal::NotServing)
    }

    /// The shard of this node that hosts `log`.
    #[must_use]
    pub fn shard_of(&self, log: LogId) -> ShardId {
        log.shard(self.options.shards)
    }

    /// What this shard was told at boot.
    #[must_use]
    pub fn options(&self) -> &ShardOptions {
        &self.options
    }

    /// The committed metadata of this shard has changed (a command was applied to its state or
    /// copy): lanes led here compare it with what they have created, at the end of the batch.
    pub fn metadata_changed(&mut self) {}

    pub(crate) fn disk(
        &mut self,
        _now: Now,
        _ticket: DiskTicket,
        _result: DiskResult,
        _effects: &mut Vec<Effect>,
    ) {
    }

    pub(crate) fn tick(&mut self, _now: Now, _effects: &mut Vec<Effect>) {}

    pub(crate) fn stop(&mut self, _now: Now, _effects: &mut Vec<Effect>) {}

    pub(crate) fn peer_stopping(&mut self, _now: Now, _from: ShardId, _out: &mut Vec<Effect>) {}

    pub(crate) fn end_of_batch(&mut self, _now: Now, _front: &Front, _effects: &mut Vec<Effect>) {}

    pub(crate) fn deadline(&self) -> Option<Mono> {
        None
    }

    pub(crate) fn take_output(&mut self) -> Option<BackOutput> {
        self.output.pop_front()
    }

    fn reply(
        &mut self,
        origin: crate::lane::api::Origin,
        reply: LaneReply,
        effects: &mut Vec<Effect>,
    ) {
        if origin.shard == self.options.shard {
            self.output.push_back(BackOutput::LaneReply { ticket: origin.ticket, reply });
        } else {
            let message = crate::event::ShardMessage::LaneReply { ticket: origin.ticket, reply };
            effects.push(Effect::ToShard { to: origin.shard, message });
        }
    }
}

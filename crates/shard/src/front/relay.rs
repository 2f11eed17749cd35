//! Shard 0 of a node of several: what it asks of the metadata primary while it is not that itself.
//!
//! Commands leave for the primary and come back as operations of this node's own log, recognised by
//! their bytes: whoever commits them, the outcome is computed here. A refusal is all that is ever
//! answered. When another primary leads, it is asked for its commit point; what was sent before and
//! is not committed once that is applied never will be, and is sent again.
//!
//! Questions for the commit point are what makes "no" final: absence in a copy proves nothing. The
//! primary answers one only after a quorum has confirmed that it still leads.
//!
//! Invariants: every command and every question is answered exactly once, at the latest when its
//! time is up; a command that never left is refused for certain, one that left is "unknown";
//! nothing that was relayed here is relayed again.

use super::timers::Timer;
use super::{Cx, Front, FrontMessage};
use crate::lane::api::Ticket;
use crate::metadata_host::Asker;
use crate::peer::{Forwarded, Waiter};
use borzoi_metadata::Command;
use borzoi_types::limits::{COMMIT_QUESTION_SECONDS_MAX, FORWARDED_SECONDS_MAX};
use borzoi_types::limits::{METADATA_COMMANDS_QUEUED_MAX, RELAY_PARK_SECONDS_MAX};
use borzoi_types::{Duration, LogId, Mono, Op, ReplicaId, ShardId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Time after which a question that nobody could answer is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct RelayedCommand {
    asker: Asker,
    body: Bytes,
    /// To whom it was sent last.
    sent: Option<ReplicaId>,
    due: Mono,
}

/// Who wants to know the commit point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Questioner {
    /// A shard of this node, for its clients.
    Shard(ShardId),
    /// Another node.
    Peer(ReplicaId, Waiter),
    /// This shard itself: it has heard of a primary that it has not caught up with.
    CatchUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// There is nobody to ask.
    Unasked,
    /// That node was asked.
    Asked(ReplicaId),
    /// This node leads and is making sure of it.
    Confirming,
    /// Answered when this is applied here.
    Applying(Op),
}

#[derive(Debug)]
struct Question {
    questioner: Questioner,
    stage: Stage,
    due: Mono,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    commands: BTreeMap<Ticket, RelayedCommand>,
    by_body: BTreeMap<Bytes, BTreeSet<Ticket>>,
    questions: BTreeMap<Ticket, Question>,
    /// The primary whose commit point has been applied here: only that one is sent commands.
    caught_up_with: Option<ReplicaId>,
    /// Whether this node has told the log that it started.
    announced: bool,
}

impl Relay {
    /// What waits here, for tests and metrics; questions for this shard itself do not count.
    pub(super) fn len(&self) -> usize {
        let asked = self.questions.values().filter(|it| it.questioner != Questioner::CatchUp);
        self.commands.len() + asked.count()
    }

    fn insert(&mut self, ticket: Ticket, command: RelayedCommand) {
        self.by_body.entry(command.body.clone()).or_default().insert(ticket);
        let before = self.commands.insert(ticket, command);
        assert!(before.is_none(), "numbers are not reused");
    }

    fn remove(&mut self, ticket: Ticket) -> Option<RelayedCommand> {
        let command = self.commands.remove(&ticket)?;
        let same = self.by_body.get_mut(&command.body).expect("every command is found by its body");
        same.remove(&ticket);
        if same.is_empty() {
            self.by_body.remove(&command.body);
        }
        Some(command)
    }

    /// The first who wants this command executed: it has been.
    pub(super) fn take_committed(&mut self, body: &Bytes) -> Option<Asker> {
        let ticket = *self.by_body.get(body)?.first()?;
        self.remove(ticket).map(|command| command.asker)
    }
}

/// Commands.
impl Front {
    /// The node to ask about metadata: another one that leads and can be reached.
    fn metadata_leader(&self) -> Option<ReplicaId> {
        let leader = self.leaders.get(&LogId::METADATA).copied();
        leader.filter(|leader| *leader != self.options.replica && self.peers_up.contains(leader))
    }

    const fn own_waiter(&self, ticket: Ticket) -> Waiter {
        Waiter { shard: self.options.shard, ticket }
    }

    /// Keeps a command of this node and sends it to the metadata primary, now or when there is one.
    pub(super) fn relay(
        &mut self,
        asker: Asker,
        body: Bytes,
        sent: Option<ReplicaId>,
        cx: &mut Cx<'_>,
    ) {
        assert!(asker.peer.is_none(), "what was relayed here is not relayed again");
        if self.relay.commands.len() >= METADATA_COMMANDS_QUEUED_MAX {
            return self.proposal_ended(asker, sent.is_none(), cx);
        }
        let ticket = self.next_ticket();
        let patience = if sent.is_some() { FORWARDED_SECONDS_MAX } else { RELAY_PARK_SECONDS_MAX };
        let due = cx.now.mono.plus(Duration::from_secs(patience));
        self.timers.set(due, Timer::Relayed(ticket));
        self.relay.insert(ticket, RelayedCommand { asker, body, sent, due });
        if sent.is_none() {
            self.send_command(ticket, cx);
        }
    }

    fn send_command(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        let leader = self.metadata_leader();
        let Some(leader) = leader.filter(|it| self.relay.caught_up_with == Some(*it)) else {
            return;
        };
        let waiter = self.own_waiter(ticket);
        let Some(command) = self.relay.commands.get_mut(&ticket) else { return };
        self.timers.cancel(command.due, Timer::Relayed(ticket));
        command.sent = Some(leader);
        command.due = cx.now.mono.plus(Duration::from_secs(FORWARDED_SECONDS_MAX));
        self.timers.set(command.due, Timer::Relayed(ticket));
        self.counters.commands_forwarded += 1;
        let body = command.body.clone();
        cx.behind.forward(leader, Forwarded::Command { waiter, body }, cx.effects);
    }

    /// A command's time is up.
    pub(super) fn relayed_due(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        let due = self.relay.commands.get(&ticket).is_some_and(|it| it.due <= cx.now.mono);
        if due && let Some(command) = self.relay.remove(ticket) {
            self.proposal_ended(command.asker, command.sent.is_none(), cx);
        }
    }

    /// Another node asks this one to propose a command.
    pub(super) fn command_arrived(
        &mut self,
        from: ReplicaId,
        waiter: Waiter,
        body: Bytes,
        cx: &mut Cx<'_>,
    ) {
        let asker = Asker { peer: Some(from), shard: waiter.shard, ticket: waiter.ticket };
        // What is in the log has to decode everywhere, whoever proposed it.
        if Command::decode(&body).is_err() || body.is_empty() {
            return self.proposal_ended(asker, true, cx);
        }
        self.propose_here(asker, body, cx);
    }

    /// The primary did not take a command of this node.
    pub(super) fn relayed_refused(&mut self, ticket: Ticket, certain: bool, cx: &mut Cx<'_>) {
        if let Some(command) = self.relay.remove(ticket) {
            self.timers.cancel(command.due, Timer::Relayed(ticket));
            self.proposal_ended(command.asker, certain, cx);
        }
    }

    /// This node leads now, and everything that was committed before is applied: what has not come
    /// back never was, and is proposed here.
    pub(super) fn propose_relayed(&mut self, cx: &mut Cx<'_>) {
        let tickets: Vec<Ticket> = self.relay.commands.keys().copied().collect();
        for ticket in tickets {
            if let Some(command) = self.relay.remove(ticket) {
                self.timers.cancel(command.due, Timer::Relayed(ticket));
                self.propose_here(command.asker, command.body, cx);
            }
        }
    }

    /// Sends what has not left yet, and what was sent to somebody who no longer leads.
    fn send_relayed(&mut self, cx: &mut Cx<'_>) {
        let leader = self.relay.caught_up_with;
        let wanted = self.relay.commands.iter().filter(|(_, command)| command.sent != leader);
        let tickets: Vec<Ticket> = wanted.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.send_command(ticket, cx);
        }
    }
}

/// Questions.
impl Front {
    /// Finds out how far metadata is committed, for `questioner`.
    pub(super) fn question(&mut self, questioner: Questioner, cx: &mut Cx<'_>) {
        let serving = self.serves_metadata();
        if self.options.replica_count == 1 {
            let op = serving.then(|| self.metadata.applied());
            return self.answer_question(questioner, op, cx);
        }
        if !serving && let Questioner::Peer(..) = questioner {
            return self.answer_question(questioner, None, cx);
        }
        let ticket = self.next_ticket();
        let due = cx.now.mono.plus(Duration::from_secs(COMMIT_QUESTION_SECONDS_MAX));
        self.timers.set(due, Timer::Question(ticket));
        self.relay.questions.insert(ticket, Question { questioner, stage: Stage::Unasked, due });
        self.pose(ticket, cx);
    }

    fn pose(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        let (serving, leader) = (self.serves_metadata(), self.metadata_leader());
        let waiter = self.own_waiter(ticket);
        let Some(question) = self.relay.questions.get_mut(&ticket) else { return };
        if serving {
            question.stage = Stage::Confirming;
            cx.behind.read_metadata(ticket.0, cx.effects);
        } else if let Some(leader) = leader {
            question.stage = Stage::Asked(leader);
            cx.behind.forward(leader, Forwarded::AskCommit { waiter }, cx.effects);
        } else {
            question.stage = Stage::Unasked;
            self.timers.set(cx.now.mono.plus(ASK_AGAIN_AFTER), Timer::Question(ticket));
        }
    }

    /// Looks at a question again: its time is up, or it is to be asked again.
    pub(super) fn question_due(&mut self, ticket: Ticket, cx: &mut Cx<'_>) {
        let Some(question) = self.relay.questions.get(&ticket) else { return };
        if question.due <= cx.now.mono {
            self.end_question(ticket, None, cx);
        } else if question.stage == Stage::Unasked {
            self.pose(ticket, cx);
        }
    }

    /// The primary has told its commit point, or that it is none.
    pub(super) fn commit_told(
        &mut self,
        from: ReplicaId,
        ticket: Ticket,
        op: Option<Op>,
        cx: &mut Cx<'_>,
    ) {
        let applied = self.metadata.applied();
        let Some(question) = self.relay.questions.get_mut(&ticket) else { return };
        if question.stage != Stage::Asked(from) {
            return;
        }
        match op {
            Some(op) if op <= applied => self.end_question(ticket, Some(op), cx),
            Some(op) => question.stage = Stage::Applying(op),
            None => {
                question.stage = Stage::Unasked;
                self.timers.set(cx.now.mono.plus(ASK_AGAIN_AFTER), Timer::Question(ticket));
            }
        }
    }

    /// How far metadata is committed, if this node still led when it was asked.
    pub(super) fn metadata_read(&mut self, ticket: Ticket, op: Option<Op>, cx: &mut Cx<'_>) {
        let Some(question) = self.relay.questions.get_mut(&ticket) else { return };
        if question.stage != Stage::Confirming {
            return;
        }
        if let Some(op) = op {
            assert!(op <= self.metadata.applied(), "commits came before on the same way");
            return self.end_question(ticket, Some(op), cx);
        }
        question.stage = Stage::Unasked;
        self.timers.set(cx.now.mono.plus(ASK_AGAIN_AFTER), Timer::Question(ticket));
    }

    /// Metadata was applied here up to some operation.
    pub(super) fn answer_applied_questions(&mut self, cx: &mut Cx<'_>) {
        let applied = self.metadata.applied();
        let answered = self.relay.questions.iter().filter_map(|(ticket, question)| {
            let Stage::Applying(op) = question.stage else { return None };
            (op <= applied).then_some((*ticket, op))
        });
        let answered: Vec<(Ticket, Op)> = answered.collect();
        for (ticket, op) in answered {
            self.end_question(ticket, Some(op), cx);
        }
    }

    fn end_question(&mut self, ticket: Ticket, op: Option<Op>, cx: &mut Cx<'_>) {
        let Some(question) = self.relay.questions.remove(&ticket) else { return };
        self.timers.cancel(question.due, Timer::Question(ticket));
        self.answer_question(question.questioner, op, cx);
    }

    fn answer_question(&mut self, questioner: Questioner, op: Option<Op>, cx: &mut Cx<'_>) {
        match questioner {
            Questioner::Shard(shard) if shard == self.options.shard => self.commit_is(op, cx),
            Questioner::Shard(shard) => cx.send_to(shard, FrontMessage::CommitIs { op }),
            Questioner::Peer(peer, waiter) => {
                cx.behind.forward(peer, Forwarded::CommitIs { waiter, op }, cx.effects);
            }
            Questioner::CatchUp => self.caught_up(op.is_some(), cx),
        }
    }

    fn pose_again(&mut self, which: impl Fn(&Question) -> bool, cx: &mut Cx<'_>) {
        let questions = self.relay.questions.iter().filter(|(_, it)| which(it));
        let tickets: Vec<Ticket> = questions.map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.pose(ticket, cx);
        }
    }
}

/// Who leads.
impl Front {
    /// Somebody else leads metadata now, or can be reached again.
    pub(super) fn metadata_leader_changed(&mut self, cx: &mut Cx<'_>) {
        if self.host.is_none() || self.options.replica_count == 1 {
            return;
        }
        let leader = self.metadata_leader();
        if leader.is_some() && leader == self.relay.caught_up_with {
            return;
        }
        self.relay.caught_up_with = None;
        self.pose_again(
            |question| match question.stage {
                Stage::Unasked => true,
                Stage::Asked(asked) => Some(asked) != leader,
                Stage::Applying(_) => question.questioner == Questioner::CatchUp,
                Stage::Confirming => false,
            },
            cx,
        );
        if leader.is_some() {
            self.catch_up(cx);
        }
    }

    /// This node leads metadata now: what other nodes were asked, or nobody, is answered here.
    pub(super) fn ask_here(&mut self, cx: &mut Cx<'_>) {
        self.pose_again(|it| matches!(it.stage, Stage::Unasked | Stage::Asked(_)), cx);
    }

    fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let mut under_way = self.relay.questions.values();
        if !under_way.any(|it| it.questioner == Questioner::CatchUp) {
            self.question(Questioner::CatchUp, cx);
        }
    }

    /// This node has applied what the primary had committed when it was asked, or got no answer.
    fn caught_up(&mut self, answered: bool, cx: &mut Cx<'_>) {
        if !answered {
            if self.metadata_leader().is_some() && !self.stopping {
                self.catch_up(cx);
            }
            return;
        }
        // None when this node leads by now.
        self.relay.caught_up_with = self.metadata_leader();
        self.send_relayed(cx);
        self.serve_clients(cx);
    }

    /// The copies of this node are good enough to serve from.
    pub(super) fn serve_clients(&mut self, cx: &mut Cx<'_>) {
        assert!(self.host.is_some(), "shard 0 decides for its node");
        if !self.ready {
            for shard in (1..self.options.shards).map(ShardId) {
                cx.send_to(shard, FrontMessage::Serving(true));
            }
        }
        self.become_ready(cx);
        if !self.relay.announced {
            self.relay.announced = true;
            self.node_started(cx);
        }
    }

    /// The log did not take the news that this node has started.
    pub(super) fn announce_again(&mut self) {
        self.relay.announced = false;
    }

    /// Whether that news has to be told (again).
    pub(super) const fn is_unannounced(&self) -> bool {
        self.ready && !self.relay.announced
    }
}

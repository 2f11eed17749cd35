//! The client that comes when all faults are over: writes once more, reads everything there is
//! through every node, and drains every partition as a consumer that has seen nothing yet.

use super::Setting;
use super::consuming::strategy;
use super::cx::{Cx, Memory};
use super::draft::Draft;
use super::producing;
use crate::clients::machine::Machine;
use crate::clients::{Client, ClientInput, Phase, Port};
use crate::history::{ConsumerId, Intent, OpRef, Outcome, Seen, SendTo, Strategy, TopicRef, Value};
use crate::random::Dice;
use borzoi_types::{Mono, PartitionId};
use borzoi_wire::body::PollMessages;
use borzoi_wire::{ConsumerKind, ConsumerRef, IdentifierRef, OptionalPartition, Request};
use std::collections::VecDeque;

/// Messages asked for at once.
const COUNT: u32 = 500;
/// Consumer number of the final reads; the drain has the one above.
const READER: u32 = 900_000;

/// One thing to do at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Task {
    /// Talk to this node from now on.
    GoTo(usize),
    /// Write a message.
    Write(TopicRef, u32),
    /// Read a partition to its end through the present node.
    Read(TopicRef, u32, u64),
    /// Read a partition with a consumer of its own until nothing is left.
    Drain(TopicRef, u32),
}

/// See the module.
pub struct Auditor {
    machine: Machine,
    dice: Dice,
    memory: Memory,
    setting: Setting,
    tasks: VecDeque<Task>,
    under_way: Option<(OpRef, Task)>,
    phase: Phase,
}

impl Auditor {
    /// An auditor that waits for the final phase.
    #[must_use]
    pub fn new(mut machine: Machine, dice: Dice, setting: Setting, memory: Memory) -> Self {
        machine.stays = true;
        let (tasks, under_way, phase) = (VecDeque::new(), None, Phase::Work);
        Self { machine, dice, memory, setting, tasks, under_way, phase }
    }

    fn plan(&mut self, nodes: &[usize], port: &mut Port<'_>) {
        port.history.final_from = Some(port.now);
        let mut places = Vec::new();
        for topic in port.history.live_topics(false) {
            for partition in 0..port.history.topic(topic).partitions {
                places.push((topic, partition));
            }
        }
        let Some(&first) = nodes.first() else { return };
        self.tasks.push_back(Task::GoTo(first));
        self.tasks.extend(places.iter().map(|&(topic, at)| Task::Write(topic, at)));
        for &node in nodes {
            self.tasks.push_back(Task::GoTo(node));
            self.tasks.extend(places.iter().map(|&(topic, at)| Task::Read(topic, at, 0)));
        }
        self.tasks.extend(places.iter().map(|&(topic, at)| Task::Drain(topic, at)));
    }

    fn turn(&mut self, port: &mut Port<'_>) {
        loop {
            for op in self.machine.turn(port) {
                if let Some((expected, task)) = self.under_way.take()
                    && expected == op
                {
                    self.ended(op, task, port);
                }
            }
            if self.under_way.is_some() || !self.machine.is_idle() {
                return;
            }
            match self.tasks.pop_front() {
                None => return,
                Some(Task::GoTo(node)) => {
                    if self.machine.node != node {
                        self.machine.hang_up(port);
                        self.machine.node = node;
                    }
                }
                Some(task) => {
                    let draft = self.draft(&task, port);
                    let op = self.machine.submit(draft, port);
                    self.under_way = Some((op, task));
                }
            }
        }
    }

    fn draft(&mut self, task: &Task, port: &mut Port<'_>) -> Draft {
        let mut cx = Cx {
            history: port.history,
            dice: &mut self.dice,
            memory: &mut self.memory,
            setting: &self.setting,
            now: port.now,
        };
        match *task {
            Task::Write(topic, partition) => {
                producing::send_to(&mut cx, topic, SendTo::Partition(partition), 1)
            }
            Task::Read(topic, partition, from) => {
                read(&mut cx, topic, partition, Strategy::Offset(from))
            }
            Task::Drain(topic, partition) => read(&mut cx, topic, partition, Strategy::Next),
            Task::GoTo(_) => Draft::other(&Request::Ping),
        }
    }

    fn ended(&mut self, op: OpRef, task: Task, port: &mut Port<'_>) {
        let Outcome::Done(value) = port.history.op(op).outcome.clone() else {
            // A checker says what to think of a refusal; asking again would not help.
            return;
        };
        let Value::Polled { messages, .. } = value else { return };
        let node = self.machine.node;
        let last = messages.last().map(|(offset, _)| *offset);
        match task {
            Task::Read(topic, partition, _) => {
                let list = port.history.finals.entry((topic, partition)).or_default();
                list.entry(node).or_default().extend(messages);
                if let Some(last) = last {
                    self.tasks.push_front(Task::Read(topic, partition, last + 1));
                }
            }
            Task::Drain(topic, partition) => {
                let list: &mut Vec<(u64, Seen)> =
                    port.history.drains.entry((topic, partition)).or_default();
                list.extend(messages);
                if last.is_some() {
                    self.tasks.push_front(Task::Drain(topic, partition));
                }
            }
            Task::GoTo(_) | Task::Write(..) => {}
        }
    }
}

fn read(cx: &mut Cx<'_>, topic: TopicRef, partition: u32, from: Strategy) -> Draft {
    let drains = from == Strategy::Next;
    let number = READER + u32::from(drains);
    let (stream, name) = cx.names(topic);
    let body = PollMessages {
        consumer: ConsumerRef { kind: ConsumerKind::Consumer, id: IdentifierRef::Numeric(number) },
        stream: stream.as_identifier_ref(),
        topic: name.as_identifier_ref(),
        partition: OptionalPartition(Some(PartitionId(partition))),
        strategy: strategy(from),
        count: COUNT,
        auto_commit: drains,
    };
    let intent = Intent::Poll {
        topic,
        partition,
        consumer: ConsumerId::Plain(number),
        strategy: from,
        count: COUNT,
        auto_commit: drains,
    };
    Draft::new(intent, &Request::PollMessages(body))
}

impl Client for Auditor {
    fn handle(&mut self, input: ClientInput, port: &mut Port<'_>) {
        match input {
            ClientInput::Connected(socket) => self.machine.connected(socket, port),
            ClientInput::Frame { socket, bytes } => self.machine.frame(socket, &bytes, port),
            ClientInput::Closed(socket) => self.machine.closed(socket, port),
            ClientInput::Tick => {}
            ClientInput::Phase(phase) => {
                if let Phase::Final { nodes } = &phase {
                    self.plan(nodes, port);
                }
                self.phase = phase;
            }
        }
        self.turn(port);
    }

    fn deadline(&self) -> Option<Mono> {
        self.machine.deadline()
    }

    fn is_done(&self) -> bool {
        self.tasks.is_empty() && self.under_way.is_none() && self.machine.is_idle()
    }

    fn describe(&self) -> String {
        format!("auditor, {} tasks left: {}", self.tasks.len(), self.machine.describe())
    }
}

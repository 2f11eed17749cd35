//! A client that does one job: draws its next request, learns from the answers.

use super::cx::{Cx, Memory};
use super::entries::{self, Job};
use super::{Setting, malformed};
use crate::clients::machine::Machine;
use crate::clients::{Client, ClientInput, Phase, Port};
use crate::history::{ConsumerId, Intent, OpRef, Outcome, State, Value};
use crate::random::Dice;
use borzoi_types::{Duration, Mono};
use borzoi_wire::{CommandCode, Request};

/// Turns that everybody has before the work can be over, so that all kinds of it are done.
const TURNS_MIN: u64 = 40;
/// Draws in a row that come to nothing before the worker pauses.
const DRAWS_MAX: usize = 8;
/// The pause then.
const PAUSE: Duration = Duration::from_millis(40);

/// See the module.
pub struct Worker {
    machine: Machine,
    dice: Dice,
    memory: Memory,
    setting: Setting,
    weights: Vec<(CommandCode, u64)>,
    /// Requests left, so that a run ends.
    left: u64,
    /// Turns it had.
    turns: u64,
    /// Percent of its requests that are malformed.
    malformed: u64,
    /// Percent of logins under which it becomes another user.
    disguises: u64,
    next_at: Mono,
    phase: Phase,
    produced: bool,
    /// Turns in a row without anything that could be asked.
    barren: u32,
}

/// What is drawn about a worker.
pub struct Plan {
    /// What it does.
    pub memory: Memory,
    /// How often each command is drawn.
    pub weights: Vec<(CommandCode, u64)>,
    /// Requests it makes at most.
    pub requests: u64,
    /// Percent of its requests that are malformed.
    pub malformed: u64,
    /// Percent of logins under which it becomes another user.
    pub disguises: u64,
}

/// Turns after which a producer believes that nothing to send to will come again.
const BARREN_MAX: u32 = 100;

/// What a producer creates when it finds nothing to send to, in order of need.
const TO_SEND_TO: [CommandCode; 3] =
    [CommandCode::CreatePartitions, CommandCode::CreateTopic, CommandCode::CreateStream];

impl Worker {
    /// A worker that has not begun.
    #[must_use]
    pub fn new(machine: Machine, dice: Dice, setting: Setting, plan: Plan) -> Self {
        Self {
            machine,
            dice,
            memory: plan.memory,
            setting,
            weights: plan.weights,
            left: plan.requests,
            turns: 0,
            malformed: plan.malformed,
            disguises: plan.disguises,
            next_at: Mono(0),
            phase: Phase::Work,
            produced: false,
            barren: 0,
        }
    }

    fn turn(&mut self, port: &mut Port<'_>) {
        loop {
            let ended = self.machine.turn(port);
            for &op in &ended {
                self.learn(op, port);
            }
            self.relogin(port);
            let began = self.begin(port);
            self.produced = port.history.confirmed_sends >= self.setting.sends_wanted;
            if ended.is_empty() && !began {
                return;
            }
        }
    }

    /// A new login ends memberships, and may be the time to become somebody else.
    fn relogin(&mut self, port: &Port<'_>) {
        if self.memory.bindings == self.machine.bindings {
            return;
        }
        self.memory.bindings = self.machine.bindings;
        let users = port.history.users.iter().filter(|user| user.state == State::Live);
        let users: Vec<(String, String)> =
            users.map(|user| (user.name.clone(), user.password.clone())).collect();
        if !users.is_empty() && self.dice.chance(self.disguises) {
            let (user, password) = self.dice.pick(&users).clone();
            self.machine.sign_in_as(user, password);
        }
    }

    /// Begins an operation if it is time. True if there may be another one at once.
    fn begin(&mut self, port: &mut Port<'_>) -> bool {
        if !self.machine.has_room() {
            return false;
        }
        if self.phase == Phase::Work && self.left > 0 && self.next_at <= port.now {
            if self.dice.rarely(self.machine.habits.hangs_up) {
                port.coverage.branch("client: hung up");
                self.machine.hang_up(port);
            }
            let think = self.machine.habits.think;
            self.next_at = port.now.plus(Duration(self.dice.between(0, think.0)));
            self.turns += 1;
            if self.work(port) {
                self.left -= 1;
                self.barren = 0;
                return think == Duration::ZERO || self.next_at <= port.now;
            }
            self.barren += 1;
            self.next_at = port.now.plus(PAUSE);
            return false;
        }
        let idle = self.phase == Phase::Work;
        if idle && self.machine.ping_due().is_some_and(|due| due <= port.now) {
            let ping = super::draft::Draft::other(&Request::Ping);
            self.machine.submit(ping, port);
            return true;
        }
        false
    }

    fn work(&mut self, port: &mut Port<'_>) -> bool {
        let mut cx = Cx {
            history: port.history,
            dice: &mut self.dice,
            memory: &mut self.memory,
            setting: &self.setting,
            now: port.now,
        };
        let mut found = None;
        if cx.dice.chance(self.malformed) {
            found = Some(malformed::draft(&mut cx));
        }
        let total: u64 = self.weights.iter().map(|(_, weight)| weight).sum();
        for _ in 0..DRAWS_MAX {
            if found.is_some() {
                break;
            }
            let mut at = cx.dice.below(total);
            let drawn = self.weights.iter().find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            found = drawn.and_then(|(command, _)| entries::draft(*command, &mut cx));
        }
        if found.is_none() && cx.memory.job == Job::Producer {
            // There may be nothing left to send to, and nobody else who still creates.
            found = TO_SEND_TO.iter().find_map(|command| entries::draft(*command, &mut cx));
        }
        let Some(draft) = found else { return false };
        if let Intent::Malformed(rule) = draft.intent {
            port.coverage.branch(rule);
        }
        self.machine.submit(draft, port);
        true
    }

    fn learn(&mut self, op: OpRef, port: &Port<'_>) {
        let op = port.history.op(op);
        let Outcome::Done(value) = &op.outcome else { return self.failed(&op.intent) };
        match (&op.intent, value) {
            (
                Intent::Poll { topic, consumer, strategy, .. },
                Value::Polled { partition, current, messages },
            ) => {
                let key = (*topic, *partition);
                let Some((last, _)) = messages.last() else {
                    self.memory.positions.remove(&key);
                    return;
                };
                self.memory.current.insert(key, *current.max(last));
                if !matches!(strategy, crate::history::Strategy::Last) {
                    self.memory.positions.insert(key, last + 1);
                }
                if let (ConsumerId::Group(_), Some(member)) = (consumer, &mut self.memory.member) {
                    member.polled.insert(*partition, *last);
                }
            }
            (Intent::Poll { .. }, Value::Resync) => self.forget_assignment(),
            (Intent::Send { topic, .. }, Value::Sent { partition, base }) => {
                self.memory.current.insert((*topic, *partition), *base);
            }
            (Intent::JoinGroup(group), _) => {
                if let Some(member) = &mut self.memory.member {
                    member.joined |= member.group == *group;
                }
            }
            (Intent::SyncGroup(group), Value::Assignment(assignment)) => {
                if let Some(member) = &mut self.memory.member
                    && member.group == *group
                {
                    match assignment {
                        Some((_, partitions)) => member.partitions.clone_from(partitions),
                        None => self.memory.member = None,
                    }
                }
            }
            (Intent::PurgeTopic(topic) | Intent::DeleteTopic(topic), _) => {
                self.memory.current.retain(|(at, _), _| at != topic);
                self.memory.positions.retain(|(at, _), _| at != topic);
            }
            _ => {}
        }
    }

    fn failed(&mut self, intent: &Intent) {
        if let Intent::JoinGroup(_) = intent {
            self.memory.member = None;
        }
        if let Intent::Poll { consumer: ConsumerId::Group(_), .. } = intent {
            self.forget_assignment();
        }
    }

    fn forget_assignment(&mut self) {
        if let Some(member) = &mut self.memory.member {
            member.partitions.clear();
        }
    }
}

impl Client for Worker {
    fn handle(&mut self, input: ClientInput, port: &mut Port<'_>) {
        match input {
            ClientInput::Connected(socket) => self.machine.connected(socket, port),
            ClientInput::Frame { socket, bytes } => self.machine.frame(socket, &bytes, port),
            ClientInput::Closed(socket) => self.machine.closed(socket, port),
            ClientInput::Tick => {}
            ClientInput::Phase(phase) => self.phase = phase,
        }
        self.turn(port);
    }

    fn deadline(&self) -> Option<Mono> {
        let working = self.phase == Phase::Work;
        let begin = (working && self.left > 0 && self.machine.has_room()).then_some(self.next_at);
        let ping = self.machine.ping_due().filter(|_| working);
        [self.machine.deadline(), begin, ping].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        match self.phase {
            Phase::Work if self.memory.job == Job::Producer => {
                self.produced || self.left == 0 || self.barren > BARREN_MAX
            }
            Phase::Work => self.turns >= TURNS_MIN || self.left == 0,
            Phase::Finish | Phase::Final { .. } => self.machine.is_idle(),
        }
    }

    fn describe(&self) -> String {
        format!("{:?}, {} requests left: {}", self.memory.job, self.left, self.machine.describe())
    }
}

//! The clients of a run against one node whose disk and links take no time: what they do is
//! understood by the server, nothing they are told breaks a checker, and everything they can ask
//! is asked.

use super::{Setting, clients, entries};
use crate::checkers::client;
use crate::clients::{Client, ClientAction, ClientInput, Phase, Port, SocketId};
use crate::coverage::Coverage;
use crate::facts::Facts;
use crate::history::History;
use crate::random::Dice;
use borzoi_metadata::PasswordHash;
use borzoi_shard::boot::{BootOptions, BootSeams, RootUser, boot};
use borzoi_shard::event::{PasswordJob, PasswordOutcome};
use borzoi_shard::{ConnectionId, Effect, Event, Lanes, Random, SeededRandom, Shard, Transport};
use borzoi_storage::disk::{DiskIdentity, execute};
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Duration, Micros, Mono, Now, ShardId};
use borzoi_wire::{CommandCode, Name};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

struct Seams;

impl BootSeams for Seams {
    fn root_user(&mut self) -> RootUser {
        RootUser { name: Name::new("iggy").unwrap(), password: stored("iggy") }
    }
    fn random(&mut self, shard: ShardId) -> Box<dyn Random> {
        Box::new(SeededRandom::new(77 + u64::from(shard.0)))
    }
}

fn stored(password: &str) -> PasswordHash {
    PasswordHash(format!("stored:{password}"))
}

/// One node, its clients, and time.
struct Bench {
    shards: Vec<Shard>,
    disk: SimDisk,
    now: Now,
    clients: Vec<Box<dyn Client>>,
    history: History,
    coverage: Coverage,
    next_socket: u64,
    /// Which client, and on which shard.
    sockets: BTreeMap<SocketId, (usize, ShardId)>,
    inbox: VecDeque<(ShardId, Event)>,
    to_clients: VecDeque<(usize, ClientInput)>,
    lives: u64,
}

fn options(shards: u16) -> BootOptions {
    BootOptions {
        lanes: Lanes { persisted: 3, replicated: 2 },
        journal: JournalOptions { file_bytes: 4 * 1024 * 1024, files_max: 8 },
        ..BootOptions::solo(shards)
    }
}

fn setting(sends_wanted: u64) -> Setting {
    Setting {
        nodes: 1,
        lanes_persisted: 3,
        lanes_replicated: 2,
        faulty: false,
        sends_wanted,
        root: ("iggy", "iggy"),
    }
}

impl Bench {
    fn new(seed: u64, sends_wanted: u64) -> Self {
        let mut disk = SimDisk::new(DiskIdentity { boot_id: Some([1; 16]), device: 7, inode: 9 });
        let mono = Mono(1_000_000);
        let wall = Micros(super::cx::WALL_START_MICROS);
        let now = Now { mono, wall };
        let shards = boot(&mut disk, &options(2), now, &mut Seams).expect("it starts").shards;
        let mut dice = Dice::fork(seed, "clients");
        let clients = clients(&setting(sends_wanted), &mut dice);
        Self {
            shards,
            disk,
            now,
            clients,
            history: History::default(),
            coverage: Coverage::default(),
            next_socket: 0,
            sockets: BTreeMap::new(),
            inbox: VecDeque::new(),
            to_clients: VecDeque::new(),
            lives: 0,
        }
    }

    /// `kill -9`, and a new start with another number of shards.
    fn restart(&mut self) {
        self.lives += 1;
        let old = SimDisk::new(DiskIdentity { boot_id: None, device: 0, inode: 0 });
        self.disk = core::mem::replace(&mut self.disk, old).kill();
        let shards = 1 + u16::try_from(self.lives % 3).unwrap();
        self.inbox.clear();
        let booted = boot(&mut self.disk, &options(shards), self.now, &mut Seams);
        self.shards = booted.expect("it starts again").shards;
        for (socket, (client, _)) in core::mem::take(&mut self.sockets) {
            self.to_clients.push_back((client, ClientInput::Closed(socket)));
        }
    }

    fn phase(&mut self, phase: &Phase) {
        for client in 0..self.clients.len() {
            self.to_clients.push_back((client, ClientInput::Phase(phase.clone())));
        }
    }

    /// Runs until all clients are done.
    fn until_done(&mut self, seconds: u64, restart_every: Option<u64>) {
        let end = self.now.mono.plus(Duration::from_secs(seconds));
        let mut next =
            restart_every.map(|millis| self.now.mono.plus(Duration::from_millis(millis)));
        loop {
            self.settle();
            if self.clients.iter().all(|client| client.is_done()) {
                return;
            }
            if next.is_some_and(|at| at <= self.now.mono) {
                self.restart();
                next = restart_every.map(|it| self.now.mono.plus(Duration::from_millis(it)));
                continue;
            }
            assert!(self.now.mono < end, "not done: {}", self.report());
            let step = Duration::from_millis(5);
            self.now.mono = self.now.mono.plus(step);
            self.now.wall = Micros(self.now.wall.0 + step.as_micros());
            self.ticks();
        }
    }

    fn report(&self) -> String {
        let lines: Vec<String> = self.clients.iter().map(|client| client.describe()).collect();
        lines.join("\n")
    }

    fn ticks(&mut self) {
        for (index, shard) in (0u16..).zip(&self.shards) {
            if shard.deadline().is_some_and(|at| at <= self.now.mono) {
                self.inbox.push_back((ShardId(index), Event::Tick));
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            if client.deadline().is_some_and(|at| at <= self.now.mono) {
                self.to_clients.push_back((index, ClientInput::Tick));
            }
        }
    }

    /// Everything that can happen without time passing happens.
    fn settle(&mut self) {
        loop {
            if let Some((client, input)) = self.to_clients.pop_front() {
                self.hand(client, input);
            } else if !self.inbox.is_empty() {
                self.batch();
            } else {
                let before = self.inbox.len();
                for (index, shard) in (0u16..).zip(&self.shards) {
                    if shard.deadline().is_some_and(|at| at <= self.now.mono) {
                        self.inbox.push_back((ShardId(index), Event::Tick));
                    }
                }
                if self.inbox.len() == before {
                    return;
                }
            }
        }
    }

    fn hand(&mut self, client: usize, input: ClientInput) {
        let mut port = Port {
            now: self.now.mono,
            nodes: 1,
            history: &mut self.history,
            coverage: &mut self.coverage,
            actions: Vec::new(),
            next_socket: &mut self.next_socket,
        };
        self.clients[client].handle(input, &mut port);
        for action in port.actions {
            match action {
                ClientAction::Connect { socket, node: _ } => {
                    let count = u64::try_from(self.shards.len()).unwrap();
                    let shard = ShardId(u16::try_from(socket.0 % count).unwrap());
                    self.sockets.insert(socket, (client, shard));
                    let connection = ConnectionId(socket.0);
                    let peer = format!("10.0.0.{client}:{}", 1_000 + socket.0);
                    let transport = Transport::Tcp;
                    let opened = Event::ConnectionOpened { connection, peer, transport };
                    self.inbox.push_back((shard, opened));
                    self.to_clients.push_back((client, ClientInput::Connected(socket)));
                }
                ClientAction::Send { socket, bytes } => {
                    if let Some(&(_, shard)) = self.sockets.get(&socket) {
                        let frame = BytesMut::from(&bytes[..]);
                        let connection = ConnectionId(socket.0);
                        self.inbox.push_back((shard, Event::Frame { connection, frame }));
                    }
                }
                ClientAction::Close { socket } => {
                    if let Some((_, shard)) = self.sockets.remove(&socket) {
                        let connection = ConnectionId(socket.0);
                        self.inbox.push_back((shard, Event::ConnectionClosed { connection }));
                    }
                }
            }
        }
    }

    fn batch(&mut self) {
        let batch = core::mem::take(&mut self.inbox);
        let mut effects: BTreeMap<ShardId, Vec<Effect>> = BTreeMap::new();
        for (to, event) in batch {
            let out = effects.entry(to).or_default();
            self.shards[usize::from(to.0)].handle(self.now, event, out);
        }
        for (from, mut out) in effects {
            self.shards[usize::from(from.0)].end_of_batch(self.now, &mut out);
            for effect in out {
                self.route(from, effect);
            }
        }
    }

    fn route(&mut self, from: ShardId, effect: Effect) {
        match effect {
            Effect::Reply { connection, parts } => {
                let socket = SocketId(connection.0);
                if let Some(&(client, _)) = self.sockets.get(&socket) {
                    let bytes: Vec<u8> = parts.iter().flatten().copied().collect();
                    let bytes = Bytes::from(bytes);
                    self.to_clients.push_back((client, ClientInput::Frame { socket, bytes }));
                }
            }
            Effect::Close { connection, reason: _ } => {
                let socket = SocketId(connection.0);
                self.inbox.push_back((from, Event::ConnectionClosed { connection }));
                if let Some((client, _)) = self.sockets.remove(&socket) {
                    self.to_clients.push_back((client, ClientInput::Closed(socket)));
                }
            }
            Effect::Disk { ticket, request, .. } => {
                let result = execute(&mut self.disk, &request);
                self.inbox.push_back((from, Event::Disk { ticket, result }));
            }
            Effect::ToShard { to, message } => {
                self.inbox.push_back((to, Event::FromShard { from, message }));
            }
            Effect::Password { ticket, address: _, job } => {
                let outcome = match job {
                    PasswordJob::Verify { password, phc } => {
                        PasswordOutcome::Verified(stored(&password.0).0 == phc)
                    }
                    PasswordJob::Hash { password, salt: _ } => {
                        PasswordOutcome::Hashed(stored(&password.0).0)
                    }
                };
                self.inbox.push_back((from, Event::Password { ticket, outcome }));
            }
            Effect::Archive { ticket, job: _ } => {
                self.inbox.push_back((from, Event::Archive { ticket, archive: None }));
            }
            Effect::Fatal(error) => panic!("the node cannot go on: {error}"),
            _ => {}
        }
    }
}

/// A whole run; panics with what a checker found.
fn run(seed: u64, restart_every: Option<u64>) -> Bench {
    let mut bench = Bench::new(seed, 200);
    bench.ticks();
    bench.phase(&Phase::Work);
    bench.until_done(1_200, restart_every);
    bench.phase(&Phase::Finish);
    bench.until_done(600, None);
    bench.phase(&Phase::Final { nodes: vec![0] });
    bench.until_done(600, None);
    let faulty = restart_every.is_some();
    // A node that was killed goes on above its reservations.
    let unclean_ends = if faulty { vec![Mono(0)] } else { Vec::new() };
    let facts = Facts { faulty, unclean_ends, ..Facts::default() };
    for mut checker in client::all() {
        if let Err(broken) = checker.check(&bench.history, &facts) {
            panic!("seed {seed}, checker {}: {broken}", checker.number());
        }
    }
    assert!(bench.history.confirmed_sends >= 200, "{}", bench.history.confirmed_sends);
    bench
}

fn seeds() -> core::ops::Range<u64> {
    match std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()) {
        Some(count) => 0..count,
        None => 0..16,
    }
}

#[test]
fn runs_without_faults_break_no_checker_and_ask_everything_there_is_to_ask() {
    let mut coverage = Coverage::default();
    let mut looked: BTreeMap<u8, u64> = BTreeMap::new();
    for seed in seeds() {
        let bench = run(seed, None);
        coverage.add(&bench.coverage);
        for mut checker in client::all() {
            let _ = checker.check(&bench.history, &Facts::default());
            *looked.entry(checker.number()).or_default() += checker.looked();
        }
    }
    for &command in CommandCode::ALL {
        let name = entries::name(command);
        assert!(coverage.operations.contains_key(name), "nobody asked for: {name}");
    }
    assert!(looked.values().all(|count| *count > 0), "a checker never looked: {looked:?}");
}

#[test]
fn runs_with_restarts_break_no_checker() {
    for seed in seeds() {
        run(1_000 + seed, Some(700 + 300 * (seed % 7)));
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let lines = |bench: &Bench| -> Vec<String> {
        let history = &bench.history;
        history.numbered().map(|(at, _)| history.line(at)).collect()
    };
    assert_eq!(lines(&run(5, Some(900))), lines(&run(5, Some(900))));
}

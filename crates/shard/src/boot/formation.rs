//! A node of a cluster before it has any state: found the cluster together, or join it.
//!
//! ```text
//!              all others answer "unformatted", and this is the lowest node
//!   asking ──────────────────────────────────────────────▶ founding ──all founded──▶ formed
//!     │ │        "found" from the lowest node
//!     │ └────────────────────────────────────▶ founded ──somebody runs──▶ formed
//!     │ somebody is formatted
//!     └──────────▶ joining: views of enough nodes, a checkpoint of metadata ──▶ formed
//! ```
//!
//! An empty directory is not a new replica: it may have been one that has acknowledged things. So
//! only if *every* other node says, to this very question, that it is empty too, the lowest node
//! mints a cluster; and no node runs, and so none votes, before all of them carry its mark.
//! Otherwise the node joins with must-learn in every log, in the highest view that `n - v + 1`
//! other nodes report (v: the view-change quorum): any quorum that could have promised something
//! in its name reaches one of those.
//!
//! Crash argument. The superblock is written first, with generation 0 and the must-learn marks of
//! one that joins; then the checkpoint. A crash before the superblock finds an empty directory and
//! asks again; one after it finds who it was about to become, and goes on there. Until the first
//! generation begins the node has said nothing but what this module says.

use super::{BootError, BootOptions, BootSeams, Formed, genesis};
use crate::event::{Effect, LogEntry, LogLevel, LogRecord};
use crate::peer::PeerMessage;
use crate::peer::frame::{Destination, PeerHeader, Recipient};
use crate::peer::join::{FormattedAnswer, JoinMessage, JoinStep};
use crate::peer::transfer::{TransferFile, TransferMessage, TransferStep};
use borzoi_consensus::Quorums;
use borzoi_storage::checkpoint::Checkpoint;
use borzoi_storage::disk::{Disk, FileName};
use borzoi_storage::generation::{FormatOptions, format_as};
use borzoi_storage::recovery::{Recovered, RecoveryError, recover};
use borzoi_types::limits::{CHECKPOINT_BYTES_MAX, TRANSFER_CHUNK_BYTES};
use borzoi_types::{ClusterId, Duration, LogId, Mono, Now, Op, ReplicaId, ShardId, View};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// How often open questions are asked again.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// What a directory allows.
pub enum Beginning {
    /// [`super::boot`] can start it as it is.
    Ready,
    /// The other nodes have to be asked first.
    Forming(Box<Formation>),
}

/// What happens to a node that forms.
#[derive(Debug)]
pub enum FormationEvent<'a> {
    /// A frame of another node, whatever shard it was sent to.
    Peer {
        /// From whom, as authenticated by the link.
        from: ReplicaId,
        /// Header and body.
        frame: &'a Bytes,
    },
    /// The deadline has come.
    Tick,
}

#[derive(Debug)]
enum State {
    Asking,
    Founding { cluster: ClusterId, genesis: Bytes, founded: BTreeSet<ReplicaId> },
    Founded { cluster: ClusterId },
    Joining(Joining),
    Formed(Formed),
}

#[derive(Debug)]
struct Joining {
    cluster: ClusterId,
    lanes: (u16, u16),
    /// Per log what each node reports.
    views: BTreeMap<LogId, BTreeMap<ReplicaId, View>>,
    /// The highest generation that anybody has seen of this node.
    seen: u64,
    fetch: Option<Fetch>,
}

/// The metadata checkpoint on its way.
#[derive(Debug)]
struct Fetch {
    from: ReplicaId,
    op: Option<Op>,
    content: Vec<Bytes>,
    offset: u64,
    /// Times it was asked in vain.
    tries: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Formation {
    options: BootOptions,
    state: State,
    nonce: u64,
    /// Nodes that have answered this question with "unformatted".
    unformatted: BTreeSet<ReplicaId>,
    next: Mono,
    minted: ClusterId,
}

/// Looks at a directory: can it be started, or have the others to be asked first?
///
/// # Errors
/// As [`super::boot`].
pub fn begin(
    disk: &mut dyn Disk,
    options: &BootOptions,
    seams: &mut dyn BootSeams,
) -> Result<Beginning, BootError> {
    if options.replica_count == 1 || options.formed.is_some() {
        return Ok(Beginning::Ready);
    }
    let state = match recover(disk) {
        Err(RecoveryError::NotFormatted) => State::Asking,
        found => match state_of(disk, &found?, options, seams)? {
            Some(state) => state,
            None => return Ok(Beginning::Ready),
        },
    };
    let mut random = seams.random(ShardId(0));
    let minted = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let nonce = random.next_u64();
    Ok(Beginning::Forming(Box::new(Formation {
        options: options.clone(),
        state,
        nonce,
        unformatted: BTreeSet::new(),
        next: Mono(0),
        minted: ClusterId(minted.max(1)),
    })))
}

/// What a directory that was formatted and never started was about to become.
fn state_of(
    disk: &mut dyn Disk,
    found: &Recovered,
    options: &BootOptions,
    seams: &mut dyn BootSeams,
) -> Result<Option<State>, BootError> {
    let superblock = &found.superblock;
    if superblock.generation > 0 || superblock.replica_count == 1 {
        return Ok(None);
    }
    let cluster = superblock.cluster;
    if !superblock.must_learn.is_empty() {
        let lanes = (superblock.lanes_persisted, superblock.lanes_replicated);
        let (views, seen) = (BTreeMap::new(), u64::from(superblock.epoch.saturating_sub(1)) << 32);
        return Ok(Some(State::Joining(Joining { cluster, lanes, views, seen, fetch: None })));
    }
    let file = FileName::Checkpoint { log: LogId::METADATA, op: Op::ZERO };
    if !lowest(options) {
        return Ok(Some(State::Founded { cluster }));
    }
    let genesis = match disk.len(&file)? {
        Some(bytes) => disk.read(&file, 0, bytes)?,
        // It died in between: nobody has been told of this cluster yet.
        None => {
            // Nor may anything be written before the superblock's name is durable.
            disk.sync(&FileName::Superblock)?;
            write_genesis(disk, options, seams)?
        }
    };
    Ok(Some(State::Founding { cluster, genesis, founded: BTreeSet::new() }))
}

/// The first checkpoint of metadata, written here and to be written by everyone.
fn write_genesis(
    disk: &mut dyn Disk,
    options: &BootOptions,
    seams: &mut dyn BootSeams,
) -> Result<Bytes, BootError> {
    let genesis = genesis(options.lanes, seams)?;
    let content = genesis.encode();
    disk.durable_replace(&genesis.file(), content.parts())?;
    Ok(content.to_bytes())
}

fn lowest(options: &BootOptions) -> bool {
    options.replica == ReplicaId(0)
}

impl Formation {
    /// What was agreed on; the node can be started with it.
    #[must_use]
    pub const fn formed(&self) -> Option<&Formed> {
        match &self.state {
            State::Formed(formed) => Some(formed),
            _ => None,
        }
    }

    /// When a tick is wanted.
    #[must_use]
    pub const fn deadline(&self) -> Mono {
        self.next
    }

    /// In words, for a human who waits.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.state {
            State::Asking => format!(
                "an empty directory: {} of {} other nodes have said that they are empty too",
                self.unformatted.len(),
                self.options.replica_count - 1
            ),
            State::Founding { founded, .. } => format!(
                "founding a cluster: {} of {} other nodes carry its mark",
                founded.len(),
                self.options.replica_count - 1
            ),
            State::Founded { .. } => "founded: waiting for node 0".to_owned(),
            State::Joining(_) => {
                "joining: asking the other nodes for views and metadata".to_owned()
            }
            State::Formed(_) => "formed".to_owned(),
        }
    }

    /// Takes one event.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn handle(
        &mut self,
        now: Now,
        event: FormationEvent<'_>,
        disk: &mut dyn Disk,
        seams: &mut dyn BootSeams,
        effects: &mut Vec<Effect>,
    ) -> Result<(), BootError> {
        match event {
            FormationEvent::Peer { from, frame } => {
                // What fails a check is dropped, as on any link.
                if let Ok((header, body)) = PeerHeader::check(frame, from, &self.recipient())
                    && let Ok(message) = PeerMessage::decode(&header, body)
                {
                    self.message(from, message, disk, effects)?;
                }
            }
            FormationEvent::Tick => {
                if self.next <= now.mono {
                    self.next = now.mono.plus(ASK_EVERY);
                    self.ask(effects);
                }
            }
        }
        self.advance(disk, seams, effects)
    }

    fn cluster(&self) -> ClusterId {
        match &self.state {
            State::Asking => ClusterId(0),
            State::Founding { cluster, .. } | State::Founded { cluster } => *cluster,
            State::Joining(joining) => joining.cluster,
            State::Formed(formed) => formed.cluster,
        }
    }

    fn recipient(&self) -> Recipient {
        Recipient {
            cluster: self.cluster(),
            replica: self.options.replica,
            replica_count: self.options.replica_count,
            shards: self.options.shards,
            lanes: self.options.lanes.count(),
        }
    }

    fn others(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let own = self.options.replica;
        (0..self.options.replica_count).map(ReplicaId).filter(move |replica| *replica != own)
    }

    fn send(&self, to: ReplicaId, message: &PeerMessage, effects: &mut Vec<Effect>) {
        let generation = match &self.state {
            // Above everything that an earlier life of this node has shown.
            State::Joining(joining) => next_epoch(joining.seen) << 32,
            _ => 0,
        };
        let header = PeerHeader {
            cluster: self.cluster(),
            sender: self.options.replica,
            generation,
            sender_shard: ShardId(0),
            sender_shards: self.options.shards,
            kind: message.kind(),
            destination: Destination::Link,
        };
        let header = PeerHeader { destination: message.destination(), ..header };
        effects.push(Effect::ToPeer { to, parts: header.frame(&message.encode()) });
    }

    fn say(&self, to: ReplicaId, nonce: u64, step: JoinStep, effects: &mut Vec<Effect>) {
        self.send(to, &PeerMessage::Join(JoinMessage { nonce, step }), effects);
    }

    fn log(level: LogLevel, text: String, effects: &mut Vec<Effect>) {
        effects.push(Effect::Log(LogRecord { level, entry: LogEntry::Text(text) }));
    }

    /// Asks everything that is open, again.
    fn ask(&mut self, effects: &mut Vec<Effect>) {
        for to in self.others() {
            match &self.state {
                State::Founding { cluster, genesis, founded } if !founded.contains(&to) => {
                    let (cluster, genesis) = (*cluster, genesis.clone());
                    self.say(to, self.nonce, JoinStep::Found { cluster, genesis }, effects);
                }
                State::Founding { .. } | State::Formed(_) => {}
                State::Asking | State::Founded { .. } | State::Joining(_) => {
                    self.say(to, self.nonce, JoinStep::Ask, effects);
                }
            }
        }
        self.ask_for_checkpoint(effects);
    }

    fn message(
        &mut self,
        from: ReplicaId,
        message: PeerMessage,
        disk: &mut dyn Disk,
        effects: &mut Vec<Effect>,
    ) -> Result<(), BootError> {
        match message {
            PeerMessage::Join(JoinMessage { nonce, step: JoinStep::Ask }) => {
                self.answer(from, nonce, effects);
                Ok(())
            }
            PeerMessage::Join(JoinMessage {
                nonce,
                step: JoinStep::Found { cluster, genesis },
            }) => self.found(from, nonce, cluster, genesis, disk, effects),
            PeerMessage::Join(JoinMessage { nonce, step }) if nonce == self.nonce => {
                self.answered(from, step, effects);
                Ok(())
            }
            PeerMessage::Transfer(message) => {
                self.checkpoint_step(from, message, effects);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn answer(&self, to: ReplicaId, nonce: u64, effects: &mut Vec<Effect>) {
        let step = match &self.state {
            State::Asking => JoinStep::Unformatted,
            State::Founding { cluster, genesis, .. } => {
                JoinStep::Found { cluster: *cluster, genesis: genesis.clone() }
            }
            State::Founded { cluster } => JoinStep::Founded { cluster: *cluster },
            // It is about to become formatted, or runs in a moment: asked again, it will say so.
            State::Joining(_) | State::Formed(_) => return,
        };
        self.say(to, nonce, step, effects);
    }

    /// The lowest node says that all are new.
    fn found(
        &mut self,
        from: ReplicaId,
        nonce: u64,
        cluster: ClusterId,
        content: Bytes,
        disk: &mut dyn Disk,
        effects: &mut Vec<Effect>,
    ) -> Result<(), BootError> {
        let intact = Checkpoint::decode(&content)
            .is_ok_and(|genesis| genesis.log.is_metadata() && genesis.op == Op::ZERO);
        let new = match &self.state {
            State::Asking => true,
            State::Founded { cluster: own } => *own == cluster,
            _ => false,
        };
        if from != ReplicaId(0) || lowest(&self.options) || !intact || !new {
            return Ok(());
        }
        if matches!(self.state, State::Asking) {
            format_as(disk, &self.format_options(cluster, BTreeSet::new()), 0)?;
            Self::log(LogLevel::Info, "founding a cluster with node 0".to_owned(), effects);
        }
        let file = FileName::Checkpoint { log: LogId::METADATA, op: Op::ZERO };
        disk.durable_replace(&file, &[content])?;
        self.state = State::Founded { cluster };
        self.say(from, nonce, JoinStep::Founded { cluster }, effects);
        Ok(())
    }

    fn format_options(&self, cluster: ClusterId, must_learn: BTreeSet<LogId>) -> FormatOptions {
        let lanes = |count: u32| u16::try_from(count).expect("limited to LANES_MAX");
        FormatOptions {
            cluster,
            replica: self.options.replica,
            replica_count: self.options.replica_count,
            lanes_persisted: lanes(self.options.lanes.persisted),
            lanes_replicated: lanes(self.options.lanes.replicated),
            must_learn,
        }
    }

    fn answered(&mut self, from: ReplicaId, step: JoinStep, effects: &mut Vec<Effect>) {
        match (&mut self.state, step) {
            (State::Asking, JoinStep::Unformatted) => {
                self.unformatted.insert(from);
            }
            (State::Founding { cluster, founded, .. }, JoinStep::Founded { cluster: said })
                if *cluster == said =>
            {
                founded.insert(from);
            }
            (State::Founded { cluster }, JoinStep::Formatted(answer))
                if *cluster == answer.cluster =>
            {
                self.state = State::Formed(Formed::founded(answer.cluster));
            }
            (State::Asking, JoinStep::Formatted(answer)) => {
                let text = format!("joining the cluster of node {from} with an empty directory");
                Self::log(LogLevel::Warn, text, effects);
                let joining = Joining {
                    cluster: answer.cluster,
                    lanes: (answer.lanes_persisted, answer.lanes_replicated),
                    views: BTreeMap::new(),
                    seen: 0,
                    fetch: None,
                };
                self.state = State::Joining(joining);
                self.note_views(from, answer);
            }
            (State::Joining(_), JoinStep::Formatted(answer)) => self.note_views(from, answer),
            _ => {}
        }
    }

    fn note_views(&mut self, from: ReplicaId, answer: FormattedAnswer) {
        let State::Joining(joining) = &mut self.state else { return };
        let lanes = (answer.lanes_persisted, answer.lanes_replicated);
        if (answer.cluster, lanes) != (joining.cluster, joining.lanes) {
            return; // Of another cluster: the human who mixed them up is told by what is missing.
        }
        joining.seen = joining.seen.max(answer.seen);
        for (log, view) in answer.views {
            let reported = joining.views.entry(log).or_default().entry(from).or_default();
            *reported = (*reported).max(view);
        }
    }

    /// Does whatever has become possible.
    fn advance(
        &mut self,
        disk: &mut dyn Disk,
        seams: &mut dyn BootSeams,
        effects: &mut Vec<Effect>,
    ) -> Result<(), BootError> {
        let others = usize::from(self.options.replica_count) - 1;
        match &self.state {
            State::Asking if lowest(&self.options) && self.unformatted.len() == others => {
                let cluster = self.minted;
                format_as(disk, &self.format_options(cluster, BTreeSet::new()), 0)?;
                let genesis = write_genesis(disk, &self.options, seams)?;
                Self::log(LogLevel::Info, "all nodes are new: founding".to_owned(), effects);
                self.state = State::Founding { cluster, genesis, founded: BTreeSet::new() };
                self.ask(effects);
            }
            State::Founding { cluster, founded, .. } if founded.len() == others => {
                self.state = State::Formed(Formed::founded(*cluster));
            }
            State::Joining(joining) if joining.fetch.is_none() && self.has_views(joining) => {
                self.choose_source();
                self.ask_for_checkpoint(effects);
            }
            State::Joining(_) => self.finish_joining(disk)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether enough nodes have reported the view of every log.
    fn has_views(&self, joining: &Joining) -> bool {
        let count = self.options.replica_count;
        let enough = usize::from(count - Quorums::of(count).view_change + 1);
        let logs = 0..=u32::from(joining.lanes.0) + u32::from(joining.lanes.1);
        let reported = |log: u32| joining.views.get(&LogId(log)).map_or(0, BTreeMap::len);
        logs.into_iter().all(|log| reported(log) >= enough.min(usize::from(count) - 1))
    }

    fn choose_source(&mut self) {
        let State::Joining(joining) = &mut self.state else { return };
        let Some(reports) = joining.views.get(&LogId::METADATA) else { return };
        // Another one than last time, if the last one did not answer.
        let last = joining.fetch.as_ref().map(|fetch| fetch.from);
        let after = reports.keys().find(|replica| last.is_none_or(|last| **replica > last));
        let Some(from) = after.or_else(|| reports.keys().next()).copied() else { return };
        let (content, offset, tries) = (Vec::new(), 0, 0);
        joining.fetch = Some(Fetch { from, op: None, content, offset, tries });
    }

    fn ask_for_checkpoint(&mut self, effects: &mut Vec<Effect>) {
        let State::Joining(Joining { fetch: Some(fetch), .. }) = &mut self.state else { return };
        fetch.tries += 1;
        if fetch.tries > 5 {
            self.choose_source();
        }
        let State::Joining(Joining { fetch: Some(fetch), .. }) = &self.state else { return };
        let step = match fetch.op {
            None => TransferStep::Ask { at_least: Op::ZERO },
            Some(op) => {
                TransferStep::Read { file: TransferFile::Checkpoint(op), offset: fetch.offset }
            }
        };
        let message = TransferMessage { log: LogId::METADATA, request: self.nonce, step };
        self.send(fetch.from, &PeerMessage::Transfer(message), effects);
    }

    fn checkpoint_step(
        &mut self,
        from: ReplicaId,
        message: TransferMessage,
        effects: &mut Vec<Effect>,
    ) {
        let State::Joining(Joining { fetch: Some(fetch), .. }) = &mut self.state else { return };
        if from != fetch.from || message.request != self.nonce || !message.log.is_metadata() {
            return;
        }
        match message.step {
            TransferStep::Offer { op } if fetch.op.is_none() => fetch.op = Some(op),
            TransferStep::Chunk { file, offset, bytes }
                if Some(file) == fetch.op.map(TransferFile::Checkpoint)
                    && offset == fetch.offset
                    && offset < CHECKPOINT_BYTES_MAX =>
            {
                let last = bytes.len() < TRANSFER_CHUNK_BYTES;
                fetch.offset += bytes.len() as u64;
                fetch.content.push(bytes);
                if last {
                    return; // `finish_joining` looks at it.
                }
            }
            TransferStep::Gone => {
                let from = fetch.from;
                (fetch.op, fetch.offset) = (None, 0);
                fetch.content.clear();
                Self::log(LogLevel::Info, format!("node {from} has no checkpoint yet"), effects);
                return; // Asked again with the next tick.
            }
            _ => return,
        }
        fetch.tries = 0;
        self.ask_for_checkpoint(effects);
    }

    /// Writes the superblock and the metadata once both are known.
    fn finish_joining(&mut self, disk: &mut dyn Disk) -> Result<(), BootError> {
        let State::Joining(joining) = &self.state else { return Ok(()) };
        let Some(fetch) = &joining.fetch else { return Ok(()) };
        let complete = fetch.content.last().is_some_and(|last| last.len() < TRANSFER_CHUNK_BYTES);
        let Some(op) = fetch.op.filter(|_| complete) else { return Ok(()) };
        let content = Bytes::from(fetch.content.concat());
        let intact = Checkpoint::decode(&content)
            .is_ok_and(|checkpoint| checkpoint.log.is_metadata() && checkpoint.op == op);
        if !intact {
            self.choose_source();
            return Ok(());
        }
        let (cluster, epoch) = (joining.cluster, next_epoch(joining.seen));
        let highest = |reports: &BTreeMap<ReplicaId, View>| reports.values().max().copied();
        let views = joining.views.iter();
        let views = views.map(|(log, reports)| (*log, highest(reports).unwrap_or_default()));
        let views: BTreeMap<LogId, View> = views.collect();
        let all: BTreeSet<LogId> = views.keys().copied().collect();
        if matches!(recover(disk), Err(RecoveryError::NotFormatted)) {
            let mut wanted = self.format_options(cluster, all);
            (wanted.lanes_persisted, wanted.lanes_replicated) = joining.lanes;
            let epoch = u32::try_from(epoch).unwrap_or(u32::MAX);
            format_as(disk, &wanted, epoch)?;
        }
        let file = FileName::Checkpoint { log: LogId::METADATA, op };
        disk.durable_replace(&file, &[content])?;
        self.state = State::Formed(Formed { cluster, views });
        Ok(())
    }
}

/// The first epoch that nobody has seen of this node.
const fn next_epoch(seen: u64) -> u64 {
    (seen >> 32) + 1
}

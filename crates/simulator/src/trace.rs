//! What happened, as one number and, when wanted, as text.
//!
//! The number is a rolling hash over every event, effect and decision, so two runs of one seed can
//! be compared byte for byte without keeping either. The text is made only in a run that keeps it:
//! a failure is run again with it, which costs nothing because the seed decides everything.

use borzoi_shard::{Effect, Event, ShardMessage};
use borzoi_storage::disk::{DiskOutcome, DiskRequest, DiskResult};
use borzoi_types::Mono;
use borzoi_types::checksum::xxh3_64_seeded;
use bytes::Bytes;
use core::fmt::Write as _;
use std::collections::VecDeque;

/// How much text to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// None.
    Nothing,
    /// The last so many lines.
    Last(usize),
    /// Everything.
    All,
}

/// See the module.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    keep: Keep,
    lines: VecDeque<String>,
    scratch: String,
}

impl Trace {
    /// An empty trace.
    #[must_use]
    pub fn new(keep: Keep) -> Self {
        let (lines, scratch) = (VecDeque::new(), String::new());
        Self { hash: 0x6272_7a69, events: 0, keep, lines, scratch }
    }

    /// The hash over everything so far.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Events handled by shards so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The text that was kept.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Takes the text that was kept.
    pub fn take_lines(&mut self) -> Vec<String> {
        core::mem::take(&mut self.lines).into()
    }

    /// Something happened in the world; `text` enters the hash.
    pub fn note(&mut self, now: Mono, text: impl FnOnce(&mut String)) {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        text(&mut scratch);
        self.fold(now, &scratch);
        self.scratch = scratch;
    }

    /// A shard takes an event.
    pub fn event(&mut self, now: Mono, node: usize, shard: usize, event: &Event) {
        self.events += 1;
        self.note(now, |out| {
            let _ = write!(out, "{node}.{shard} <- ");
            describe_event(event, out);
        });
    }

    /// A shard emits an effect.
    pub fn effect(&mut self, now: Mono, node: usize, shard: usize, effect: &Effect) {
        self.note(now, |out| {
            let _ = write!(out, "{node}.{shard} -> ");
            describe_effect(effect, out);
        });
    }

    fn fold(&mut self, now: Mono, text: &str) {
        self.hash = xxh3_64_seeded(self.hash ^ now.0, text.as_bytes());
        let limit = match self.keep {
            Keep::Nothing => return,
            Keep::Last(lines) => lines,
            Keep::All => usize::MAX,
        };
        while self.lines.len() >= limit.max(1) {
            self.lines.pop_front();
        }
        let micros = now.0 / 1_000;
        self.lines.push_back(format!("{:>6}.{:06} {text}", micros / 1_000_000, micros % 1_000_000));
    }
}

fn digest<'a>(parts: impl Iterator<Item = &'a Bytes>) -> (usize, u64) {
    parts.fold((0, 0), |(len, hash), part| (len + part.len(), xxh3_64_seeded(hash, part)))
}

fn describe_event(event: &Event, out: &mut String) {
    let _ = match event {
        Event::Frame { connection, frame } => {
            let operation = frame.get(OPERATION_AT).copied().unwrap_or(0);
            let hash = xxh3_64_seeded(0, frame);
            write!(out, "frame c{} op {operation} {}B {hash:016x}", connection.0, frame.len())
        }
        Event::Disk { ticket, result } => {
            let _ = write!(out, "disk t{} ", ticket.0);
            describe_result(result, out);
            Ok(())
        }
        Event::FromShard { from, message } => {
            let _ = write!(out, "from shard {from}: ");
            describe_message(message, out);
            Ok(())
        }
        Event::Peer { from, frame } => {
            write!(out, "peer {from} {}B {:016x}", frame.len(), xxh3_64_seeded(0, frame))
        }
        other => write!(out, "{other:?}"),
    };
}

/// Where client frames carry their operation.
const OPERATION_AT: usize = 176;

fn describe_effect(effect: &Effect, out: &mut String) {
    let _ = match effect {
        Effect::Reply { connection, parts } => {
            let (len, hash) = digest(parts.iter());
            write!(out, "reply c{} {len}B {hash:016x}", connection.0)
        }
        Effect::Disk { queue, ticket, request } => {
            let _ = write!(out, "disk t{} {queue:?} ", ticket.0);
            describe_request(request, out);
            Ok(())
        }
        Effect::ToPeer { to, parts } => {
            let (len, hash) = digest(parts.iter());
            write!(out, "to peer {to} {len}B {hash:016x}")
        }
        Effect::ToShard { to, message } => {
            let _ = write!(out, "to shard {to}: ");
            describe_message(message, out);
            Ok(())
        }
        other => write!(out, "{other:?}"),
    };
}

fn describe_result(result: &DiskResult, out: &mut String) {
    let _ = match result {
        Ok(DiskOutcome::Done) => write!(out, "done"),
        Ok(DiskOutcome::Data(data)) => {
            write!(out, "data {}B {:016x}", data.len(), xxh3_64_seeded(0, data))
        }
        Err(error) => write!(out, "failed: {error}"),
    };
}

fn describe_request(request: &DiskRequest, out: &mut String) {
    let file = request.file();
    let _ = match request {
        DiskRequest::CreateZeroed { bytes, .. } => write!(out, "create {file} {bytes}B"),
        DiskRequest::Write { offset, parts, .. } => {
            let (len, hash) = digest(parts.iter());
            write!(out, "write {file} at {offset} {len}B {hash:016x}")
        }
        DiskRequest::Sync { .. } => write!(out, "sync {file}"),
        DiskRequest::Read { offset, bytes, .. } => write!(out, "read {file} at {offset} {bytes}B"),
        DiskRequest::DurableReplace { parts, .. } => {
            let (len, hash) = digest(parts.iter());
            write!(out, "replace {file} {len}B {hash:016x}")
        }
        DiskRequest::Remove { .. } => write!(out, "remove {file}"),
        DiskRequest::SetAside { .. } => write!(out, "set aside {file}"),
    };
}

fn describe_message(message: &ShardMessage, out: &mut String) {
    let _ = match message {
        ShardMessage::Lane(request) => write!(
            out,
            "lane request {:?} lane {} key {}",
            request.origin, request.lane, request.key
        ),
        ShardMessage::LaneReply { ticket, reply } => {
            let _ = write!(out, "lane reply {ticket:?} ");
            shortened(reply, out);
            Ok(())
        }
        other => {
            shortened(other, out);
            Ok(())
        }
    };
}

/// The beginning of a value's debug text; long values are told apart by their first bytes and by
/// what follows from them.
fn shortened(value: &impl core::fmt::Debug, out: &mut String) {
    /// Stops formatting when there is enough.
    struct Limited<'a> {
        out: &'a mut String,
        left: usize,
    }
    impl core::fmt::Write for Limited<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            for c in text.chars() {
                if self.left == 0 {
                    return Err(core::fmt::Error);
                }
                self.out.push(c);
                self.left -= 1;
            }
            Ok(())
        }
    }
    let _ = write!(Limited { out, left: 160 }, "{value:?}");
}

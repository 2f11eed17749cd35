//! Named scenarios: short texts that read like prose and are kept for ever, each about one thing
//! that must hold. They lie in `crates/simulator/scenarios`, one a file.
//!
//! ```text
//! # A torn end of the journal is cut, and nothing confirmed is lost.
//! one node
//! node 0 starts
//! topic orders is created, persisted
//! 10 messages are sent to orders
//! 5 messages are being sent to orders
//! power is cut at node 0, tearing what was not synced
//! node 0 starts
//! orders holds every confirmed message
//! ```
//!
//! A line is one step; a line that starts with `#` is for the reader. Steps wait until what they
//! say has happened, unless they say otherwise ("are being sent").

mod damage;
mod hand;
mod steps;

pub use hand::{Desk, Hand, Job};

use crate::faults::Profile;
use crate::run::{Failure, guarded};
use crate::trace::Keep;
use crate::world::World;
use borzoi_shard::Lanes;
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::Duration;
use std::cell::RefCell;
use std::rc::Rc;

/// How long a step may take.
const STEP_WITHIN: Duration = Duration::from_secs(60);

/// A scenario that runs.
pub struct Story {
    /// The world it happens in.
    pub world: World,
    desk: Rc<RefCell<Desk>>,
    shards: u16,
    copies: Vec<Option<SimDisk>>,
}

impl Story {
    fn new(nodes: usize, keep: Keep) -> Self {
        let mut profile = Profile::draw(1, Some(nodes));
        profile.calm();
        profile.lanes = Lanes { persisted: 2, replicated: 1 };
        profile.journal = JournalOptions { file_bytes: 512 * 1024, files_max: 4 };
        profile.checkpoint_interval = Duration::from_millis(200);
        profile.lease = 16;
        let desk = Rc::new(RefCell::new(Desk { roams: nodes > 1, ..Desk::default() }));
        let hand = Hand::new(Rc::clone(&desk));
        let mut world = World::new(profile, vec![Box::new(hand)], keep);
        world.revives = false;
        desk.borrow_mut().jobs.push_back(Job::CreateStream);
        world.client_input(0, crate::clients::ClientInput::Tick);
        Self { world, desk, shards: 2, copies: (0..nodes).map(|_| None).collect() }
    }

    /// Gives the hand something to do.
    fn ask(&mut self, job: Job) {
        self.desk.borrow_mut().jobs.push_back(job);
        self.world.client_input(0, crate::clients::ClientInput::Tick);
    }

    /// Runs until the hand has nothing left to do.
    fn finish_jobs(&mut self) {
        let done = self.world.run_while_not(STEP_WITHIN, World::clients_done);
        assert!(done, "the client does not come to an end: {}", self.world.clients[0].describe());
    }

    fn send(&mut self, topic: &str, count: u64, bytes: usize) {
        for _ in 0..count {
            let number = {
                let mut desk = self.desk.borrow_mut();
                desk.sends += 1;
                desk.sends
            };
            let mut payload = format!("message {number} ").into_bytes();
            payload.resize(payload.len().max(bytes), b'.');
            self.ask(Job::Send { topic: topic.to_owned(), payloads: vec![payload] });
        }
    }

    /// Reads a topic and compares it with what was confirmed.
    fn holds_every_confirmed(&mut self, topic: &str) {
        self.ask(Job::Read(topic.to_owned()));
        self.finish_jobs();
        let desk = self.desk.borrow();
        let found = desk.found.get(topic).cloned().unwrap_or_default();
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "offsets of {topic} rise");
        for message in desk.confirmed.get(topic).into_iter().flatten() {
            let text = String::from_utf8_lossy(&message.1[..message.1.len().min(24)]).into_owned();
            assert!(found.contains(message), "{topic} lost {text:?} at offset {}", message.0);
        }
    }
}

/// Runs the text of a scenario.
///
/// # Errors
/// What went wrong, with the line at which it did, the end of the trace and the state of the world.
pub fn run(text: &str, keep: Keep) -> Result<(), Failure> {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut story: Option<Story> = None;
    let mut at = 0;
    let result = guarded(|| {
        for (number, line) in &lines {
            at = *number;
            match &mut story {
                None => story = Some(Story::new(steps::nodes(line), keep)),
                Some(story) => story.step(line),
            }
        }
        if let Some(story) = &mut story {
            story.end();
        }
    });
    let Err(message) = result else { return Ok(()) };
    let line = text.lines().nth(at.saturating_sub(1)).unwrap_or_default();
    let (trace, state) = story.map_or((Vec::new(), String::new()), |mut story| {
        (story.world.trace.take_lines(), story.world.describe())
    });
    Err(Failure { message: format!("line {at}: {line}\n  {message}"), trace, state })
}

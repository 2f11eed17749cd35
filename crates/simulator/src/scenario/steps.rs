//! What the lines of a scenario mean.

use super::{Job, STEP_WITHIN, Story};
use crate::faults::FaultKind;
use crate::world::End;
use borzoi_storage::disk::{Disk as _, DiskErrorKind, DiskOperation};
use borzoi_storage::sim_disk::Fault;
use borzoi_types::Duration;

/// How many nodes the first line of a scenario speaks of.
pub(super) fn nodes(line: &str) -> usize {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["one", "node"] => 1,
        [count, "nodes"] => match *count {
            "three" => 3,
            "five" => 5,
            other => panic!("a cluster of {other} nodes is not foreseen"),
        },
        _ => panic!("a scenario begins with \"one node\" or \"three nodes\", not {line:?}"),
    }
}

fn number(text: &str) -> u64 {
    text.trim_end_matches(',').parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn index(text: &str) -> usize {
    usize::try_from(number(text)).expect("small")
}

fn span(amount: &str, unit: &str) -> Duration {
    match unit.trim_end_matches(',') {
        "ms" => Duration::from_millis(number(amount)),
        "s" => Duration::from_secs(number(amount)),
        other => panic!("{other:?} is not a unit of time"),
    }
}

/// Percent of what was not synced that is lost.
fn losing(words: &[&str]) -> u64 {
    match words {
        ["losing", ..] => 100,
        ["keeping", ..] => 0,
        ["tearing", ..] => 50,
        other => panic!("what becomes of what was not synced? {other:?}"),
    }
}

impl Story {
    /// Does what a line says.
    pub(super) fn step(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let known = self.settings(&words)
            || self.clients(&words)
            || self.processes(&words)
            || self.disks(&words)
            || self.damages(&words)
            || self.each(&words)
            || self.expectations(&words);
        assert!(known, "nobody knows how to do this");
    }

    /// The end of every scenario: nothing may wait anywhere.
    pub(super) fn end(&mut self) {
        if self.world.nodes.iter().any(|node| !node.is_up()) {
            return;
        }
        self.finish_jobs();
        self.world.run_for(Duration::from_secs(2));
        self.world.checks.at_rest(&mut self.world.nodes);
    }

    fn settings(&mut self, words: &[&str]) -> bool {
        match words {
            ["each", "node", "has", count, "shards" | "shard"] => {
                self.shards = u16::try_from(number(count)).expect("few shards");
                self.world.shards_wanted = Some(self.shards);
            }
            ["checkpoints", "come", "every", amount, unit] => {
                self.world.profile.checkpoint_interval = span(amount, unit);
            }
            ["offsets", "are", "reserved", "by", count] => {
                self.world.profile.lease = number(count);
            }
            ["journal", "files", "have", count, "KiB"] => {
                self.world.profile.journal.file_bytes = number(count) * 1024;
            }
            ["flushes", "take", amount, unit] => {
                let micros = span(amount, unit).as_micros();
                self.world.profile.disk.flush = crate::faults::Range(micros, micros);
            }
            _ => return false,
        }
        true
    }

    fn clients(&mut self, words: &[&str]) -> bool {
        match words {
            ["topic", name, "is", "created,", level] => {
                let (name, level) = ((*name).to_owned(), (*level).to_owned());
                self.ask(Job::CreateTopic { name, level, partitions: 1 });
                self.finish_jobs();
            }
            ["topic", name, "is", "deleted"] => {
                self.ask(Job::DeleteTopic((*name).to_owned()));
                self.finish_jobs();
                self.desk.borrow_mut().confirmed.remove(*name);
            }
            [count, "messages", "are", "sent", "to", topic] => {
                self.send(topic, number(count), 0);
                self.finish_jobs();
            }
            [count, "messages", "of", bytes, "bytes", "are", "sent", "to", topic] => {
                self.send(topic, number(count), index(bytes));
                self.finish_jobs();
            }
            [count, "messages", "are", "being", "sent", "to", topic] => {
                self.send(topic, number(count), 0);
            }
            [count, "messages", "of", bytes, "bytes", "are", "being", "sent", "to", topic] => {
                self.send(topic, number(count), index(bytes));
            }
            ["the", "client", "talks", "to", "node", node] => {
                let mut desk = self.desk.borrow_mut();
                (desk.node, desk.roams) = (index(node), false);
            }
            ["the", "client", "talks", "to", "every", "node"] => {
                self.desk.borrow_mut().roams = true;
            }
            ["everything", "sent", "is", "confirmed"] => self.finish_jobs(),
            _ => return false,
        }
        true
    }

    fn processes(&mut self, words: &[&str]) -> bool {
        match words {
            ["node", node, "starts"] => self.start(index(node)),
            ["node", node, "starts", "with", count, "shards" | "shard"] => {
                self.world.shards_wanted = Some(u16::try_from(number(count)).expect("few"));
                self.start(index(node));
            }
            ["every", "node", "starts"] => {
                for node in 0..self.world.nodes.len() {
                    self.world.schedule_boot(node, 10);
                }
                self.wait_up();
            }
            ["node", node, "is", "killed"] => self.world.end(index(node), End::Kill),
            ["power", "is", "cut", "at", "node", node, rest @ ..] => {
                self.world.profile.lost_percent = losing(rest);
                self.world.end(index(node.trim_end_matches(',')), End::PowerCut);
            }
            ["power", "is", "cut", "everywhere,", rest @ ..] => {
                self.world.profile.lost_percent = losing(rest);
                self.world.strike(FaultKind::PowerCutAll, 0);
            }
            ["node", node, "stops", "cleanly"] => {
                let node = index(node);
                self.world.stop(node);
                let done = self.world.run_while_not(STEP_WITHIN, |w| !w.nodes[node].is_up());
                assert!(done, "the stop does not come to an end");
            }
            ["node", node, "stands", "still", "for", amount, unit] => {
                let until = self.world.now.plus(span(amount, unit));
                self.world.nodes[index(node)].paused_until = until;
            }
            [amount, "ms", "pass"] => self.world.run_for(span(amount, "ms")),
            [amount, "s", "pass"] => self.world.run_for(span(amount, "s")),
            ["node", a, "is", "cut", "off"] => {
                let a = index(a);
                for b in (0..self.world.nodes.len()).filter(|b| *b != a) {
                    self.world.network.cut_both(a, b, true);
                }
            }
            ["nothing", "passes", "from", "node", a, "to", "node", b] => {
                self.world.network.cut(index(a), index(b), true);
            }
            ["the", "network", "heals"] => self.world.network.heal(),
            _ => return false,
        }
        true
    }

    fn start(&mut self, node: usize) {
        self.world.schedule_boot(node, 10);
        let done = self.world.run_while_not(STEP_WITHIN, |world| world.nodes[node].is_up());
        let refusal = self.world.nodes[node].refusal.clone().unwrap_or_default();
        assert!(done, "node {node} does not start: {refusal}");
    }

    fn wait_up(&mut self) {
        let up = self
            .world
            .run_while_not(STEP_WITHIN, |world| world.nodes.iter().all(|node| node.is_up()));
        assert!(up, "not every node starts");
    }

    fn disks(&mut self, words: &[&str]) -> bool {
        match words {
            ["the", "disk", "of", "node", node, "is", "full"] => {
                let disk = &mut self.world.nodes[index(node)].disk;
                disk.set_capacity(Some(1 << 50));
                let free = disk.free_bytes().expect("a simulated disk tells");
                disk.set_capacity(Some((1 << 50) - free));
            }
            ["the", "disk", "of", "node", node, "has", "room", "again"] => {
                self.world.nodes[index(node)].disk.set_capacity(None);
            }
            ["the", "disk", "of", "node", node, "is", "stuck", "for", amount, unit] => {
                let until = self.world.now.plus(span(amount, unit));
                self.world.nodes[index(node)].stuck_until = until;
            }
            ["the", "disk", "of", "node", node, "is", "slow", "for", amount, unit] => {
                let until = self.world.now.plus(span(amount, unit));
                self.world.nodes[index(node)].slow_until = until;
            }
            ["the", "next", what, "of", "node", node, "fails"] => {
                let operation = match *what {
                    "write" => DiskOperation::Write,
                    "flush" => DiskOperation::Sync,
                    "replacement" => DiskOperation::Replace,
                    "removal" => DiskOperation::Remove,
                    "creation" => DiskOperation::Create,
                    "read" => DiskOperation::Read,
                    other => panic!("a {other} is not a disk operation"),
                };
                let kind = DiskErrorKind::Io;
                let fault = Fault { operation, file: None, after: 0, kind, lasting: false };
                self.world.nodes[index(node)].disk.inject(fault);
            }
            ["the", "disk", "of", "node", node, "is", "sound", "again"] => {
                self.world.nodes[index(node)].disk.heal();
            }
            ["the", "clock", "of", "node", node, "steps", "by", seconds, "s"] => {
                let seconds: i64 = seconds.parse().expect("a number of seconds");
                self.world.nodes[index(node)].clock.step(seconds * 1_000_000);
            }
            ["the", "data", "directory", "of", "node", node, "is", "copied"] => {
                let node = index(node);
                self.copies[node] = Some(self.world.nodes[node].disk.kill());
            }
            ["the", "copy", "is", "put", "back", "on", "node", node] => {
                let node = index(node);
                let copy = self.copies[node].take().expect("a copy was made");
                assert!(!self.world.nodes[node].is_up(), "the node is down meanwhile");
                self.world.nodes[node].disk = copy;
                self.world.forget_what_was_known(node);
            }
            _ => return false,
        }
        true
    }

    /// A crash at each of the next disk steps, with the same thing going on each time.
    fn each(&mut self, words: &[&str]) -> bool {
        let (end, node, steps, doing) = match words {
            [
                "node",
                node,
                "is",
                "killed",
                "at",
                "each",
                "of",
                "the",
                "next",
                steps,
                "disk",
                "steps",
                "while",
                doing @ ..,
            ] => (End::Kill, node, steps, doing),
            [
                "power",
                "fails",
                "at",
                "node",
                node,
                "at",
                "each",
                "of",
                "the",
                "next",
                steps,
                "disk",
                "steps",
                "while",
                doing @ ..,
            ] => (End::PowerCut, node, steps, doing),
            _ => return false,
        };
        let (node, steps) = (index(node), number(steps));
        self.world.crash_end = Some(end);
        self.world.keeps_crash_step = true;
        for step in 0..steps {
            let disk = &mut self.world.nodes[node].disk;
            disk.crash_before(disk.steps() + step);
            let life = self.world.nodes[node].life;
            self.go_on_with(node, doing);
            let _ = self.world.run_while_not(Duration::from_secs(1), |world| {
                world.nodes[node].life != life && !world.nodes[node].is_up()
            });
            if self.world.nodes[node].is_up() {
                self.world.end(node, end);
            }
            let disk = &mut self.world.nodes[node].disk;
            *disk = disk.kill();
            self.start(node);
            self.finish_jobs();
        }
        self.world.crash_end = None;
        self.world.keeps_crash_step = false;
        true
    }

    fn go_on_with(&mut self, node: usize, doing: &[&str]) {
        match doing {
            ["messages", "are", "sent", "to", topic] => self.send(topic, 4, 0),
            ["messages", "of", bytes, "bytes", "are", "sent", "to", topic] => {
                self.send(topic, 4, index(bytes));
            }
            ["topics", "come", "and", "go"] => {
                let name = format!("fleeting-{}", self.world.nodes[node].life);
                let level = "persisted".to_owned();
                self.ask(Job::CreateTopic { name: name.clone(), level, partitions: 1 });
                self.send(&name, 1, 0);
                self.ask(Job::DeleteTopic(name));
            }
            ["it", "starts"] => {
                self.world.end(node, End::Kill);
                self.world.schedule_boot(node, 10);
            }
            ["it", "stops"] => self.world.stop(node),
            other => panic!("nobody knows how to go on with {other:?}"),
        }
    }

    fn expectations(&mut self, words: &[&str]) -> bool {
        match words {
            [topic, "holds", "every", "confirmed", "message"] => self.holds_every_confirmed(topic),
            [topic, "holds", count, "messages"] => {
                self.holds_every_confirmed(topic);
                let held = self.desk.borrow().found.get(*topic).map_or(0, Vec::len);
                assert_eq!(held as u64, number(count), "messages in {topic}");
            }
            [topic, "holds", "at", "least", count, "messages"] => {
                self.ask(Job::Read((*topic).to_owned()));
                self.finish_jobs();
                let held = self.desk.borrow().found.get(*topic).map_or(0, Vec::len);
                assert!(held as u64 >= number(count), "{held} messages in {topic}");
            }
            ["no", "offset", "of", topic, "is", "handed", "out", "twice"] => {
                let desk = self.desk.borrow();
                let mut seen = std::collections::BTreeSet::new();
                for (offset, _) in desk.confirmed.get(*topic).into_iter().flatten() {
                    assert!(seen.insert(*offset), "offset {offset} of {topic} was given twice");
                }
            }
            ["node", node, "refuses", "to", "start"] => self.refuses(index(node), ""),
            ["node", node, "refuses", "to", "start", "and", "names", what @ ..] => {
                self.refuses(index(node), &what.join(" "));
            }
            ["node", node, "is", "down"] => {
                let node = index(node);
                let down = self.world.run_while_not(STEP_WITHIN, |w| !w.nodes[node].is_up());
                assert!(down, "node {node} is up");
            }
            ["node", node, "is", "up"] => {
                assert!(self.world.nodes[index(node)].is_up(), "node {node} is down");
            }
            ["something", "like", rest @ ..] => {
                let branch = rest.join(" ");
                let happened = |name: &&&str| **name == branch;
                let coverage = &self.world.coverage;
                let names = coverage.branches.keys().chain(coverage.faults.keys());
                assert!(names.clone().any(|name| happened(&name)), "it did not happen: {branch}");
            }
            _ => return false,
        }
        true
    }

    fn refuses(&mut self, node: usize, what: &str) {
        self.world.refusals_allowed = true;
        self.world.schedule_boot(node, 10);
        let done = self.world.run_while_not(STEP_WITHIN, |world| !world.nodes[node].boot_pending);
        assert!(done, "no attempt to start");
        assert!(!self.world.nodes[node].is_up(), "node {node} starts");
        let refusal = self.world.nodes[node].refusal.clone().unwrap_or_default();
        assert!(refusal.contains(what), "node {node} says {refusal:?}");
    }
}

//! How a node's journal writes and flushes: one flush at a time, everything that waits in the next.

use super::disk::Body as RecordBody;
use super::world::{Happening, World};
use borzoi_consensus::{Anchor, Event};

impl World {
    pub(super) fn drive_disk(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let disk = &mut node.disk;
        let life = node.life;
        let len = disk.records.len();
        if disk.stuck || node.replica.is_none() {
            return;
        }
        let write_at = self.now + 20_000;
        let flush_at =
            self.now + self.random.between(self.config.flush_us.0, self.config.flush_us.1) * 1_000;
        let flush = disk.flushing.is_none() && disk.flushed < len;
        if flush {
            disk.flushing = Some(len);
        }
        let write = self.config.written_counts && disk.written < len;
        if write {
            self.schedule(write_at, Happening::Written { node: index, life, upto: len });
        }
        if flush {
            self.schedule(flush_at, Happening::Flushed { node: index, life });
        }
    }

    pub fn unstick(&mut self, index: usize) {
        self.nodes[index].disk.stuck = false;
        self.nodes[index].disk.flushing = None;
        self.drive_disk(index);
    }

    pub(super) fn written(&mut self, index: usize, upto: usize) {
        let disk = &mut self.nodes[index].disk;
        if disk.stuck {
            return;
        }
        let (from, upto) = (disk.written, upto.min(disk.records.len()));
        if upto <= from {
            return;
        }
        disk.written = upto;
        let held: Vec<Anchor> = disk.records[from..upto].iter().filter_map(prepare_of).collect();
        for Anchor { op, checksum } in held {
            self.handle(index, Event::Held { op, checksum });
        }
    }

    pub(super) fn flushed(&mut self, index: usize) {
        let disk = &mut self.nodes[index].disk;
        if disk.stuck {
            return;
        }
        let Some(upto) = disk.flushing.take() else { return };
        let done: Vec<_> = disk.records[disk.flushed..upto].to_vec();
        disk.flushed = upto;
        disk.written = disk.written.max(upto);
        for record in done {
            match record.body {
                RecordBody::View(state) => {
                    let (view, log_view) = (state.view, state.log_view);
                    self.handle(index, Event::ViewStateDurable { view, log_view });
                }
                RecordBody::Prepare(prepare) => {
                    let Anchor { op, checksum } = prepare.header.anchor();
                    self.handle(index, Event::Held { op, checksum });
                }
            }
        }
        self.drive_disk(index);
    }
}

fn prepare_of(record: &super::disk::Record) -> Option<Anchor> {
    match &record.body {
        RecordBody::Prepare(prepare) => Some(prepare.header.anchor()),
        RecordBody::View(_) => None,
    }
}

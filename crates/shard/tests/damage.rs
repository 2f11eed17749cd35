//! Damaged and missing files of a node at rest: what an older file can replace is replaced, and
//! what nothing can replace is named together with the way out, before anything has been changed.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use borzoi_shard::boot::{BootError, BootOptions};
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_storage::journal::JournalOptions;
use borzoi_storage::recovery::Finding;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Durability, Duration, LogId, Offset};
use support::model::Model;
use support::{Node, Place, boot_disk, create_stream, create_topic, new_disk, options, start_time};

const TOPICS: [(&str, Durability); 2] =
    [("durable", Durability::Persisted), ("fast", Durability::Replicated)];

/// A node that has taken several checkpoints of each of its logs, with confirmed messages.
fn checkpointed() -> (Node, Model, Vec<Place>) {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 5);
    node.settle();
    node.command(create_stream());
    for (name, level) in TOPICS {
        node.command(create_topic(name, 1, level));
    }
    node.settle();
    let places: Vec<Place> = TOPICS.map(|(name, _)| node.place(name, 0).unwrap()).to_vec();
    let mut model = Model::default();
    for round in 0..3 {
        node.command(create_topic(&format!("round-{round}"), 1, Durability::Persisted));
        for (place, (_, level)) in places.iter().zip(TOPICS) {
            model.send(&mut node, *place, level, 2, 40_000);
            node.settle();
        }
        assert_eq!(model.note_replies(&mut node), 0, "refused");
        node.pass(Duration::from_secs(61));
        node.settle();
        node.pass(Duration::from_secs(61));
        node.settle();
    }
    for (place, (_, level)) in places.iter().zip(TOPICS) {
        model.send(&mut node, *place, level, 1, 100);
    }
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0, "refused");
    (node, model, places)
}

/// The checkpoints of a log, oldest first.
fn checkpoints(disk: &mut SimDisk, log: LogId) -> Vec<FileName> {
    let mut files = disk.list(Directory::Checkpoints).unwrap().files;
    files.retain(|file| matches!(file, FileName::Checkpoint { log: of, .. } if *of == log));
    files
}

fn check(node: &mut Node, model: &mut Model, places: &[Place], context: &str) {
    for place in places {
        model.check_partition(node, *place, context);
    }
}

#[test]
fn the_older_checkpoint_serves_also_after_restarts_that_carried_the_journal_over() {
    let (node, mut model, places) = checkpointed();
    let mut disk = node.disk.kill();
    let now = node.now;
    for restarts in 0..3 {
        let logs = [LogId::METADATA, places[0].lane, places[1].lane];
        let mut damaged = Vec::new();
        for log in logs {
            let newest = checkpoints(&mut disk, log).pop().unwrap();
            assert!(disk.flip_bit(&newest, 300, 3));
            damaged.push(newest);
        }
        let mut image = disk.kill();
        let booted = boot_disk(&mut image, &options(1), now).expect("the older ones serve");
        for file in &damaged {
            let named = |finding: &Finding| match finding {
                Finding::CheckpointDamaged { file: at, .. } => at == file,
                _ => false,
            };
            assert!(booted.findings.iter().any(named), "{file} is named: {:?}", booted.findings);
        }
        assert_eq!(image.list(Directory::SetAside).unwrap().files.len(), damaged.len());
        let mut node = Node::start(disk.kill(), &options(1), now, restarts);
        node.settle();
        check(&mut node, &mut model, &places, "from the older checkpoints");
        for round in 0..3 {
            assert!(node.place(&format!("round-{round}"), 0).is_some());
        }
        // The same directory once more, undamaged, through one start more.
        for file in damaged {
            assert!(disk.flip_bit(&file, 300, 3), "what was flipped is flipped back");
        }
        let shards = 1 + u16::try_from(restarts % 2).unwrap();
        let mut node = Node::start(disk.kill(), &options(shards), now, 10 + restarts);
        node.settle();
        check(&mut node, &mut model, &places, "after a restart");
        disk = node.disk.kill();
    }
}

#[test]
fn checkpoints_that_are_all_damaged_are_all_named_and_nothing_is_changed() {
    let (node, _, places) = checkpointed();
    for log in [LogId::METADATA, places[0].lane, places[1].lane] {
        let mut disk = node.disk.kill();
        let files = checkpoints(&mut disk, log);
        assert_eq!(files.len(), 2, "two are kept");
        for file in &files {
            assert!(disk.flip_bit(file, 300, 3));
        }
        let before = disk.counters.writes;
        let error = boot_disk(&mut disk, &options(1), node.now).err().expect("refused");
        let text = error.to_string();
        for file in &files {
            assert!(text.contains(&file.to_string()), "{text}");
        }
        assert!(text.contains("from a backup"), "{text}");
        let metadata = matches!(error, BootError::NoMetadata { .. });
        assert_eq!(metadata, log.is_metadata(), "{text}");
        assert_eq!(checkpoints(&mut disk, log), files);
        assert_eq!(disk.counters.writes, before, "a start that is refused writes nothing");
    }
}

#[test]
fn a_first_checkpoint_that_is_damaged_is_replaced_by_the_journal() {
    let mut node = Node::start(new_disk(), &options(1), start_time(), 5);
    node.settle();
    node.command(create_stream());
    node.command(create_topic("durable", 1, Durability::Persisted));
    node.settle();
    let place = node.place("durable", 0).unwrap();
    let mut model = Model::default();
    model.send(&mut node, place, Durability::Persisted, 2, 100);
    node.settle();
    assert_eq!(model.note_replies(&mut node), 0);
    node.pass(Duration::from_secs(61));
    node.settle();
    let mut disk = node.disk.kill();
    for restart in 0..2 {
        let files = checkpoints(&mut disk, place.lane);
        assert_eq!(files.len(), 1, "the first one");
        let mut damaged = disk.kill();
        assert!(damaged.flip_bit(&files[0], 200, 0));
        let mut node = Node::start(damaged, &options(1), node.now, restart);
        node.settle();
        model.check_partition(&mut node, place, "from the journal alone");
        let mut node = Node::start(disk, &options(2), node.now, restart);
        node.settle();
        disk = node.disk.kill();
    }
}

#[test]
fn a_directory_that_lost_its_superblock_is_refused_with_the_way_out() {
    let (node, ..) = checkpointed();
    let mut disk = node.disk.kill();
    disk.remove(&FileName::Superblock).unwrap();
    let before = disk.steps();
    let error = boot_disk(&mut disk, &options(1), node.now).err().expect("refused");
    let text = error.to_string();
    for part in ["superblock is missing", "journal/", "from a backup", "start empty"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(disk.steps(), before, "nothing was changed");
}

#[test]
fn strays_are_listed_under_their_paths_wherever_they_lie() {
    let (node, mut model, places) = checkpointed();
    let mut disk = node.disk.kill();
    disk.add_stray(Directory::Root, "notes");
    disk.add_stray(Directory::Journal, "x");
    disk.add_stray(Directory::Checkpoints, "y");
    disk.add_stray(Directory::Segments, "3f/z");
    let booted = boot_disk(&mut disk.kill(), &options(1), node.now).unwrap();
    let strays: Vec<&String> = booted
        .findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Strays(names) => Some(names),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(strays, ["notes", "journal/x", "checkpoints/y", "segments/3f/z"]);
    let mut node = Node::start(disk, &options(1), node.now, 3);
    node.settle();
    check(&mut node, &mut model, &places, "beside strays");
}

#[test]
fn what_only_the_older_checkpoint_needs_is_carried_while_it_is_little() {
    for (messages, kept) in [(7, 2), (9, 1)] {
        let journal = JournalOptions { file_bytes: 32 * 1024 * 1024, files_max: 4 };
        let options = BootOptions { journal, ..options(1) };
        let mut node = Node::start(new_disk(), &options, start_time(), 5);
        node.settle();
        node.command(create_stream());
        node.command(create_topic("durable", 1, Durability::Persisted));
        node.settle();
        let place = node.place("durable", 0).unwrap();
        let mut model = Model::default();
        for bytes in [10, 1024 * 1024, 10] {
            for _ in 0..if bytes > 10 { messages } else { 1 } {
                model.send(&mut node, place, Durability::Persisted, 1, bytes);
                node.settle();
            }
            assert_eq!(model.note_replies(&mut node), 0);
            if bytes > 10 || checkpoints(&mut node.disk, place.lane).is_empty() {
                node.pass(Duration::from_secs(61));
                node.settle();
            }
        }
        assert_eq!(checkpoints(&mut node.disk, place.lane).len(), 2, "two are kept");
        let mut node = Node::start(node.disk.kill(), &options, node.now, 6);
        node.settle();
        assert_eq!(checkpoints(&mut node.disk, place.lane).len(), kept, "{messages} MiB");
        model.check_partition(&mut node, place, "after the start");
        let mut disk = node.disk.kill();
        let newest = checkpoints(&mut disk, place.lane).pop().unwrap();
        assert!(disk.flip_bit(&newest, 200, 1));
        match Node::try_start(disk, &options, node.now, 7) {
            Ok(mut node) => {
                assert_eq!(kept, 2, "the older one was kept");
                node.settle();
                model.check_partition(&mut node, place, "from the older one");
            }
            Err(error) => {
                assert_eq!(kept, 1, "{error}");
                assert!(error.to_string().contains(&newest.to_string()), "{error}");
            }
        }
    }
}

#[test]
fn full_journals_of_several_shards_fit_into_one_and_back() {
    let mut node = Node::start(new_disk(), &options(3), start_time(), 5);
    node.settle();
    node.command(create_stream());
    for (name, level) in TOPICS {
        node.command(create_topic(name, 2, level));
    }
    node.settle();
    let mut model = Model::default();
    let places: Vec<(Place, Durability)> = TOPICS
        .iter()
        .flat_map(|(name, level)| [(*name, 0, *level), (*name, 1, *level)])
        .map(|(name, partition, level)| (node.place(name, partition).unwrap(), level))
        .collect();
    for life in 0..6u64 {
        for _ in 0..40 {
            for (place, level) in &places {
                model.send(&mut node, *place, *level, 1, 20_000);
            }
            node.settle();
        }
        assert_eq!(model.note_replies(&mut node), 0, "life {life}");
        assert!(model.sends.values().all(|send| send.confirmed.is_some()), "life {life}");
        assert!(node.fatal.is_empty());
        let shards = [1, 3, 2][usize::try_from(life % 3).unwrap()];
        node = Node::start(node.disk.kill(), &options(shards), node.now, life);
        node.settle();
        for (place, _) in &places {
            model.check_partition(&mut node, *place, "after another number of shards");
        }
        let highest = model.highest_seen(places[0].0);
        assert_eq!(highest, Some(Offset(40 * (life + 1) - 1)), "one message each");
    }
}

//! A6, and the loss of power at every step: after a jump, and after jumps over jumps.

use crate::power::{Comeback, Life, Step, fast_node, lose_everything, restart, send};
use crate::support::model::{End, Model};
use crate::support::{Node, Place};
use borzoi_storage::disk::{Directory, Disk, FileName};
use borzoi_storage::sim_disk::{Fate, UnsyncedWhat};
use borzoi_types::{Durability, Duration, Offset};

/// First offsets of the partition's segments that have a file.
fn segments(node: &mut Node, at: Place) -> Vec<Offset> {
    let files = node.disk.list(Directory::Segments).unwrap().files;
    let ours = files.iter().filter_map(|file| match file {
        FileName::Segment { key, base } if *key == at.key => Some(*base),
        _ => None,
    });
    ours.collect()
}

fn checkpoint(node: &mut Node) {
    for _ in 0..2 {
        node.pass(Duration::from_secs(61));
        node.settle();
    }
}

#[test]
fn a6_a_jump_closes_a_segment_that_holds_bytes_and_begins_one_named_for_its_first_offset() {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    send(&mut node, &mut model, at, 2, 70_000);
    checkpoint(&mut node);
    assert_eq!(segments(&mut node, at), [Offset(0)]);
    let image = lose_everything(&node, Comeback::OtherBoot, 9);
    let mut node = restart(&node, image, 6);
    assert_eq!(send(&mut node, &mut model, at, 2, 70_000), Offset(18));
    checkpoint(&mut node);
    assert_eq!(segments(&mut node, at), [Offset(0), Offset(18)]);
    model.check_partition(&mut node, at, "both segments are read");
    let mut node = restart(&node, node.disk.kill(), 7);
    model.check_partition(&mut node, at, "and after a restart");
}

#[test]
fn a6_a_partition_without_segments_simply_starts_at_the_jump() {
    // A file comes with the first flush, so an empty segment with a lower name is never on disk:
    // the case is a claim that survives while everything behind it is torn away.
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    model.send(&mut node, at, Durability::Replicated, 2, 70_000);
    node.run_events_batched();
    let (shard, ticket, action) = node.next_action().expect("the journal is written");
    node.finish(shard, ticket, &action);
    let (mut found, before) = (0, node.disk.clone());
    for kept in 0..8 {
        let mut blocks = 0;
        let image = before.power_cut_and_boot([9; 16], |item| {
            if item.what == UnsyncedWhat::Name {
                return Fate::Kept;
            }
            blocks += 1;
            if blocks <= kept { Fate::Kept } else { Fate::Lost }
        });
        let mut node = restart(&node, image, 6);
        if !Model::read_all(&mut node, at).is_empty() {
            continue;
        }
        assert!(segments(&mut node, at).is_empty());
        let mut model = Model::default();
        let base = send(&mut node, &mut model, at, 2, 70_000);
        checkpoint(&mut node);
        assert_eq!(segments(&mut node, at), [base], "the first file is named for the jump");
        model.check_partition(&mut node, at, "after the jump");
        found += usize::from(base > Offset(0));
    }
    assert!(found > 0, "in some image the claim was there and the message was not");
}

/// A life that begins with a loss of power: its first operation is a jump.
fn second_life(comeback: Comeback, draws: u32) -> Life {
    let (mut node, at) = fast_node();
    let mut model = Model::default();
    send(&mut node, &mut model, at, 2, 10);
    send(&mut node, &mut model, at, 3, 10);
    model.life_ended(End::PowerCut);
    let image = lose_everything(&node, comeback, 9);
    let now = node.now;
    let mut start = Life::new(node, model.clone(), at, comeback, draws / 2);
    start.cut_inside_the_start(&image);
    let inside = start.images;
    assert!(inside > 20, "the start has steps: {inside}");
    let node = Node::start(image, &crate::support::options(1), now, 6);
    let mut life = Life::new(node, model, at, comeback, draws);
    life.images = inside;
    life
}

const FLUSHES_BETWEEN: [Step; 12] = [
    Step::Wait,
    Step::Send(1, 10),
    Step::Wait,
    Step::Flush,
    Step::Send(3, 10),
    Step::Send(20, 10),
    Step::Flush,
    Step::Send(2, 70_000),
    Step::Checkpoint,
    Step::Send(1, 10),
    Step::Send(1, 10),
    Step::Checkpoint,
];

#[test]
fn a6_second_crash_after_the_jump_does_not_remint() {
    let mut life = second_life(Comeback::OtherBoot, 24);
    life.run(&FLUSHES_BETWEEN);
    println!("second crash after the jump: {} images", life.images);
    assert!(life.images > 300, "{}", life.images);
}

#[test]
fn a6_second_crash_after_the_jump_does_not_remint_on_a_volume_detached_under_the_same_boot() {
    let mut life = second_life(Comeback::SameBoot, 24);
    life.run(&FLUSHES_BETWEEN);
    println!("second crash under the same boot: {} images", life.images);
    assert!(life.images > 300, "{}", life.images);
}

#[test]
fn a7_no_page_that_is_dropped_kept_or_torn_lets_an_offset_be_minted_again() {
    for comeback in [Comeback::OtherBoot, Comeback::SameBoot] {
        let (node, at) = fast_node();
        let mut life = Life::new(node, Model::default(), at, comeback, 32);
        life.run(&[
            Step::Send(1, 10),
            Step::Send(2, 3_000),
            Step::Wait,
            Step::Send(1, 10),
            Step::Flush,
            Step::Send(30, 10),
            Step::Send(1, 9_000),
            Step::Wait,
            Step::Checkpoint,
            Step::Send(2, 40_000),
            Step::Send(1, 10),
        ]);
        println!("pages dropped, kept and torn, {comeback:?}: {} images", life.images);
        assert!(life.images > 100, "{}", life.images);
    }
}

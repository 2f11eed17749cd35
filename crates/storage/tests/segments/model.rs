//! A partition against a plain list of messages, over random histories.

use crate::script::{Node, random_step};
use crate::support::{Random, decode};
use borzoi_storage::cache::CacheOptions;
use borzoi_storage::partition::ReadStart;
use borzoi_types::{Micros, Offset};
use proptest::prelude::*;

fn small_cache(random: &mut Random) -> CacheOptions {
    let bytes = [1, 100_000, 1_000_000, 100_000_000][random.below(4) as usize];
    CacheOptions { chunk_bytes_max: bytes, index_bytes_max: bytes.min(2_000) }
}

fn random_read(random: &mut Random, node: &mut Node) {
    let next = node.model.next;
    let start = match random.below(4) {
        0 => ReadStart::Offset(Offset(random.below(next + 3))),
        1 => ReadStart::First,
        2 => ReadStart::Last(random.below(30) as u32),
        _ => ReadStart::Timestamp(Micros(970 + random.below(node.steps.len() as u64 * 10 + 60))),
    };
    let count = random.below(40) as u32;
    let bytes_max = [1, 5_000, 200_000, 10_000_000][random.below(4) as usize];
    let outcome = node.bench.read(start, count, bytes_max).unwrap();
    let read = decode(&outcome);
    let expected = node.model.read(start, count);
    assert_eq!(read, expected[..read.len()], "{start:?} {count}");
    if bytes_max == 10_000_000 || expected.is_empty() {
        assert_eq!(read.len(), expected.len(), "{start:?} {count}");
    }
    assert!(read.len() >= expected.len().min(1), "a limit never empties a reply");
    let bytes_left = outcome.bytes <= bytes_max || read.len() == 1;
    assert!(bytes_left, "{} bytes in {} messages", outcome.bytes, read.len());
}

fn run(seed: u64, steps: usize) {
    let mut random = Random(seed | 1);
    let segment_bytes = [1, 100_000, 400_000, 1 << 30][random.below(4) as usize];
    let cache = small_cache(&mut random);
    let mut node = Node::new(segment_bytes, cache);
    let mut open_checkpoint = None;
    for _ in 0..steps {
        match random.below(16) {
            0 => node.bench.flush().unwrap(),
            1 => node.bench.sync().unwrap(),
            2 => node.bench.evict(),
            3 => match open_checkpoint.take() {
                None => open_checkpoint = Some(node.begin_checkpoint()),
                Some((checkpoint, work)) => node.finish_checkpoint(&checkpoint, &work).unwrap(),
            },
            4 if random.below(3) == 0 => {
                // kill -9: what the kernel has, stays.
                open_checkpoint = None;
                let disk = node.bench.disk.restarted();
                node.restart(disk);
            }
            5..=9 => random_read(&mut random, &mut node),
            _ => {
                let step = random_step(&mut random, &node);
                node.commit(step);
            }
        }
    }
    let model = node.model.clone();
    model.check(&mut node.bench);
    node.check_files_equal_a_quiet_node();
    model.check(&mut node.bench);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_partition_is_the_list_of_its_messages(seed in any::<u64>()) {
        run(seed, 60);
    }
}

#[test]
fn a_long_history_stays_the_list_of_its_messages() {
    run(0xb0, 1_500);
}

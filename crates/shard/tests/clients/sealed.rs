//! Batches that are encrypted at rest, over a whole node.

use crate::client::{Answer, Client};
use crate::world::{START, World, options};
use borzoi_shard::boot::BootOptions;
use borzoi_storage::disk::DiskIdentity;
use borzoi_storage::sealing::Keyring;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Duration, Mono, Now, Offset};
use borzoi_wire::{ErrorCode, PollingStrategy, Request};
use std::collections::BTreeMap;

fn with_keys(keys: &[(u32, u8)], active: Option<u32>) -> BootOptions {
    let by_number: BTreeMap<u32, [u8; 32]> =
        keys.iter().map(|(number, byte)| (*number, [*byte; 32])).collect();
    BootOptions { keys: Keyring::new(by_number, active), ..options(1) }
}

fn start(options: &BootOptions) -> World {
    let disk = SimDisk::new(DiskIdentity { boot_id: Some([1; 16]), device: 7, inode: 9 });
    World::boot(disk, options, Now { mono: Mono(1_000), wall: START })
}

fn restart(world: World, options: &BootOptions) -> World {
    let mono = world.now.mono.plus(Duration::from_secs(1));
    let now = Now { mono, wall: world.now.wall };
    World::boot(world.disk.kill(), options, now)
}

fn read(world: &mut World, client: &mut Client, strategy: PollingStrategy) -> Vec<Vec<u8>> {
    let polled = client.poll(world, 0, strategy, 100);
    polled.messages.into_iter().map(|message| message.1).collect()
}

#[test]
fn polls_read_sealed_and_plain_batches_alike_through_rotation_and_restarts() {
    let mut world = start(&options(1));
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    client.send(&mut world, 0, &[b"plain 0", b"plain 1"]);
    for (number, (keys, active, text)) in (b'a'..).zip([
        (vec![(1, 1)], Some(1), [&b"one 2"[..], b"one 3"]),
        (vec![(1, 1), (2, 2)], Some(2), [&b"two 4"[..], b"two 5"]),
        (vec![(1, 1), (2, 2)], None, [&b"plain 6"[..], b"plain 7"]),
    ]) {
        world = restart(world, &with_keys(&keys, active));
        client = Client::root(&mut world, 0, 5);
        client.send(&mut world, 0, &text);
        client.send(&mut world, 0, &[&[number]]);
    }
    let all = read(&mut world, &mut client, PollingStrategy::First);
    let texts: Vec<String> =
        all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    assert_eq!(
        texts,
        [
            "plain 0", "plain 1", "one 2", "one 3", "a", "two 4", "two 5", "b", "plain 6",
            "plain 7", "c"
        ]
    );
    // Into the middle of batches, and a part of them.
    for from in 0..all.len() {
        let polled = client.poll(&mut world, 0, PollingStrategy::Offset(Offset(from as u64)), 3);
        let found: Vec<Vec<u8>> = polled.messages.into_iter().map(|it| it.1).collect();
        assert_eq!(found, all[from..(from + 3).min(all.len())], "from {from}");
    }
}

#[test]
fn a_batch_whose_key_is_missing_or_wrong_is_an_error_of_its_own_and_the_rest_is_served() {
    let mut world = start(&options(1));
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    client.send(&mut world, 0, &[b"plain"]);
    world = restart(world, &with_keys(&[(3, 3)], Some(3)));
    client = Client::root(&mut world, 0, 5);
    client.send(&mut world, 0, &[b"sealed"]);
    for keys in [with_keys(&[(1, 1)], Some(1)), with_keys(&[(3, 9)], None)] {
        world = restart(world, &keys);
        client = Client::root(&mut world, 0, 5);
        let before = read(&mut world, &mut client, PollingStrategy::First);
        assert_eq!(before, [b"plain"], "what comes before it is delivered first");
        let start = PollingStrategy::Offset(Offset(1));
        let poll = Request::PollMessages(Client::poll_request(Some(0), start, 10, false));
        let answer = client.call(&mut world, &poll);
        assert_eq!(answer, Answer::Denied(ErrorCode::CannotDecryptData), "never an empty poll");
    }
    world = restart(world, &with_keys(&[(3, 3)], None));
    client = Client::root(&mut world, 0, 5);
    let all = read(&mut world, &mut client, PollingStrategy::First);
    assert_eq!(all, [&b"plain"[..], b"sealed"]);
}

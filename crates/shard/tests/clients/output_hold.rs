//! A client that asks for more than it takes is answered as it takes it.

use crate::client::Client;
use crate::world::{World, options};
use borzoi_shard::Event;
use borzoi_storage::disk::DiskIdentity;
use borzoi_storage::sim_disk::SimDisk;
use borzoi_types::{Micros, Mono, Now};
use borzoi_wire::Request;

#[test]
fn requests_wait_while_much_is_untaken_and_all_are_answered_in_order() {
    let disk = SimDisk::new(DiskIdentity { boot_id: Some([1; 16]), device: 7, inode: 9 });
    let mut options = options(1);
    options.front.output_hold_bytes = 4 * 256;
    let now = Now { mono: Mono(1_000), wall: Micros(1_700_000_000_000_000) };
    let mut world = World::boot(disk, &options, now);
    let mut client = Client::root(&mut world, 0, 5);
    let connection = client.connection;
    world.tell(connection, Event::OutputTaken { connection });
    world.run();
    let pings: Vec<Vec<u8>> = (0..20).map(|_| client.request_frame(&Request::Ping)).collect();
    for ping in &pings {
        world.deliver(connection, ping);
    }
    let mut answered = Vec::new();
    for _ in 0..5 {
        world.run();
        let frames = &mut world.seen.get_mut(&connection).unwrap().frames;
        assert_eq!(frames.len(), 4, "no more than was to be taken");
        answered.extend(frames.drain(..));
        world.tell(connection, Event::OutputTaken { connection });
    }
    world.run();
    assert!(world.seen[&connection].frames.is_empty());
    let numbers = |frames: &[Vec<u8>], at: usize| -> Vec<Vec<u8>> {
        frames.iter().map(|frame| frame[at..at + 8].to_vec()).collect()
    };
    assert_eq!(numbers(&answered, 200), numbers(&pings, 168));
    world.assert_at_rest();
}

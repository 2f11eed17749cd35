//! Repeated requests.

use crate::client::{Answer, Client, batch_of, confirmation, name};
use crate::world::World;
use borzoi_types::{PartitionId, RequestNumber, SessionId};
use borzoi_wire::body::{CreatePersonalAccessToken, TokenLifetime};
use borzoi_wire::frame::RequestHeader;
use borzoi_wire::{ErrorCode, Operation, Partitioning, PollingStrategy, Request, Wire};

fn create_frame(client: &Client, request: u64, stream: &str) -> Vec<u8> {
    let body = name(stream).encode();
    let header = RequestHeader {
        client: client.id,
        operation: Operation::CreateStream as u8,
        session: client.session,
        request: RequestNumber(request),
        ..RequestHeader::default()
    };
    Client::frame(header, &body)
}

fn exchange(client: &mut Client, world: &mut World, frame: &[u8]) -> Vec<u8> {
    world.deliver(client.connection, frame);
    world.run();
    client.take_frame(world)
}

#[test]
fn a_repeated_change_is_answered_byte_for_byte_as_the_first_time() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let frame = create_frame(&client, 1, "stream");
        let first = exchange(&mut client, &mut world, &frame);
        let other = create_frame(&client, 2, "other");
        exchange(&mut client, &mut world, &other);
        assert_eq!(exchange(&mut client, &mut world, &frame), first);
        assert_eq!(world.shards[0].front().metadata().totals().streams, 2);

        // After a reconnect with the same identity, and after a restart.
        world.hang_up(client.connection);
        let mut again = Client::connect(&mut world, 0, 5);
        again.login(&mut world, "iggy", "iggy");
        let frame = create_frame(&again, 1, "stream");
        assert_eq!(exchange(&mut again, &mut world, &frame), first);
        let mut world = world.restart(1);
        let mut later = Client::root(&mut world, 0, 5);
        let frame = create_frame(&later, 1, "stream");
        assert_eq!(exchange(&mut later, &mut world, &frame), first);
    }
}

#[test]
fn a_repeated_rejection_is_the_same_rejection() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let original = create_frame(&client, 1, "stream");
    exchange(&mut client, &mut world, &original);
    let frame = create_frame(&client, 2, "stream");
    let first = exchange(&mut client, &mut world, &frame);
    assert_eq!(Answer::read(&first), Answer::Rejected(ErrorCode::StreamNameAlreadyExists));
    assert_eq!(exchange(&mut client, &mut world, &frame), first);
}

#[test]
fn requests_7_5_and_6_in_this_order_all_execute_once() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    for number in [7, 5, 6] {
        let frame = create_frame(&client, number, &format!("stream {number}"));
        let answer = exchange(&mut client, &mut world, &frame);
        Answer::read(&answer).payload();
        assert_eq!(exchange(&mut client, &mut world, &frame), answer);
    }
    assert_eq!(world.shards[0].front().metadata().totals().streams, 3);
}

#[test]
fn a_resent_batch_gets_its_original_offsets_and_another_batch_under_its_number_is_stored() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        client.prepare(&mut world, 1);
        let to = Partitioning::Partition(PartitionId(0));
        let frame = client.send_frame(to, &[b"once"]);
        let first = client.exchange_raw(&mut world, &frame);
        assert_eq!(confirmation(&first).base_offset.0, 0);
        client.send(&mut world, 0, &[b"between"]);
        let again = client.exchange_raw(&mut world, &frame);
        assert_eq!(confirmation(&again), confirmation(&first));
        client.request -= 1;
        let other = client.send(&mut world, 0, &[b"another batch"]);
        assert_eq!(other, 2);
        let read = client.poll(&mut world, 0, PollingStrategy::First, 10);
        assert_eq!(read.messages.len(), 3);
    }
}

#[test]
fn a_batch_resent_after_a_reconnect_or_a_restart_is_stored_once() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    let to = Partitioning::Partition(PartitionId(0));
    let number = client.request;
    client.send_to(&mut world, to, &[b"once"]).payload();
    world.hang_up(client.connection);
    let mut again = Client::root(&mut world, 1, 5);
    again.request = number;
    assert_eq!(again.send(&mut world, 0, &[b"once"]), 0);
    let mut world = world.restart(1);
    let mut later = Client::root(&mut world, 0, 5);
    later.request = number;
    assert_eq!(later.send(&mut world, 0, &[b"once"]), 0);
    let read = later.poll(&mut world, 0, PollingStrategy::First, 10);
    assert_eq!(read.messages.len(), 1);
}

#[test]
fn a_balanced_batch_resent_elsewhere_after_others_is_stored_once() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 3);
    let number = client.request;
    let first = client.send_to(&mut world, Partitioning::Balanced, &[b"once"]);
    let mut others = Client::root(&mut world, 1, 6);
    for _ in 0..4 {
        others.send_to(&mut world, Partitioning::Balanced, &[b"other"]).payload();
    }
    world.hang_up(client.connection);
    let mut again = Client::root(&mut world, 1, 5);
    again.request = number;
    let second = again.send_to(&mut world, Partitioning::Balanced, &[b"once"]);
    assert_eq!(confirmation(&second), confirmation(&first));
    let mut world = world.restart(1);
    let mut later = Client::root(&mut world, 0, 5);
    later.request = number;
    let third = later.send_to(&mut world, Partitioning::Balanced, &[b"once"]);
    assert_eq!(confirmation(&third), confirmation(&first));
}

#[test]
fn a_repeated_token_creation_is_answered_with_51() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let body = CreatePersonalAccessToken { name: name("token"), lifetime: TokenLifetime::NEVER };
    let frame = client.request_frame(&Request::CreatePersonalAccessToken(body));
    client.exchange_raw(&mut world, &frame).payload();
    let again = client.exchange_raw(&mut world, &frame);
    assert_eq!(again, Answer::Rejected(ErrorCode::PersonalAccessTokenAlreadyExists));
}

#[test]
fn the_session_in_the_header_is_not_trusted() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    let batch = batch_of(&[b"m"]);
    assert!(!batch.is_empty());
    client.session = SessionId(999_999);
    assert_eq!(client.send(&mut world, 0, &[b"m"]), 0, "the bound session counts");
}

#[test]
fn sends_7_5_and_6_in_this_order_are_all_stored_once() {
    let mut world = World::new(2);
    let mut client = Client::root(&mut world, 1, 5);
    client.prepare(&mut world, 1);
    let to = Partitioning::Partition(PartitionId(0));
    let mut frames = Vec::new();
    for number in [17, 15, 16] {
        client.request = number;
        frames.push(client.send_frame(to, &[format!("send {number}").as_bytes()]));
    }
    for expected in [0, 1, 2, 0, 1, 2] {
        let frame = &frames[usize::try_from(expected).unwrap()];
        let answer = client.exchange_raw(&mut world, frame);
        assert_eq!(confirmation(&answer).base_offset.0, expected);
    }
    assert_eq!(client.poll(&mut world, 0, PollingStrategy::First, 10).messages.len(), 3);
}

#[test]
fn both_edges_of_the_window_of_sends_hold_also_after_a_restart() {
    use borzoi_shard::lane::window::SENDS_PER_SESSION_MAX as WINDOW;
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    client.prepare(&mut world, 1);
    let to = Partitioning::Partition(PartitionId(0));
    let frames: Vec<Vec<u8>> =
        (0..=WINDOW).map(|n| client.send_frame(to, &[format!("{n}").as_bytes()])).collect();
    for (place, frame) in frames.iter().enumerate() {
        let answer = client.exchange_raw(&mut world, frame);
        assert_eq!(confirmation(&answer).base_offset.0, place as u64);
    }
    for restarted in [false, true] {
        // The oldest remembered and the newest get their offsets; what was forgotten gets 59.
        for place in [1, WINDOW] {
            let answer = client.exchange_raw(&mut world, &frames[place]);
            assert_eq!(confirmation(&answer).base_offset.0, place as u64);
        }
        let forgotten = client.exchange_raw(&mut world, &frames[0]);
        assert_eq!(forgotten.error(), ErrorCode::RequestAlreadyApplied);
        let held = client.poll(&mut world, 0, PollingStrategy::Last, 1);
        assert_eq!(held.current.0, WINDOW as u64, "nothing was stored again");
        if !restarted {
            world = world.restart(1);
            let request = client.request;
            client = Client::root(&mut world, 0, 5);
            client.request = request;
        }
    }
}

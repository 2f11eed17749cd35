//! Diagnostic archives.

use crate::client::{Answer, Client};
use crate::users::create_user;
use crate::world::World;
use borzoi_wire::body::{Archive, GetSnapshot, SnapshotCompression, SnapshotContent};
use borzoi_wire::{ErrorCode, ProtocolVersion, Request};

fn frame(
    client: &mut Client,
    compression: SnapshotCompression,
    content: &[SnapshotContent],
) -> Vec<u8> {
    let content = content.to_vec();
    client.request_frame(&Request::GetSnapshot(GetSnapshot { compression, content }))
}

fn ask(client: &mut Client, world: &mut World, content: &[SnapshotContent]) {
    let frame = frame(client, SnapshotCompression::Deflated, content);
    world.deliver(client.connection, &frame);
    world.run();
}

#[test]
fn an_archive_is_made_off_the_loop_and_answered_as_it_is() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        let wanted = [SnapshotContent::Test, SnapshotContent::ServerLogs, SnapshotContent::Test];
        ask(&mut client, &mut world, &wanted);
        // The server goes on meanwhile.
        let mut other = Client::root(&mut world, 1, 6);
        other.ping(&mut world).payload();
        let job = world.make_archive(Some(b"PK archive"));
        assert_eq!(job.content, [SnapshotContent::Test, SnapshotContent::ServerLogs], "each once");
        let archive: Archive = client.take(&mut world).decode();
        assert_eq!(archive.0, b"PK archive");

        ask(&mut client, &mut world, &[SnapshotContent::All]);
        let job = world.make_archive(None);
        assert_eq!(job.content.len(), 6, "all but the one that stands for all");
        let failed = client.take(&mut world);
        assert_eq!(failed, Answer::Denied(ErrorCode::SnapshotFileCompletionFailed));
        world.assert_at_rest();
    }
}

#[test]
fn what_cannot_be_made_is_refused_by_name_and_one_is_made_at_a_time() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let refused = |client: &mut Client, world: &mut World, compression, content: &[_]| {
        let frame = frame(client, compression, content);
        client.exchange_raw(world, &frame).error()
    };
    let deflated = SnapshotCompression::Deflated;
    assert_eq!(refused(&mut client, &mut world, deflated, &[]), ErrorCode::InvalidCommand);
    let mixed = [SnapshotContent::All, SnapshotContent::Test];
    assert_eq!(refused(&mut client, &mut world, deflated, &mixed), ErrorCode::InvalidCommand);
    let test = [SnapshotContent::Test];
    let zstd = refused(&mut client, &mut world, SnapshotCompression::Zstd, &test);
    assert_eq!(zstd, ErrorCode::FeatureUnavailable);

    ask(&mut client, &mut world, &test);
    let mut other = Client::root(&mut world, 0, 6);
    let busy = refused(&mut other, &mut world, deflated, &test);
    assert_eq!(busy, ErrorCode::TransientNotAccepted);
    // Whoever asked has gone: the archive is for nobody.
    world.hang_up(client.connection);
    world.make_archive(Some(b"PK"));
    ask(&mut other, &mut world, &test);
    world.make_archive(Some(b"PK"));
    other.take(&mut world).payload();

    create_user(&mut other, &mut world, "alice", None).payload();
    let mut alice = Client::connect(&mut world, 0, 7);
    let login = crate::client::login_body("alice", "password", ProtocolVersion::V0_11_0);
    alice.register(&mut world, &login).payload();
    let denied = refused(&mut alice, &mut world, deflated, &test);
    assert_eq!(denied, ErrorCode::Unauthorized);
}

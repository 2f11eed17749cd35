//! Consumer groups: who owns what, when, and what a hand-over needs.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Change, ClosedConnection, CompletedHandover, GroupKey, HandoverCause, MemberSlot, Notice,
    Outcome, Ownership, Reply, SessionRef,
};
use borzoi_types::{ClientId, GroupId, Op, PartitionId};
use borzoi_wire::{ErrorCode, Identifier};
use support::{World, group_name, ident, name, stamp, topic_name};

const APPLIED: Outcome = Outcome::Applied(Reply::Nothing);

/// A stream `s`, topic `t` with `partitions`, group `g`, and clients 1 to `clients` logged in.
fn world(partitions: u32, clients: u128) -> World {
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", partitions);
    world.create_group("s", "t", "g");
    for client in 1..=clients {
        world.root(client);
    }
    world
}

fn join(world: &mut World, client: u128) {
    assert_eq!(world.join(ClientId(client), "s", "t", "g"), APPLIED);
}

fn leave(world: &mut World, client: u128) {
    assert_eq!(world.leave(ClientId(client), "s", "t", "g"), APPLIED);
}

fn shares(world: &World) -> Vec<Vec<u32>> {
    world.shares("s", "t", "g")
}

fn sizes(world: &World) -> Vec<usize> {
    shares(world).iter().map(Vec::len).collect()
}

fn ownership(world: &World, client: u128, partition: u32) -> Ownership {
    world.group("s", "t", "g").ownership(ClientId(client), PartitionId(partition))
}

#[test]
fn the_worked_example_of_idle_members_comes_out_as_told() {
    let mut world = world(6, 4);
    join(&mut world, 1);
    assert_eq!(shares(&world), [vec![0, 1, 2, 3, 4, 5]]);
    join(&mut world, 2);
    world.drain_all();
    assert_eq!(shares(&world), [vec![0, 1, 2], vec![3, 4, 5]]);
    join(&mut world, 3);
    world.drain_all();
    assert_eq!(shares(&world), [vec![0, 1], vec![3, 4], vec![2, 5]]);
    join(&mut world, 4);
    world.drain_all();
    let before = shares(&world);
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 1]);
    assert_eq!(before[0], [0, 1], "members within their share keep what they have");
    leave(&mut world, 3);
    assert_eq!(shares(&world), [vec![0, 3], vec![1, 4], vec![2, 5]]);
    world.system_ok(Change::CreatePartitions { topic: topic_name("s", "t"), count: 2 });
    assert_eq!(sizes(&world), [3, 3, 2]);
    for client in [1, 2, 4] {
        leave(&mut world, client);
    }
    assert!(shares(&world).is_empty());
    assert_eq!(world.group("s", "t", "g").owner(PartitionId(0)), None);
    world.system_ok(Change::DeleteGroup(group_name("s", "t", "g")));
    assert!(world.metadata.group(GroupKey(1)).is_none());
}

#[test]
fn a_partition_stays_with_its_owner_until_it_has_drained() {
    let mut world = world(2, 2);
    join(&mut world, 1);
    join(&mut world, 2);
    let generation = world.group("s", "t", "g").generation;
    let key = world.key("s", "t", 1);
    let notice = Notice::HandoverStarted { group: GroupKey(1), partition: key };
    assert!(world.metadata.notices().contains(&notice));
    assert_eq!(shares(&world), [vec![0, 1], vec![]]);
    assert_eq!(ownership(&world, 1, 1), Ownership::HandingOver);
    assert_eq!(ownership(&world, 2, 1), Ownership::NotOwner);
    // The owner is told to poll only what it keeps.
    let group = world.group("s", "t", "g");
    assert_eq!(group.poll_list(ClientId(1)), Some(vec![PartitionId(0)]));
    assert_eq!(group.poll_list(ClientId(2)), Some(vec![]));
    assert_eq!(group.poll_list(ClientId(3)), None);

    let pending: Vec<_> = world.metadata.handovers().collect();
    assert_eq!(pending.len(), 1);
    assert_eq!((pending[0].from, pending[0].partition.key), (ClientId(1), key));
    assert_eq!(pending[0].handover.to, MemberSlot(1));
    world.drain_all();
    assert_eq!(ownership(&world, 2, 1), Ownership::Owner);
    assert_eq!(ownership(&world, 1, 1), Ownership::NotOwner);
    assert!(world.group("s", "t", "g").generation > generation);
}

#[test]
fn a_report_about_another_hand_over_changes_nothing() {
    let mut world = world(2, 2);
    join(&mut world, 1);
    join(&mut world, 2);
    let before = world.group("s", "t", "g").clone();
    let pending = world.metadata.handovers().next().unwrap();
    let ended = |group, partition, started| {
        let cause = HandoverCause::TimedOut;
        Change::CompleteHandovers(vec![CompletedHandover { group, partition, started, cause }])
    };
    let (group, key, started) = (pending.group, pending.partition.key, pending.handover.started);
    let other_key = world.key("s", "t", 0);
    world.create_topic("s", "u", 2);
    let foreign_key = world.key("s", "u", 1);
    world.system_ok(ended(group, key, Op(started.0 + 1)));
    world.system_ok(ended(GroupKey(99), key, started));
    world.system_ok(ended(group, other_key, started));
    world.system_ok(ended(group, foreign_key, started));
    assert_eq!(*world.group("s", "t", "g"), before);
    world.system_ok(ended(group, key, started));
    assert_eq!(ownership(&world, 2, 1), Ownership::Owner);
}

#[test]
fn when_the_target_leaves_the_hand_over_is_off_and_when_the_owner_leaves_it_is_done() {
    let mut world = world(2, 3);
    join(&mut world, 1);
    join(&mut world, 2);
    leave(&mut world, 2);
    assert_eq!(world.metadata.handovers().count(), 0);
    assert_eq!(shares(&world), [vec![0, 1]]);
    join(&mut world, 3);
    leave(&mut world, 1);
    assert_eq!(world.metadata.handovers().count(), 0);
    assert_eq!(shares(&world), [vec![0, 1]]);
    assert_eq!(ownership(&world, 3, 0), Ownership::Owner);
}

#[test]
fn a_partition_on_its_way_can_be_sent_on_to_a_later_member() {
    let mut world = world(6, 3);
    join(&mut world, 1);
    join(&mut world, 2);
    let first: Vec<_> = world.metadata.handovers().map(|it| it.handover.started).collect();
    join(&mut world, 3);
    let pending: Vec<_> = world.metadata.handovers().collect();
    // Three from the first member to the second; one of them and one more go to the third.
    assert_eq!(pending.len(), 4);
    let turned = pending.iter().find(|it| it.partition.place.partition == PartitionId(5)).unwrap();
    assert_eq!((turned.handover.to, turned.handover.started), (MemberSlot(2), first[0]));
    assert!(pending.iter().all(|it| it.from == ClientId(1)));
    world.drain_all();
    assert_eq!(sizes(&world), [2, 2, 2]);
}

#[test]
fn members_beyond_the_partitions_own_nothing_until_something_changes() {
    let mut world = world(2, 4);
    for client in 1..=4 {
        join(&mut world, client);
        world.drain_all();
    }
    assert_eq!(sizes(&world), [1, 1, 0, 0]);
    leave(&mut world, 1);
    assert_eq!(sizes(&world), [1, 1, 0]);
    world.system_ok(Change::CreatePartitions { topic: topic_name("s", "t"), count: 2 });
    assert_eq!(sizes(&world), [2, 1, 1]);
    world.system_ok(Change::DeletePartitions { topic: topic_name("s", "t"), count: 4 });
    assert_eq!(sizes(&world), [0, 0, 0]);
    world.system_ok(Change::CreatePartitions { topic: topic_name("s", "t"), count: 3 });
    assert_eq!(sizes(&world), [1, 1, 1]);
}

#[test]
fn joining_again_keeps_membership_and_generation() {
    let mut world = world(3, 1);
    join(&mut world, 1);
    let before = world.group("s", "t", "g").clone();
    join(&mut world, 1);
    assert_eq!(*world.group("s", "t", "g"), before);
}

#[test]
fn a_lost_connection_ends_membership_but_a_stale_report_of_it_does_not() {
    let mut world = world(4, 2);
    join(&mut world, 1);
    join(&mut world, 2);
    world.drain_all();
    // Client 1 is back on a newer connection before the loss of the old one is noticed.
    world.login(1, borzoi_metadata::UserKey::ROOT, 77);
    let closed = |client, number| {
        let connection = stamp(number);
        Change::ConnectionsClosed(vec![ClosedConnection { client: ClientId(client), connection }])
    };
    world.system_ok(closed(1, 1));
    assert_eq!(sizes(&world), [2, 2]);
    world.system_ok(closed(1, 77));
    assert_eq!(shares(&world), [vec![0, 1, 2, 3]]);
    assert_eq!(world.group("s", "t", "g").slot(ClientId(1)), None);
    assert_eq!(ownership(&world, 1, 0), Ownership::NotMember);
}

#[test]
fn a_join_that_is_logged_after_the_loss_of_its_connection_makes_no_member() {
    // Without the check the group kept a member that no connection stood for, and its partitions
    // were polled by nobody until the session expired.
    let mut world = world(2, 1);
    let request = world.request(ClientId(1));
    let connection = stamp(1);
    let closed = vec![ClosedConnection { client: ClientId(1), connection }];
    world.system_ok(Change::ConnectionsClosed(closed));
    let join = Change::JoinGroup(group_name("s", "t", "g"));
    let refused = Outcome::Rejected(ErrorCode::TransientNotAccepted);
    assert_eq!(world.resend(request, join.clone()), refused);
    assert_eq!(world.group("s", "t", "g").members().len(), 0);
    // The client comes back and resends the same request.
    world.login(1, borzoi_metadata::UserKey::ROOT, 2);
    let (session, _) = world.clients[&ClientId(1)];
    let again = borzoi_metadata::ClientRequest { session, ..request };
    assert_eq!(world.resend(again, join), APPLIED);
    assert_eq!(shares(&world), [vec![0, 1]]);
}

#[test]
fn silent_members_are_removed_under_their_present_session_only() {
    let mut world = world(2, 2);
    join(&mut world, 1);
    join(&mut world, 2);
    let (session, _) = world.clients[&ClientId(1)];
    let stale = SessionRef { client: ClientId(1), session: borzoi_types::SessionId(session.0 - 1) };
    world.system_ok(Change::RemoveMembers(vec![stale]));
    assert_eq!(world.group("s", "t", "g").members().len(), 2);
    world.system_ok(Change::RemoveMembers(vec![SessionRef { client: ClientId(1), session }]));
    assert_eq!(world.group("s", "t", "g").members().len(), 1);
    assert!(world.metadata.sessions().get(ClientId(1)).is_some(), "the session stays");
}

#[test]
fn many_lost_connections_deal_a_group_out_once() {
    let mut world = world(10, 10);
    for client in 1..=10 {
        join(&mut world, client);
    }
    let generation = world.group("s", "t", "g").generation;
    let lost = (1..=9).map(|client| ClosedConnection {
        client: ClientId(client),
        connection: stamp(u64::try_from(client).unwrap()),
    });
    let lost = lost.collect();
    world.system_ok(Change::ConnectionsClosed(lost));
    assert_eq!(sizes(&world), [10]);
    assert_eq!(world.group("s", "t", "g").generation, generation + 1);
}

#[test]
fn group_numbers_are_not_reused_and_names_are_unique() {
    let mut world = world(1, 0);
    let create = Change::CreateGroup { topic: topic_name("s", "t"), name: name("g") };
    let code = world.rejection(create.clone());
    assert_eq!(code, ErrorCode::ConsumerGroupNameAlreadyExists);
    world.system_ok(Change::DeleteGroup(group_name("s", "t", "g")));
    let reply = world.system_ok(create);
    assert_eq!(reply, Reply::Group { id: GroupId(1), name: name("g"), partitions: 1 });
}

#[test]
fn a_purge_keeps_members_and_ends_hand_overs() {
    let mut world = world(4, 2);
    join(&mut world, 1);
    join(&mut world, 2);
    assert_eq!(world.metadata.handovers().count(), 2);
    world.system_ok(Change::PurgeTopic(topic_name("s", "t")));
    assert_eq!(world.metadata.handovers().count(), 0);
    assert_eq!(sizes(&world), [2, 2]);
}

#[test]
fn deleting_a_topic_ends_the_memberships_in_it() {
    let mut world = world(2, 1);
    join(&mut world, 1);
    world.system_ok(Change::DeleteTopic(topic_name("s", "t")));
    assert!(world.metadata.sessions().get(ClientId(1)).unwrap().groups.is_empty());
    assert!(world.metadata.notices().contains(&Notice::GroupDeleted(GroupKey(1))));
    let gone = world.metadata.find_group(&ident("s"), &ident("t"), &Identifier::Numeric(0));
    assert_eq!(gone.unwrap_err(), ErrorCode::TopicIdNotFound);
}

#[test]
fn no_member_gets_two_more_than_another_whatever_the_order() {
    // Members leave places free at the front, so later ones join in the middle of the order.
    for partitions in 1..=17 {
        let mut world = world(partitions, 9);
        for client in [1, 2, 3, 4, 5, 6] {
            join(&mut world, client);
        }
        for client in [1, 3] {
            leave(&mut world, client);
        }
        for client in [7, 8, 9] {
            join(&mut world, client);
            world.drain_all();
            let sizes = sizes(&world);
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1, "{partitions} partitions: {sizes:?}");
        }
    }
}

#[test]
fn a_thousand_members_share_a_thousand_partitions() {
    let mut metadata = borzoi_metadata::Metadata::format(support::genesis());
    let mut op = Op(0);
    let mut apply = |metadata: &mut borzoi_metadata::Metadata, command| {
        op = op.next();
        metadata.apply(op, borzoi_types::Micros(op.0), &command)
    };
    let mut world = World::default();
    world.create_stream("s");
    world.create_topic("s", "t", 1_000);
    world.create_group("s", "t", "g");
    for client in 1..=1_000u128 {
        let command = borzoi_metadata::Command::system(Change::Register(support_register(client)));
        world.log.push((world.now, command));
    }
    for (_, command) in &world.log {
        apply(&mut metadata, command.clone());
    }
    for client in 1..=1_000u128 {
        let session = metadata.sessions().get(ClientId(client)).unwrap().session;
        let issuer = borzoi_metadata::Issuer::Client(borzoi_metadata::ClientRequest {
            client: ClientId(client),
            session,
            request: borzoi_types::RequestNumber(1),
            checksum: 0,
        });
        let change = Change::JoinGroup(group_name("s", "t", "g"));
        let outcome = apply(&mut metadata, borzoi_metadata::Command { issuer, change });
        assert_eq!(outcome, APPLIED);
    }
    // The first member still owns everything, all but one on its way to someone else.
    let pending: Vec<_> = metadata.handovers().collect();
    assert_eq!(pending.len(), 999);
    let ended = pending.iter().map(|it| CompletedHandover {
        group: it.group,
        partition: it.partition.key,
        started: it.handover.started,
        cause: HandoverCause::Drained,
    });
    let ended = Change::CompleteHandovers(ended.collect());
    apply(&mut metadata, borzoi_metadata::Command::system(ended));
    let (_, group) = metadata.group(GroupKey(1)).unwrap();
    assert!(group.assignments().values().all(|partitions| partitions.len() == 1));
    assert_eq!(metadata.broken_rule(), None);
}

fn support_register(client: u128) -> borzoi_metadata::Register {
    borzoi_metadata::Register {
        client: ClientId(client),
        user: borzoi_metadata::UserKey::ROOT,
        credential: borzoi_metadata::Credential::Password,
        connection: stamp(u64::try_from(client).unwrap()),
    }
}

//! Random histories: the rules hold after every operation, replicas agree byte for byte, snapshots
//! change nothing, duplicates change nothing, bytes of any kind do no harm.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

mod support;

use borzoi_metadata::{
    Change, ClientRequest, ClosedConnection, Command, CompletedHandover, CreateTopic, CreateUser,
    Credential, HandoverCause, Issuer, Metadata, Outcome, Permissions, Register, Reply, SessionRef,
    TokenHash, TopicOptionsUpdate, UpdateTopic, UserKey, UserStatus,
};
use borzoi_types::{
    ClientId, Durability, LogId, Micros, Op, PartitionId, PartitionKey, ReplicaId, RequestNumber,
    SessionId,
};
use borzoi_wire::Identifier;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;
use support::{World, genesis, group_name, hash, ident, name, options, stamp, topic_name};

/// Few names, so that they meet.
fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["aaa", "aaa", "aaa", "bbb", "ccc"]).prop_map(str::to_owned)
}

/// Mostly names, sometimes numbers.
fn identifier() -> impl Strategy<Value = String> {
    prop_oneof![5 => text(), 1 => (0u32..3).prop_map(|number| number.to_string())]
}

/// A world in which the names above mean something.
fn busy_world() -> World {
    let mut world = World::default();
    world.create_stream("aaa");
    world.create_topic("aaa", "aaa", 6);
    world.create_topic_at("aaa", "bbb", 2, Durability::Replicated);
    world.create_group("aaa", "aaa", "aaa");
    world.create_user("aaa", None);
    for client in 1..4 {
        world.root(client);
    }
    world
}

fn level() -> impl Strategy<Value = Durability> {
    prop::sample::select(vec![Durability::Persisted, Durability::Replicated])
}

fn structure() -> impl Strategy<Value = Change> {
    let topic = || (identifier(), identifier()).prop_map(|(s, t)| topic_name(&s, &t));
    prop_oneof![
        6 => text().prop_map(|it| Change::CreateStream { name: name(&it) }),
        1 => (identifier(), text())
            .prop_map(|(it, to)| Change::UpdateStream { stream: ident(&it), name: name(&to) }),
        1 => identifier().prop_map(|it| Change::DeleteStream { stream: ident(&it) }),
        1 => identifier().prop_map(|it| Change::PurgeStream { stream: ident(&it) }),
        9 => (identifier(), text(), 0u32..7, level()).prop_map(|(s, t, partitions, level)| {
            let (stream, name, options) = (ident(&s), name(&t), options(level));
            Change::CreateTopic(CreateTopic { stream, name, partitions, options })
        }),
        1 => (identifier(), identifier(), text(), any::<u64>()).prop_map(|(s, t, to, expiry)| {
            let options =
                TopicOptionsUpdate { message_expiry: Some(Micros(expiry)), ..Default::default() };
            let (stream, topic, name) = (ident(&s), ident(&t), name(&to));
            Change::UpdateTopic(UpdateTopic { stream, topic, name, options })
        }),
        1 => topic().prop_map(Change::DeleteTopic),
        1 => topic().prop_map(Change::PurgeTopic),
        2 => (topic(), 0u32..5)
            .prop_map(|(topic, count)| Change::CreatePartitions { topic, count }),
        2 => (topic(), 0u32..5)
            .prop_map(|(topic, count)| Change::DeletePartitions { topic, count }),
        1 => (topic(), 0u32..4, 0u32..3).prop_map(|(topic, partition, count)| {
            Change::DeleteSegments { topic, partition: PartitionId(partition), count }
        }),
        9 => (topic(), text())
            .prop_map(|(topic, it)| Change::CreateGroup { topic, name: name(&it) }),
        1 => (identifier(), identifier(), identifier())
            .prop_map(|(s, t, g)| Change::DeleteGroup(group_name(&s, &t, &g))),
    ]
}

fn accounts() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => text().prop_map(|it| {
            Change::CreateUser(CreateUser {
                name: name(&it),
                password: hash(&it),
                status: UserStatus::Active,
                permissions: Some(Permissions::default()),
            })
        }),
        1 => (identifier(), text(), any::<bool>()).prop_map(|(user, to, active)| {
            let status = if active { UserStatus::Active } else { UserStatus::Inactive };
            let (name, status) = (Some(name(&to)), Some(status));
            Change::UpdateUser { user: ident(&user), name, status }
        }),
        1 => identifier().prop_map(|it| Change::DeleteUser { user: ident(&it) }),
        1 => identifier().prop_map(|it| {
            Change::UpdatePermissions { user: ident(&it), permissions: None }
        }),
        1 => (identifier(), text(), text()).prop_map(|(user, from, to)| {
            let (verified, password) = (hash(&from), hash(&to));
            Change::ChangePassword { user: ident(&user), verified, password }
        }),
        2 => (text(), any::<u8>(), prop::option::of(0u64..3_000_000_000)).prop_map(
            |(it, byte, expires)| Change::CreateToken {
                name: name(&it),
                hash: TokenHash([byte % 8; 32]),
                expires: expires.map(Micros),
                tokens_max: 3,
            }
        ),
        1 => text().prop_map(|it| Change::DeleteToken { name: name(&it) }),
        1 => Just(Change::ExpireTokens),
    ]
}

fn membership() -> impl Strategy<Value = Change> {
    let group = || (identifier(), identifier(), identifier());
    prop_oneof![
        4 => group().prop_map(|(s, t, g)| Change::JoinGroup(group_name(&s, &t, &g))),
        1 => group().prop_map(|(s, t, g)| Change::LeaveGroup(group_name(&s, &t, &g))),
    ]
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    System(Change),
    User(u64, Change),
    Client(u128, Change),
    Duplicate(Index),
    Login(u128, u64, u64),
    Close(u128, u64),
    Logout(u128),
    Expire(u128, u64),
    NodeStarted(u64),
    Silent(u128),
    Complete(Index),
    Confirm(u32, Index),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 1u128..5;
    prop_oneof![
        12 => structure().prop_map(Step::System),
        4 => accounts().prop_map(Step::System),
        1 => (0u64..4, accounts()).prop_map(|(user, change)| Step::User(user, change)),
        2 => (0u64..4, structure()).prop_map(|(user, change)| Step::User(user, change)),
        20 => (client(), membership()).prop_map(|(client, change)| Step::Client(client, change)),
        3 => (client(), structure()).prop_map(|(client, change)| Step::Client(client, change)),
        2 => (client(), accounts()).prop_map(|(client, change)| Step::Client(client, change)),
        3 => any::<Index>().prop_map(Step::Duplicate),
        8 => (client(), 0u64..4, 0u64..3)
            .prop_map(|(client, user, connection)| Step::Login(client, user / 3, connection)),
        1 => (client(), 0u64..3).prop_map(|(client, connection)| Step::Close(client, connection)),
        1 => client().prop_map(Step::Logout),
        1 => (client(), 0u64..120).prop_map(|(client, seconds)| Step::Expire(client, seconds)),
        1 => (1u64..3).prop_map(Step::NodeStarted),
        1 => client().prop_map(Step::Silent),
        4 => any::<Index>().prop_map(Step::Complete),
        2 => (0u32..8, any::<Index>()).prop_map(|(lane, through)| Step::Confirm(lane, through)),
        1 => Just(Step::Snapshot),
    ]
}

fn current(world: &World, client: u128) -> Option<SessionRef> {
    world.metadata.sessions().get(ClientId(client)).map(|session| session.reference())
}

/// A request that was executed, with the outcome a duplicate must get.
type Executed = (ClientRequest, Change, Outcome);

fn client_step(world: &mut World, client: u128, change: Change, executed: &mut Vec<Executed>) {
    let Some(SessionRef { session, .. }) = current(world, client) else { return };
    let next = world.clients.entry(ClientId(client)).or_insert((session, 1));
    next.0 = session;
    let request = world.request(ClientId(client));
    let outcome = world.resend(request, change.clone());
    let kept = match &outcome {
        Outcome::Applied(Reply::Token) => {
            Outcome::Rejected(borzoi_wire::ErrorCode::PersonalAccessTokenAlreadyExists)
        }
        Outcome::Rejected(code) if code.is_transient() => return,
        // The session's token may have gone; that refusal is not the request's result.
        Outcome::Rejected(borzoi_wire::ErrorCode::PersonalAccessTokenExpired) => return,
        other => other.clone(),
    };
    executed.push((request, change, kept));
}

fn run(world: &mut World, step: Step, executed: &mut Vec<Executed>) {
    match step {
        Step::System(change) => drop(world.system(change)),
        Step::User(user, change) => drop(world.as_user(UserKey(user), change)),
        Step::Client(client, change) => client_step(world, client, change, executed),
        Step::Duplicate(index) => duplicate(world, index, executed),
        Step::Login(client, user, connection) => {
            drop(world.login(client, UserKey(user), connection));
        }
        Step::Close(client, connection) => {
            let connection = stamp(connection);
            let closed = vec![ClosedConnection { client: ClientId(client), connection }];
            drop(world.system(Change::ConnectionsClosed(closed)));
        }
        Step::Logout(client) => {
            if let Some(session) = current(world, client) {
                drop(world.system(Change::Logout(session)));
            }
        }
        Step::Expire(client, seconds) => {
            world.seconds(seconds);
            let sessions = current(world, client).into_iter().collect();
            drop(world.system(Change::ExpireSessions(sessions)));
        }
        Step::NodeStarted(generation) => {
            let replica = ReplicaId(0);
            drop(world.system(Change::NodeStarted { replica, generation }));
        }
        Step::Silent(client) => {
            let members = current(world, client).into_iter().collect();
            drop(world.system(Change::RemoveMembers(members)));
        }
        Step::Complete(index) => {
            let pending: Vec<_> = world.metadata.handovers().collect();
            if !pending.is_empty() {
                let one = index.get(&pending);
                let ended = CompletedHandover {
                    group: one.group,
                    partition: one.partition.key,
                    started: one.handover.started,
                    cause: HandoverCause::TimedOut,
                };
                drop(world.system(Change::CompleteHandovers(vec![ended])));
            }
        }
        Step::Confirm(lane, through) => {
            let through = Op(through.index(usize::try_from(world.op().0).unwrap() + 1) as u64);
            drop(world.system(Change::LanesConfirmed(vec![(LogId(lane), through)])));
        }
        Step::Snapshot => {
            let bytes = world.metadata.encode_snapshot();
            world.metadata = Metadata::decode_snapshot(&bytes).unwrap();
            assert_eq!(world.metadata.encode_snapshot(), bytes);
        }
    }
}

/// A request that was executed comes again: nothing changes, the answer is the same.
fn duplicate(world: &mut World, index: Index, executed: &[Executed]) {
    if executed.is_empty() {
        return;
    }
    let (request, change, outcome) = index.get(executed).clone();
    let alive = current(world, request.client.0)
        == Some(SessionRef { client: request.client, session: request.session });
    let before = world.metadata.encode_snapshot();
    let again = world.resend(request, change);
    let mut after = world.metadata.encode_snapshot();
    after[9..17].copy_from_slice(&before[9..17]);
    assert_eq!(before, after, "a duplicate changes nothing but the operation's number");
    if alive {
        assert_eq!(again, outcome);
    } else {
        assert!(matches!(again, Outcome::Rejected(_)));
    }
}

/// What must never happen twice or go back, seen from outside.
fn check(world: &World, minted: &mut BTreeSet<PartitionKey>, counter: &mut PartitionKey) {
    let metadata = &world.metadata;
    assert!(metadata.next_key() >= *counter);
    let mut live = BTreeSet::new();
    for stream in metadata.streams() {
        for topic in stream.topics.values() {
            for key in &topic.partitions {
                assert!(live.insert(*key), "a key is in one place");
                assert!(minted.contains(key) || *key >= *counter, "a key comes from the counter");
            }
            for group in topic.groups.values() {
                let members = group.members().len();
                let owned: usize = group.assignments().values().map(Vec::len).sum();
                let expected = if members == 0 { 0 } else { topic.partitions.len() };
                assert_eq!(owned, expected, "every partition has exactly one owner");
                if group.handovers().count() == 0 && members > 0 {
                    let sizes = group.assignments().into_values().map(|list| list.len());
                    let sizes: Vec<usize> = sizes.collect();
                    let (least, most) = (sizes.iter().min(), sizes.iter().max());
                    assert!(most.unwrap() - least.unwrap() <= 1, "{sizes:?}");
                }
            }
        }
    }
    minted.extend(live);
    *counter = metadata.next_key();
}

fn replay(log: &[(Micros, Command)]) -> Metadata {
    let mut metadata = Metadata::format(genesis());
    for (now, command) in log {
        let op = metadata.applied().next();
        let _ = metadata.apply(op, *now, command);
    }
    metadata
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn histories_keep_the_rules_and_replicas_agree(
        steps in prop::collection::vec(step(), 1..120),
        cut in any::<Index>(),
    ) {
        let mut world = busy_world();
        let (mut minted, mut counter) = (BTreeSet::new(), PartitionKey(1));
        let mut executed = Vec::new();
        for step in steps {
            run(&mut world, step, &mut executed);
            check(&world, &mut minted, &mut counter);
        }
        let bytes = world.metadata.encode_snapshot();
        prop_assert_eq!(&replay(&world.log).encode_snapshot(), &bytes);
        // One that joins by snapshot in the middle agrees too.
        let (before, after) = world.log.split_at(cut.index(world.log.len() + 1));
        let mut joined = Metadata::decode_snapshot(&replay(before).encode_snapshot()).unwrap();
        for (now, command) in after {
            let op = joined.applied().next();
            let _ = joined.apply(op, *now, command);
        }
        prop_assert_eq!(&joined.encode_snapshot(), &bytes);
    }

    #[test]
    fn damaged_commands_are_refused_or_apply_to_any_state(
        steps in prop::collection::vec(step(), 1..40),
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut world = busy_world();
        let mut executed = Vec::new();
        for step in steps {
            run(&mut world, step, &mut executed);
        }
        for (_, command) in world.log.clone() {
            let mut bytes = command.encode();
            for (place, byte) in &damage {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            if let Ok(command) = Command::decode(&bytes) {
                let _ = world.metadata.validate(&command);
                let op = world.metadata.applied().next();
                let _ = world.metadata.apply(op, world.now, &command);
                prop_assert_eq!(world.metadata.broken_rule(), None);
            }
            let shorter = command.encode();
            let len = damage[0].0.index(shorter.len());
            prop_assert!(Command::decode(&shorter[..len]).is_err());
        }
    }

    #[test]
    fn damaged_snapshots_are_refused_or_keep_the_rules(
        steps in prop::collection::vec(step(), 1..60),
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..60),
    ) {
        let mut world = busy_world();
        let mut executed = Vec::new();
        for step in steps {
            run(&mut world, step, &mut executed);
        }
        let bytes = world.metadata.encode_snapshot();
        for (place, byte) in damage {
            let mut damaged = bytes.clone();
            let place = place.index(damaged.len());
            damaged[place] = byte;
            if let Ok(metadata) = Metadata::decode_snapshot(&damaged) {
                prop_assert_eq!(metadata.broken_rule(), None);
                prop_assert_eq!(metadata.encode_snapshot(), damaged);
            }
            prop_assert!(Metadata::decode_snapshot(&bytes[..place]).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Command::decode(&bytes);
        let _ = Metadata::decode_snapshot(&bytes);
        let mut versioned = vec![1u8];
        versioned.extend_from_slice(&bytes);
        let _ = Command::decode(&versioned);
        let _ = Metadata::decode_snapshot(&versioned);
    }
}

#[test]
fn the_random_histories_reach_the_rare_places() {
    use proptest::test_runner::TestRunner;
    let seen = std::cell::Cell::new([0usize; 4]);
    let strategy = prop::collection::vec(step(), 60..120);
    let mut runner = TestRunner::deterministic();
    let result = runner.run(&strategy, |steps| {
        let mut world = busy_world();
        let mut executed = Vec::new();
        let mut counts = seen.get();
        for step in steps {
            run(&mut world, step, &mut executed);
            let sessions = world.metadata.sessions();
            counts[0] += sessions.iter().map(|session| session.groups.len()).sum::<usize>();
            counts[1] += world.metadata.handovers().count();
            counts[2] += sessions.iter().filter(|session| session.token.is_none()).count();
        }
        counts[3] += executed.len();
        seen.set(counts);
        Ok(())
    });
    assert!(result.is_ok(), "{result:?}");
    let [memberships, handovers, sessions, executed] = seen.get();
    assert!(memberships > 5_000 && handovers > 2_000, "{:?}", seen.get());
    assert!(sessions > 20_000 && executed > 2_000, "{:?}", seen.get());
}

#[test]
fn every_change_has_a_log_form_that_reads_back() {
    let session = SessionRef { client: ClientId(1), session: SessionId(2) };
    let register = Register {
        client: ClientId(1),
        user: UserKey(3),
        credential: Credential::Token(TokenHash([7; 32])),
        connection: stamp(9),
    };
    let closed = ClosedConnection { client: ClientId(1), connection: stamp(9) };
    let changes = [
        Change::Register(register),
        Change::Logout(session),
        Change::ConnectionsClosed(vec![closed, closed]),
        Change::NodeStarted { replica: ReplicaId(2), generation: 7 },
        Change::ExpireSessions(vec![session]),
        Change::RemoveMembers(vec![session]),
        Change::LanesConfirmed(vec![(LogId(3), Op(4))]),
        Change::ExpireTokens,
    ];
    for change in changes {
        let request = RequestNumber(5);
        let (client, session, checksum) = (ClientId(1), SessionId(2), u128::MAX);
        let request = ClientRequest { client, session, request, checksum };
        for issuer in [Issuer::System, Issuer::User(UserKey(8)), Issuer::Client(request)] {
            let command = Command { issuer, change: change.clone() };
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
    }
}

#[test]
fn the_log_form_stays_what_it_is() {
    let create = Change::CreateStream { name: name("orders") };
    let bytes = Command::system(create).encode();
    assert_eq!(bytes, *b"\x01\x01\x0a\x06orders");
    let delete = Change::DeleteTopic(topic_name("orders", "7"));
    let issuer = Issuer::User(UserKey(1));
    let bytes = Command { issuer, change: delete }.encode();
    let expected = b"\x01\x02\x01\0\0\0\0\0\0\0\x16\x02\x06orders\x01\x07\0\0\0";
    assert_eq!(bytes, *expected);
    let newer = Command::decode(&[2, 1, 62]);
    assert!(newer.is_err(), "an unknown version is refused");
    let unknown = Command::decode(&[1, 1, 200]);
    assert!(unknown.is_err(), "an unknown change is refused");
    let longer = Command::decode(&[1, 1, 62, 0]);
    assert!(longer.is_err(), "bytes after the end are refused");
    assert_eq!(ident("7"), Identifier::Numeric(7));
}

//! Truncated, lying and random input at every state of a connection.

use crate::client::{Answer, Client};
use crate::world::World;
use borzoi_types::{ClientId, Duration, RequestNumber, SessionId};
use borzoi_wire::frame::{EvictionView, HEADER_BYTES, RequestHeader};
use borzoi_wire::{CommandCode, ErrorCode, Operation, OperationClass};
use proptest::prelude::*;

fn header(client: &Client, operation: Operation, code: u32, request: u64) -> RequestHeader {
    RequestHeader {
        client: client.id,
        operation: operation as u8,
        session: client.session,
        request: RequestNumber(request),
        code,
        ..RequestHeader::default()
    }
}

#[test]
fn an_undecodable_body_of_every_replicated_operation_is_denied() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    for (request, &operation) in (1..).zip(Operation::ALL) {
        let expected = match operation.class() {
            OperationClass::Metadata => ErrorCode::InvalidCommand,
            OperationClass::Partition => ErrorCode::ResourceNotFound,
            OperationClass::Session | OperationClass::Read | OperationClass::Internal => continue,
        };
        for body in [&[][..], &[0xff; 3], &[9; 2]] {
            let header = header(&client, operation, 0, request);
            let answer = client.exchange(&mut world, header, body);
            assert_eq!(answer, Answer::Denied(expected), "{operation:?} {body:?}");
        }
    }
    client.create_stream(&mut world, "undisturbed").payload();
}

#[test]
fn an_undecodable_body_of_every_read_is_denied_with_3() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    for &command in CommandCode::ALL {
        if command.operation() != Some(Operation::NonReplicated) {
            continue;
        }
        let header = header(&client, Operation::NonReplicated, command.code(), 1);
        let answer = client.exchange(&mut world, header, &[0xff; 2]);
        let has_body = !matches!(
            command,
            CommandCode::Ping
                | CommandCode::GetStats
                | CommandCode::GetClusterMetadata
                | CommandCode::GetMe
                | CommandCode::GetClients
                | CommandCode::GetUsers
                | CommandCode::GetPersonalAccessTokens
                | CommandCode::GetStreams
        );
        if has_body {
            assert_eq!(answer, Answer::Denied(ErrorCode::InvalidCommand), "{command:?}");
        } else {
            assert!(matches!(answer, Answer::Done { .. }), "{command:?}: {answer:?}");
        }
    }
}

/// What a hostile peer sends: mostly headers that get past the first checks, with bodies that
/// are cut, random, or those of another operation.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let operation = prop_oneof![
        prop::sample::select(Operation::ALL.to_vec()).prop_map(|operation| operation as u8),
        any::<u8>(),
    ];
    let code = prop_oneof![
        prop::sample::select(CommandCode::ALL.to_vec()).prop_map(CommandCode::code),
        any::<u32>(),
    ];
    let client = prop_oneof![Just(5u128), Just(0), any::<u128>()];
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(0u8..5, 0..64),
        Just(crate::client::login_body("iggy", "iggy", borzoi_wire::ProtocolVersion::V0_11_0)),
        Just(crate::client::login_body("iggy", "no", borzoi_wire::ProtocolVersion::V0_11_0)),
    ];
    let mutation = prop::option::weighted(0.2, (0..HEADER_BYTES, any::<u8>()));
    let numbers = (0u64..4, 0u64..20);
    (operation, code, client, numbers, body, mutation).prop_map(
        |(operation, code, client, (session, request), body, mutation)| {
            let header = RequestHeader {
                client: ClientId(client),
                operation,
                session: SessionId(session),
                request: RequestNumber(request),
                code,
                ..RequestHeader::default()
            };
            let mut frame = Client::frame(header, &body);
            if let Some((at, byte)) = mutation {
                frame[at] = byte;
            }
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_frames_get_exactly_one_answer_each_or_a_close(
        frames in prop::collection::vec(frame(), 1..24),
        logged_in in any::<bool>(),
        one_by_one in any::<bool>(),
        shards in 1u16..3,
    ) {
        let mut world = World::new(shards);
        let mut other = Client::root(&mut world, 0, 1_000);
        other.prepare(&mut world, 2);
        let mut client = Client::connect(&mut world, 1, 5);
        if logged_in {
            client.login(&mut world, "iggy", "iggy");
        }
        for frame in &frames {
            if world.seen[&client.connection].closed.is_none() {
                world.deliver(client.connection, frame);
            }
            if one_by_one {
                world.run();
            }
        }
        // Long enough for every delayed refusal, short enough that nobody is called idle.
        world.advance(Duration::from_millis(100));
        world.advance(Duration::from_secs(60));
        let seen = world.seen.get_mut(&client.connection).unwrap();
        let answers = core::mem::take(&mut seen.frames);
        if seen.closed.is_none() {
            prop_assert_eq!(answers.len(), frames.len());
        } else {
            prop_assert!(answers.len() <= frames.len() + 1);
        }
        for answer in &answers {
            let size = u32::from_le_bytes(answer[48..52].try_into().unwrap());
            prop_assert_eq!(answer.len(), size as usize);
            if answer[60] == 13 {
                let view = EvictionView::new(answer.first_chunk().unwrap());
                prop_assert!(view.reason().is_some());
            } else {
                prop_assert_eq!(answer[60], 8);
            }
        }
        prop_assert!(other.ping(&mut world).payload().is_empty());
        world.assert_at_rest();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_of_bytes_cut_anywhere_is_answered_frame_by_frame_or_ended(
        script in prop::collection::vec(any::<u8>(), 0..1_500),
    ) {
        crate::stream::run(&script);
    }
}

//! What a connection may do before login, faults of the header, order of answers, limits.

use crate::client::{Answer, Client, login_body, number};
use crate::world::World;
use borzoi_shard::event::{ClientTrouble, CloseReason};
use borzoi_types::limits::{FRAME_BYTES_BEFORE_LOGIN_MAX, FRAME_BYTES_MAX};
use borzoi_types::{ClientId, Duration, RequestNumber, SessionId};
use borzoi_wire::body::GetStream;
use borzoi_wire::frame::{EvictionReason, EvictionView, RequestHeader};
use borzoi_wire::{CommandCode, ErrorCode, Operation, PollingStrategy, ProtocolVersion, Request};

fn deny(code: ErrorCode) -> Answer {
    Answer::Denied(code)
}

#[test]
fn a_ping_is_answered_before_login_and_other_reads_are_denied_with_40() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::connect(&mut world, 1, 5);
        assert!(client.ping(&mut world).payload().is_empty());
        for code in [10, 12, 20, 100, 200, 606] {
            let answer = client.read(&mut world, code, &[]);
            assert_eq!(answer, deny(ErrorCode::Unauthenticated), "code {code}");
        }
        assert!(client.ping(&mut world).payload().is_empty());
    }
}

#[test]
fn a_replicated_request_before_login_is_evicted_under_the_connections_number() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    for operation in
        [Operation::CreateStream, Operation::SendMessages, Operation::JoinConsumerGroup]
    {
        let header = RequestHeader {
            client: client.id,
            operation: operation as u8,
            request: RequestNumber(1),
            session: SessionId(3),
            ..RequestHeader::default()
        };
        world.deliver(client.connection, &Client::frame(header, &[]));
        world.run();
        let frame = client.take_frame(&mut world);
        assert_eq!(Answer::read(&frame), Answer::Evicted(EvictionReason::NoSession));
        let named = EvictionView::new(frame.first_chunk().unwrap()).client();
        assert_ne!(named, client.id, "no identity is bound");
    }
    assert!(client.ping(&mut world).payload().is_empty(), "the connection goes on");
}

#[test]
fn logout_before_login_is_an_empty_success() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    assert!(client.call(&mut world, &Request::Logout).payload().is_empty());
}

#[test]
fn internal_operations_of_clients_are_evicted_with_reason_4_and_end_the_connection() {
    for operation in 64..=68 {
        for bound in [false, true] {
            let mut world = World::new(1);
            let mut client = Client::connect(&mut world, 0, 5);
            if bound {
                client.login(&mut world, "iggy", "iggy");
            }
            let header = RequestHeader {
                client: client.id,
                operation,
                request: RequestNumber(1),
                session: SessionId(1),
                ..RequestHeader::default()
            };
            let answer = client.exchange(&mut world, header, &[]);
            assert_eq!(answer, Answer::Evicted(EvictionReason::InvalidRequestOperation));
            assert_eq!(client.closed(&world), Some(CloseReason::Evicted));
        }
    }
}

#[test]
fn a_zero_request_checksum_is_accepted_and_a_wrong_one_denied_with_4() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    let mut body = Vec::new();
    Request::GetStream(GetStream { stream: number(0) }).write_body(&mut body);
    let mut header = RequestHeader {
        client: client.id,
        operation: Operation::DeleteStream as u8,
        request: RequestNumber(1),
        session: client.session,
        request_checksum: 12_345,
        ..RequestHeader::default()
    };
    assert_eq!(client.exchange(&mut world, header, &body), deny(ErrorCode::InvalidFormat));
    header.request_checksum = 0;
    let answer = client.exchange(&mut world, header, &body);
    assert_eq!(answer, Answer::Rejected(ErrorCode::StreamIdNotFound));
}

#[test]
fn a_frame_that_is_no_request_or_names_nobody_closes_the_connection() {
    let good = RequestHeader {
        client: ClientId(5),
        operation: Operation::NonReplicated as u8,
        code: CommandCode::Ping.code(),
        ..RequestHeader::default()
    };
    let mut reply_command = Client::frame(good, &[]);
    reply_command[60] = 8;
    let nobody = Client::frame(RequestHeader { client: ClientId(0), ..good }, &[]);
    let mut lying_size = Client::frame(good, &[]);
    lying_size[48..52].copy_from_slice(&300u32.to_le_bytes());
    let short = vec![0; 100];
    for frame in [reply_command, nobody, lying_size, short] {
        let mut world = World::new(1);
        let client = Client::connect(&mut world, 0, 5);
        world.deliver(client.connection, &frame);
        world.run();
        assert_eq!(client.closed(&world), Some(CloseReason::Protocol));
        assert!(world.seen[&client.connection].frames.is_empty());
        assert!(matches!(world.logged[..], [ClientTrouble::Request(_)]), "the reason is logged");
    }
}

#[test]
fn an_unknown_operation_and_a_missing_request_number_are_denied_with_3() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    for operation in [0, 4, 63, 70, 127, 150, 163, 255] {
        let header = RequestHeader {
            client: client.id,
            operation,
            request: RequestNumber(1),
            session: client.session,
            ..RequestHeader::default()
        };
        let frame = Client::frame(header, &[]);
        world.deliver(client.connection, &frame);
        world.run();
        let answer = client.take_frame(&mut world);
        assert_eq!(answer[216..220], 3u32.to_le_bytes(), "operation {operation}");
    }
    let header = RequestHeader {
        client: client.id,
        operation: Operation::CreateStream as u8,
        session: client.session,
        ..RequestHeader::default()
    };
    let answer = client.exchange(&mut world, header, &[]);
    assert_eq!(answer, deny(ErrorCode::InvalidCommand));
}

#[test]
fn reads_with_other_codes_are_refused_as_the_protocol_says() {
    let mut world = World::new(1);
    let mut client = Client::root(&mut world, 0, 5);
    for code in [0, 2, 99, 105, 9_999, u32::MAX] {
        assert_eq!(client.read(&mut world, code, &[]), deny(ErrorCode::InvalidCommand), "{code}");
    }
    for code in [33, 101, 121, 202, 302, 503, 604] {
        let answer = client.read(&mut world, code, &[]);
        assert_eq!(answer, deny(ErrorCode::FeatureUnavailable), "code {code}");
    }
    for code in [39, 40, 45] {
        assert!(client.read(&mut world, code, &[]).payload().is_empty(), "code {code}");
    }
    for code in [38, 44] {
        let answer = client.read(&mut world, code, &[]);
        assert_eq!(answer, Answer::Evicted(EvictionReason::MalformedLogin), "code {code}");
    }
    assert!(client.read(&mut world, 20, &[]).payload().len() > 4, "still signed in");
}

#[test]
fn frames_before_login_are_limited_to_4_kib_and_large_ones_are_allowed_after_it() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    assert_eq!(world.seen[&client.connection].limit, FRAME_BYTES_BEFORE_LOGIN_MAX);
    client.login(&mut world, "iggy", "iggy");
    assert_eq!(world.seen[&client.connection].limit, FRAME_BYTES_MAX);
    client.call(&mut world, &Request::Logout).payload();
    assert_eq!(world.seen[&client.connection].limit, FRAME_BYTES_BEFORE_LOGIN_MAX);

    let header = RequestHeader {
        client: client.id,
        operation: Operation::NonReplicated as u8,
        code: CommandCode::Ping.code(),
        ..RequestHeader::default()
    };
    let at_limit = Client::frame(header, &vec![0; FRAME_BYTES_BEFORE_LOGIN_MAX - 256]);
    assert!(client.exchange_raw(&mut world, &at_limit).payload().is_empty());
    let past_it = Client::frame(header, &vec![0; FRAME_BYTES_BEFORE_LOGIN_MAX - 255]);
    world.deliver(client.connection, &past_it);
    world.run();
    assert_eq!(client.closed(&world), Some(CloseReason::Limit));
}

#[test]
fn a_connection_that_does_not_log_in_is_closed_after_5_seconds_even_if_it_pings() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    let mut other = Client::root(&mut world, 0, 6);
    world.advance(Duration::from_millis(4_900));
    client.ping(&mut world).payload();
    assert_eq!(client.closed(&world), None);
    world.advance(Duration::from_millis(200));
    assert_eq!(client.closed(&world), Some(CloseReason::LoginTimeout));
    world.advance(Duration::from_secs(300));
    assert!(other.ping(&mut world).payload().is_empty(), "a signed-in one may idle for ever");
}

#[test]
fn a_version_that_is_not_served_is_refused_with_the_window_before_credentials_are_looked_at() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    for version in [(0, 10, 9), (0, 12, 0), (0, 13, 0), (1, 11, 0)] {
        let version = ProtocolVersion::new(version.0, version.1, version.2);
        let body = login_body("nobody", "wrong password", version);
        let header = RequestHeader {
            client: client.id,
            operation: Operation::Register as u8,
            ..RequestHeader::default()
        };
        world.deliver(client.connection, &Client::frame(header, &body));
        world.run();
        let frame = client.take_frame(&mut world);
        assert_eq!(Answer::read(&frame), Answer::Evicted(EvictionReason::IncompatibleProtocol));
        let view = EvictionView::new(frame.first_chunk().unwrap());
        assert_eq!(view.window().expect("a window").min, ProtocolVersion::V0_11_0);
    }
    assert_eq!(world.password_jobs, 0);
    for patch in [0, 1, 9] {
        let body = login_body("iggy", "iggy", ProtocolVersion::new(0, 11, patch));
        client.register(&mut world, &body).payload();
    }
}

#[test]
fn pipelined_requests_are_answered_in_the_order_they_came() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let mut client = Client::root(&mut world, 1, 5);
        client.prepare(&mut world, 3);
        let mut frames = Vec::new();
        for round in 0..20u32 {
            let to = borzoi_wire::Partitioning::Partition(borzoi_types::PartitionId(round % 3));
            frames.push(client.send_frame(to, &[b"message"]));
            if round % 5 == 4 {
                let poll = Client::poll_request(Some(0), PollingStrategy::First, 100, false);
                frames.push(client.request_frame(&Request::PollMessages(poll)));
                frames.push(client.request_frame(&Request::Ping));
            }
        }
        for frame in &frames {
            world.deliver(client.connection, frame);
        }
        world.run();
        for frame in &frames {
            let answer = client.take_frame(&mut world);
            assert_eq!(answer[200..208], frame[168..176], "request numbers are echoed in order");
            assert_eq!(answer[208], frame[176], "the operation as well");
            assert_eq!(answer[216..220], [0; 4]);
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_flood_of_unanswered_requests_ends_the_connection_and_no_other() {
    let mut world = World::new(1);
    let mut flood = Client::root(&mut world, 0, 5);
    let mut other = Client::root(&mut world, 0, 6);
    other.prepare(&mut world, 1);
    world.hold_disk = true;
    for _ in 0..600 {
        let to = borzoi_wire::Partitioning::Partition(borzoi_types::PartitionId(0));
        let frame = flood.send_frame(to, &[b"message"]);
        world.deliver(flood.connection, &frame);
    }
    world.run();
    assert_eq!(flood.closed(&world), Some(CloseReason::Limit));
    assert_eq!(world.logged, [ClientTrouble::Requests]);
    assert_eq!(world.shards[0].front().counters().closed_by_limit, 1);
    world.hold_disk = false;
    world.run();
    assert!(other.ping(&mut world).payload().is_empty());
}

#[test]
fn answers_are_counted_by_what_they_say() {
    let mut world = World::new(1);
    let mut client = Client::connect(&mut world, 0, 5);
    client.read(&mut world, 20, &[]);
    client.create_stream(&mut world, "too early");
    client.login(&mut world, "iggy", "iggy");
    client.create_stream(&mut world, "stream").payload();
    client.create_stream(&mut world, "stream").error();
    let counters = *world.shards[0].front().counters();
    assert_eq!((counters.replies, counters.evictions, counters.refused), (5, 1, 2));
    assert_eq!(counters.denied_transient, 0);
}

#[test]
fn a_stop_lets_answers_out_and_closes_the_connections() {
    let mut world = World::new(2);
    let mut busy = Client::root(&mut world, 1, 5);
    busy.prepare(&mut world, 1);
    let idle = Client::root(&mut world, 0, 6);
    world.stop();
    assert_eq!(idle.closed(&world), Some(CloseReason::Stopping));
    assert_eq!(busy.closed(&world), Some(CloseReason::Stopping));
    assert_eq!(world.stopped, 2);
    let connection = world.open(0, "10.0.0.9:1");
    assert_eq!(world.seen[&connection].closed, Some(CloseReason::Stopping));
}

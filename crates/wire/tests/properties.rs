//! Round trips of every type, and what arbitrary bytes may do: be refused, nothing else.

#![allow(clippy::unwrap_used)] // A failed step is the test's failure.
#![allow(dead_code)] // Other tests share the support modules.

mod support {
    pub mod requests;
    pub mod values;
}

use borzoi_types::{GroupId, Micros, Offset, PartitionId, SessionId, StreamId, TopicId, UserId};
use borzoi_wire::body::*;
use borzoi_wire::codec::{ToEnd, Wire};
use borzoi_wire::profile::profile_a::{self, ReplyOutcome};
use borzoi_wire::reply::{Answer, Reply, ReplyPosition};
use borzoi_wire::{CommandCode, Entries, Operation, Profile, ProtocolVersion, Request, Value};
use borzoi_wire::{ErrorCode, detect_first_bytes, frame, write_entry};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::fmt::Debug;
use support::requests::{login_with_context, owned_request, target};
use support::values::*;

/// Asserts that a value decodes from its encoding to itself, that no shorter encoding decodes, and
/// that bytes behind it are seen.
fn assert_round_trip<T: for<'a> Wire<'a> + PartialEq + Debug>(value: &T) {
    let bytes = value.encode();
    assert!(bytes.len() >= T::BYTES_MIN, "{value:?} is shorter than its smallest encoding");
    assert_eq!(&T::decode_exact(&bytes).unwrap(), value);
    let longer = [&bytes[..], &[0; 3]].concat();
    assert!(T::decode_exact(&longer).is_err() || T::decode(&longer).is_ok());
}

fn decode_request(request: &Request<'_>, body: &[u8]) -> bool {
    let operation = request.command().operation().unwrap();
    let decoded = Request::decode(operation, request.command().code(), body);
    decoded.as_ref() == Ok(request)
}

proptest! {
    #[test]
    fn every_request_that_owns_its_parts_round_trips(request in owned_request()) {
        let mut body = Vec::new();
        request.write_body(&mut body);
        prop_assert!(decode_request(&request, &body));
    }

    #[test]
    fn every_request_that_borrows_round_trips(target in target()) {
        for request in target.requests() {
            let mut body = Vec::new();
            request.write_body(&mut body);
            prop_assert!(decode_request(&request, &body), "{:?}", request);
        }
    }

    #[test]
    fn a_login_with_a_context_keeps_its_bytes(login in login_with_context()) {
        let mut body = Vec::new();
        login.write(&mut body);
        let mut again = Vec::new();
        Login::decode(&body).unwrap().write(&mut again);
        prop_assert_eq!(again, body);
    }

    #[test]
    fn truncated_requests_are_refused_or_shorter_requests(
        request in owned_request(),
        target in target(),
        cut in any::<prop::sample::Index>(),
    ) {
        for request in target.requests().iter().chain([&request]) {
            let mut body = Vec::new();
            request.write_body(&mut body);
            if body.is_empty() {
                continue;
            }
            let cut = &body[..cut.index(body.len())];
            let operation = request.command().operation().unwrap();
            if let Ok(shorter) = Request::decode(operation, request.command().code(), cut) {
                // Only what runs to the end of the body may end earlier.
                let mut again = Vec::new();
                shorter.write_body(&mut again);
                prop_assert!(again.len() <= cut.len());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_encode_to_what_decodes_the_same(
        bytes in vec(any::<u8>(), 0..400),
    ) {
        for &command in CommandCode::ALL {
            let Some(operation) = command.operation() else { continue };
            if let Ok(request) = Request::decode(operation, command.code(), &bytes) {
                let mut again = Vec::new();
                request.write_body(&mut again);
                // Trailing bytes are ignored, so the encoding may be shorter, never longer; a value
                // that an enumeration ignores (of a poll of the last messages) may change.
                prop_assert!(again.len() <= bytes.len());
                prop_assert!(Request::decode(operation, command.code(), &again).is_ok());
            }
        }
    }

    #[test]
    fn flipped_bytes_in_a_request_never_panic(
        request in owned_request(),
        target in target(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for request in target.requests().iter().chain([&request]) {
            let mut body = Vec::new();
            request.write_body(&mut body);
            for (at, byte) in &flips {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = *byte;
                }
            }
            let operation = request.command().operation().unwrap();
            let _ = Request::decode(operation, request.command().code(), &body);
        }
    }

    #[test]
    fn arbitrary_frames_never_panic(bytes in vec(any::<u8>(), 0..700)) {
        let _ = detect_first_bytes(&bytes);
        let _ = profile_a::read_reply(&bytes);
        if let Some((view, body)) = frame::RequestView::split(&bytes) {
            for bound in [false, true] {
                if let Ok(operation) = view.check(bound) {
                    let _ = view.check_body(body);
                    let _ = Profile::A.decode_request(view, operation, body);
                }
            }
        }
        for batch in borzoi_wire::batch::Batches::new(&bytes) {
            let Ok(batch) = batch else { break };
            batch.frames().for_each(drop);
        }
        let _ = borzoi_wire::batch::verify_send(&bytes, 1);
        Entries::new(&bytes).for_each(drop);
    }

    #[test]
    fn user_headers_round_trip(entries in vec((value(), value()), 0..8)) {
        let mut bytes = Vec::new();
        entries.iter().for_each(|(key, value)| write_entry(key, value, &mut bytes));
        let read: Vec<(Value<'_>, Value<'_>)> =
            Entries::new(&bytes).map(|e| e.unwrap()).map(|e| (e.key, e.value)).collect();
        prop_assert_eq!(read, entries);
    }

    #[test]
    fn options_round_trip_in_both_places(options in options(), trailing in trailing()) {
        assert_round_trip(&options);
        assert_round_trip(&trailing);
    }

    #[test]
    fn records_of_the_cluster_round_trip(
        name in text(),
        nodes in vec(cluster_node(), 0..4),
        attach in attach_record(),
        node in cluster_node(),
    ) {
        assert_round_trip(&ClusterMetadata { name, nodes });
        assert_round_trip(&attach);
        assert_round_trip(&Routing { attach, node });
    }

    #[test]
    fn records_of_users_round_trip(
        user in user_record(),
        users in vec(user_record(), 0..4),
        permissions in prop::option::of(permissions()),
        names in vec(name(), 0..4),
        expiry in micros(),
        secret in secret(),
    ) {
        assert_round_trip(&UserDetails { user, permissions });
        assert_round_trip(&ToEnd(users));
        assert_round_trip(&secret);
        let tokens = names.into_iter().map(|name| TokenRecord { name, expiry });
        assert_round_trip(&ToEnd(tokens.collect::<Vec<_>>()));
    }

    #[test]
    fn records_of_streams_and_topics_round_trip(
        stream in stream_record(),
        streams in vec(stream_record(), 0..3),
        topics in vec(topic_header(), 0..4),
        topic in topic_header(),
        numbers in vec(any::<[u64; 4]>(), 0..5),
    ) {
        let topics_count = u32::try_from(topics.len()).unwrap();
        let stream = borzoi_wire::body::StreamRecord { topics_count, ..stream };
        assert_round_trip(&topics);
        assert_round_trip(&StreamDetails { stream, topics });
        assert_round_trip(&ToEnd(streams));
        let partitions: Vec<_> = numbers.iter().zip(0..).map(|(n, id)| PartitionRecord {
            id: PartitionId(id),
            created: Micros(n[0]),
            segments: id,
            current_offset: Offset(n[1]),
            size_bytes: n[2],
            messages: n[3],
        }).collect();
        let partitions_count = u32::try_from(partitions.len()).unwrap();
        let topic = TopicHeader { partitions_count, ..topic };
        let details = TopicDetails { topic, partitions };
        assert_round_trip(&details);
        assert_round_trip(&Some(details));
    }

    #[test]
    fn records_of_groups_round_trip(
        group in group_record(),
        groups in vec(group_record(), 0..4),
        members in vec(vec(partition(), 0..5), 0..4),
        generation in any::<u64>(),
    ) {
        let partitions = members.concat();
        let members: Vec<_> = members.into_iter().zip(0..)
            .map(|(partitions, id)| GroupMember { id, partitions }).collect();
        let members_count = u32::try_from(members.len()).unwrap();
        assert_round_trip(&group);
        let group = GroupRecord { members_count, ..group };
        assert_round_trip(&GroupDetails { group, members });
        assert_round_trip(&ToEnd(groups));
        assert_round_trip(&Assignment { generation: GroupGeneration(generation), partitions });
    }

    #[test]
    fn records_of_clients_round_trip(
        client in client_record(),
        clients in vec(client_record(), 0..4),
        groups in vec(client_group(), 0..4),
    ) {
        let groups_count = u32::try_from(groups.len()).unwrap();
        let client = ClientRecord { groups_count, ..client };
        assert_round_trip(&ClientDetails { client, groups });
        assert_round_trip(&ToEnd(clients));
    }

    #[test]
    fn records_of_the_server_round_trip(
        numbers in any::<[u32; 8]>(),
        sizes in any::<[u64; 9]>(),
        texts in [text(), text(), text(), text(), text()],
        hits in vec((any::<[u32; 3]>(), any::<[u64; 2]>()), 0..4),
        catalogue in vec((name(), value(), text()), 0..4),
    ) {
        let catalogue = catalogue.into_iter().map(|(name, default, description)| {
            OptionDescription { name, default, description }
        });
        assert_round_trip(&catalogue.collect::<Vec<_>>());
        let caches = hits.into_iter().map(|(n, h)| CacheStats {
            stream: StreamId(n[0]),
            topic: TopicId(n[1]),
            partition: PartitionId(n[2]),
            hits: h[0],
            misses: h[1],
            hit_ratio: 0.25,
        });
        let stats = stats(numbers, sizes, texts, caches.collect());
        assert_round_trip(&stats);
        assert_round_trip(&Archive(stats.encode()));
    }

    #[test]
    fn small_records_round_trip(numbers in any::<[u32; 3]>(), sizes in any::<[u64; 3]>()) {
        let [a, b, c] = numbers;
        let confirmation = SendConfirmation {
            stream: StreamId(a),
            topic: TopicId(b),
            partition: PartitionId(c),
            base_offset: Offset(sizes[0]),
        };
        assert_round_trip(&vec![confirmation; 3]);
        let offset = ConsumerOffset {
            partition: PartitionId(a),
            current_offset: Offset(sizes[0]),
            stored_offset: Offset(sizes[1]),
        };
        assert_round_trip(&Some(offset));
        let current_offset = Offset(sizes[2]);
        assert_round_trip(&PollPrefix {
            partition: PartitionId(b), current_offset, messages_count: c,
        });
        assert_round_trip(&Identity {
            user: UserId(a),
            session: SessionId(sizes[1]),
            protocol: ProtocolVersion(b),
            server_version: borzoi_wire::Name::new("borzoi 0.1.0").unwrap(),
        });
        assert_round_trip(&ClientGroup {
            stream: StreamId(a), topic: TopicId(b), group: GroupId(c),
        });
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_reader_of_replies(bytes in vec(any::<u8>(), 0..400)) {
        let _ = StreamDetails::decode(&bytes);
        let _ = TopicDetails::decode(&bytes);
        let _ = Vec::<TopicHeader>::decode(&bytes);
        let _ = ToEnd::<StreamRecord>::decode(&bytes);
        let _ = ToEnd::<GroupRecord>::decode(&bytes);
        let _ = ToEnd::<ClientRecord>::decode(&bytes);
        let _ = ToEnd::<UserRecord>::decode(&bytes);
        let _ = ToEnd::<TokenRecord>::decode(&bytes);
        let _ = UserDetails::decode(&bytes);
        let _ = ClientDetails::decode(&bytes);
        let _ = GroupDetails::decode(&bytes);
        let _ = Assignment::decode(&bytes);
        let _ = ClusterMetadata::decode(&bytes);
        let _ = Routing::decode(&bytes);
        let _ = Stats::decode(&bytes);
        let _ = Vec::<OptionDescription>::decode(&bytes);
        let _ = Vec::<SendConfirmation>::decode(&bytes);
        let _ = Identity::decode(&bytes);
        let _ = PollReply::decode(&bytes).map(|poll| poll.batches().for_each(drop));
    }

    #[test]
    fn a_client_reads_the_answer_that_the_server_encoded(
        operation in select(Operation::ALL),
        code in select(ErrorCode::ALL),
        request in any::<u64>(),
    ) {
        let to = frame::ReplyTo {
            client: borzoi_types::ClientId(7),
            request: borzoi_types::RequestNumber(request),
            operation: operation as u8,
            ..frame::ReplyTo::default()
        };
        let encode = |answer| {
            Profile::A.encode_answer(&to, ReplyPosition::default(), &answer)
        };
        let done = encode(Answer::Done(Reply::Empty));
        match profile_a::read_reply(&done) {
            Ok(ReplyOutcome::Success(view, payload)) => {
                prop_assert!(payload.is_empty());
                prop_assert_eq!(view.request().0, request);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        for answer in [Answer::Denied(code), Answer::Rejected(code)] {
            let refused = encode(answer);
            let outcome = profile_a::read_reply(&refused);
            let is_refused = matches!(
                outcome,
                Ok(ReplyOutcome::Refused(_, number)) if number == code.number()
            );
            prop_assert!(is_refused);
        }
    }
}

fn stats(
    n: [u32; 8],
    s: [u64; 9],
    texts: [borzoi_wire::Text; 5],
    caches: Vec<CacheStats>,
) -> Stats {
    let [hostname, os_name, os_version, kernel_version, server_version] = texts;
    Stats {
        process_id: n[0],
        process_cpu_percent: 1.5,
        total_cpu_percent: 99.0,
        process_memory_bytes: s[0],
        total_memory_bytes: s[1],
        available_memory_bytes: s[2],
        run_time_us: s[3],
        start_time: Micros(s[4]),
        read_bytes: s[5],
        written_bytes: s[6],
        messages_size_bytes: s[7],
        streams_count: n[1],
        topics_count: n[2],
        partitions_count: n[3],
        segments_count: n[4],
        messages_count: s[8],
        clients_count: n[5],
        consumer_groups_count: n[6],
        hostname,
        os_name,
        os_version,
        kernel_version,
        server_version,
        server_semver: ProtocolVersion(n[7]),
        caches,
        threads_count: n[0],
        free_disk_bytes: s[0],
        total_disk_bytes: s[1],
    }
}

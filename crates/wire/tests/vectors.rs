//! Every vector of profile A decodes to the fields it names and encodes to the same bytes, through
//! the same functions that server and client use.

#![allow(clippy::unwrap_used)] // A failed step is the test's failure.

#[path = "vectors_support/fields.rs"]
mod fields;
#[path = "vectors_support/replies.rs"]
mod replies;

use borzoi_types::checksum::xxh3_64;
use borzoi_types::{ClientId, Micros};
use borzoi_wire::frame::{
    EvictionHeader, EvictionReason, EvictionView, FrameSize, HEADER_BYTES, ReplyTo, ReplyView,
    RequestView, request_checksum,
};
use borzoi_wire::profile::profile_a::{self, ReplyOutcome};
use borzoi_wire::reply::{Answer, ReplyPosition};
use borzoi_wire::{ErrorCode, NameRef, Operation, Profile, batch};
use serde_json::{Value, json};

struct Vector {
    name: String,
    from_client: bool,
    frame: Vec<u8>,
    header: Value,
    body: Value,
}

fn file() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

fn vectors(profile: &str) -> Vec<Vector> {
    let file = file();
    let all = file["vectors"].as_array().unwrap();
    let of_profile = all.iter().filter(|v| v["profile"] == profile);
    let vectors: Vec<Vector> = of_profile
        .map(|v| Vector {
            name: v["name"].as_str().unwrap().to_owned(),
            from_client: v["direction"] == "client_to_server",
            frame: unhex(v["hex"].as_str().unwrap()),
            header: v["fields"]["header"].clone(),
            body: v["fields"]["body"].clone(),
        })
        .collect();
    assert!(!vectors.is_empty());
    vectors
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn header_bytes(frame: &[u8]) -> &[u8; HEADER_BYTES] {
    frame.first_chunk().unwrap()
}

/// Asserts that `actual` has everything that `expected` names.
#[track_caller]
fn assert_contains(name: &str, actual: &Value, expected: &Value) {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            for (key, value) in expected {
                let path = format!("{name}.{key}");
                assert_contains(&path, actual.get(key).unwrap_or(&Value::Null), value);
            }
        }
        (Value::Array(actual), Value::Array(expected)) => {
            assert_eq!(actual.len(), expected.len(), "{name}");
            for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
                assert_contains(&format!("{name}[{at}]"), actual, expected);
            }
        }
        _ => assert_eq!(actual, expected, "{name}"),
    }
}

fn request_header_fields(view: RequestView<'_>) -> Value {
    json!({
        "size": view.size(), "view": view.view(), "release": view.release(),
        "command": view.command(), "replica": view.replica(),
        "client": fields::hex128(view.client().0),
        "request_checksum": fields::hex128(view.request_checksum()),
        "timestamp": view.timestamp(), "request": view.request().0,
        "operation": view.operation_byte(), "session": view.session().0, "user_id": 0,
        "code": view.code(), "partition_incarnation": view.partition_incarnation(),
        "owner_generation": view.owner_generation(),
        "minimum_metadata_op": view.minimum_metadata_op().0,
    })
}

fn reply_header_fields(view: ReplyView<'_>) -> Value {
    json!({
        "size": view.size(), "view": view.view(), "release": 0, "command": view.command(),
        "replica": view.replica(), "request_checksum": fields::hex128(view.request_checksum()),
        "client": fields::hex128(view.client().0), "op": view.op().0, "commit": view.commit().0,
        "timestamp": view.timestamp().0, "request": view.request().0,
        "operation": view.operation_byte(), "status": view.status(),
        "committed_marker": view.committed_marker(),
        "partition_incarnation": view.partition_incarnation(), "context": fields::hex128(0),
    })
}

#[test]
fn requests_decode_to_their_fields_and_encode_to_the_same_bytes() {
    let mut seen = 0;
    for vector in vectors("A").into_iter().filter(|v| v.from_client) {
        let name = &vector.name;
        let (view, body) = RequestView::split(&vector.frame).unwrap();
        assert_contains(name, &request_header_fields(view), &vector.header);
        let size = FrameSize::peek(header_bytes(&vector.frame), 4_096).unwrap();
        assert_eq!(size.frame_bytes(), vector.frame.len(), "{name}");
        let operation = view.check(true).unwrap();
        view.check_body(body).unwrap();
        let request = Profile::A.decode_request(view, operation, body).unwrap();
        assert_eq!(request.command().operation(), Some(operation), "{name}");
        assert_contains(name, &fields::request(&request), &vector.body);

        let mut encoded = Vec::new();
        request.write_body(&mut encoded);
        let header = view.to_header();
        assert_eq!([&header.encode(encoded.len())[..], &encoded].concat(), vector.frame, "{name}");
        let announced = view.request_checksum();
        assert!(announced == 0 || announced == request_checksum(&encoded), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 24);
}

/// The request that a reply vector answers, as far as the reply tells.
fn answered(view: ReplyView<'_>) -> ReplyTo {
    let requested = Operation::ALL.iter().find(|operation| {
        operation.committed() as u8 == view.operation_byte() && operation.committed() != **operation
    });
    ReplyTo {
        cluster: view.cluster(),
        client: view.client(),
        request_checksum: view.request_checksum(),
        timestamp: 0,
        request: view.request(),
        operation: requested.map_or(view.operation_byte(), |&operation| operation as u8),
        partition_incarnation: view.partition_incarnation(),
    }
}

#[test]
fn replies_decode_to_their_fields_and_encode_to_the_same_bytes() {
    let mut seen = 0;
    for vector in vectors("A").into_iter().filter(|v| !v.from_client) {
        let name = &vector.name;
        if vector.header["command"] == 13 {
            continue;
        }
        let outcome = profile_a::read_reply(&vector.frame).unwrap();
        let view = ReplyView::new(header_bytes(&vector.frame));
        assert_contains(name, &reply_header_fields(view), &vector.header);
        let to = answered(view);
        let timestamp = Some(view.timestamp());
        let position = ReplyPosition { op: view.op(), commit: view.commit(), timestamp };
        let frame = match outcome {
            ReplyOutcome::Success(_, payload) => {
                let reply = replies::decode(name, payload);
                let mut found = fields::reply(&reply.value);
                reply.records.iter().for_each(|records| fields::add_batch(&mut found, records));
                found["result_count"] = json!(0);
                assert_contains(name, &found, &vector.body);
                let mut frame =
                    Profile::A.encode_answer(&to, position, &Answer::Done(reply.value.clone()));
                if let Some(records) = reply.records {
                    let prefix = reply.prefix();
                    frame = profile_a::encode_poll_head(&to, position, prefix, records.len());
                    frame.extend_from_slice(records);
                }
                frame
            }
            ReplyOutcome::Refused(_, number) if view.status() != 0 => {
                let code = ErrorCode::from_number(number).unwrap();
                Profile::A.encode_answer(&to, position, &Answer::Denied(code))
            }
            ReplyOutcome::Refused(_, number) => {
                let found = json!({ "result_count": 1, "index": 0, "result": number });
                assert_contains(name, &found, &vector.body);
                let code = ErrorCode::from_number(number).unwrap();
                Profile::A.encode_answer(&to, position, &Answer::Rejected(code))
            }
            ReplyOutcome::Evicted(..) => panic!("{name} is not an eviction"),
        };
        assert_eq!(frame, vector.frame, "{name}");
        assert_eq!(
            [&view.to_header().encode(frame.len() - HEADER_BYTES)[..], &frame[HEADER_BYTES..]]
                .concat(),
            vector.frame,
            "{name}"
        );
        seen += 1;
    }
    assert_eq!(seen, 35);
}

#[test]
fn evictions_decode_to_their_fields_and_encode_to_the_same_bytes() {
    let mut seen = 0;
    let profiles = ["A", "B"].map(vectors).into_iter().flatten();
    for vector in profiles.filter(|v| v.header["command"] == 13) {
        let view = EvictionView::new(header_bytes(&vector.frame));
        let reason = view.reason().unwrap();
        assert_eq!(vector.header["reason"], json!(reason as u8));
        assert_eq!(vector.header["client"], json!(fields::hex128(view.client().0)));
        let header = EvictionHeader { client: view.client(), reason, window: view.window() };
        assert_eq!(header.encode()[..], vector.frame, "{}", vector.name);
        if vector.name.starts_with("a.") {
            assert_eq!(profile_a::encode_eviction(view.client(), reason), vector.frame);
        }
        let outcome = profile_a::read_reply(&vector.frame).unwrap();
        let ReplyOutcome::Evicted(error, _) = outcome else { panic!("{}", vector.name) };
        assert_eq!(error, reason.error());
        seen += 1;
    }
    assert_eq!(seen, 5);
    // An eviction of nobody would be taken for a damaged frame.
    let nobody = profile_a::encode_eviction(ClientId(0), EvictionReason::NoSession);
    assert_ne!(EvictionView::new(header_bytes(&nobody)).client(), ClientId(0));
}

#[test]
fn headers_of_profile_b_have_their_fields_already() {
    for vector in vectors("B") {
        let header = header_bytes(&vector.frame);
        let body_bytes = vector.frame.len() - HEADER_BYTES;
        if vector.from_client {
            let view = RequestView::new(header);
            assert_contains(&vector.name, &request_header_fields(view), &vector.header);
            assert_eq!(view.to_header().encode(body_bytes), *header, "{}", vector.name);
        } else if vector.header["command"] == 8 {
            let view = ReplyView::new(header);
            assert_contains(&vector.name, &reply_header_fields(view), &vector.header);
            assert_eq!(view.to_header().encode(body_bytes), *header, "{}", vector.name);
        }
    }
}

#[test]
fn check_values_of_the_hashes_hold() {
    let checks = file()["checks"].clone();
    let hex64 = |value: u64| json!(format!("{value:#018x}"));
    assert_eq!(checks["xxh3_64_empty"], hex64(xxh3_64(b"")));
    assert_eq!(checks["xxh3_64_abc"], hex64(xxh3_64(b"abc")));
    let number = borzoi_wire::identifier::consumer_number(NameRef::new("worker-1").unwrap());
    assert_eq!(checks["xxh32_worker_1"], json!(format!("{number:#010x}")));
    let key = borzoi_wire::MessagesKey::new(b"key-a").unwrap();
    let partition = key.partition(u32::MAX).unwrap().0;
    assert_eq!(checks["xxh32_key_a"], json!(format!("{partition:#010x}")));
}

fn batch_of(name: &str) -> Vec<u8> {
    let vectors = vectors("A");
    let vector = vectors.iter().find(|v| v.name == name).unwrap();
    let at = if vector.from_client { HEADER_BYTES + 4 + 26 } else { HEADER_BYTES + 16 };
    vector.frame[at..].to_vec()
}

#[test]
fn a_sent_batch_verifies_and_stamping_it_gives_the_polled_batch() {
    let mut sent = batch_of("a.send_messages.request");
    batch::verify_send(&sent, 2).unwrap();
    let polled = batch_of("a.poll_messages.reply");
    let time = Micros(1_767_225_600_000_100);
    let header =
        batch::stamp(&mut sent, borzoi_types::PartitionId(1), borzoi_types::Offset(0), time)
            .unwrap();
    assert_eq!(sent, polled);
    assert_eq!(batch::verify_stored(&sent), Ok(header));
}

#[test]
fn slicing_the_polled_batch_gives_the_sliced_vector() {
    let polled = batch_of("a.poll_messages.reply");
    let from = borzoi_types::Offset(1);
    let limits = batch::SliceLimits { from, count_max: 10, bytes_max: 1 << 20 };
    let slice = batch::slice_batch(&polled, limits).unwrap().unwrap();
    assert_eq!((slice.first, slice.last, slice.is_whole), (from, from, false));
    let served = [&slice.header.encode()[..], &polled[slice.frames]].concat();
    assert_eq!(served, batch_of("a.poll_messages.reply.sliced"));
    batch::verify_stored(&served).unwrap();
}

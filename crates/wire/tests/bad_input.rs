//! Frames and bodies that are truncated, oversized or lie about their counts: each is refused with
//! the fault and the answer that belong to it.

#![allow(clippy::unwrap_used)] // A failed step is the test's failure.

use borzoi_types::{ClientId, RequestNumber, SessionId};
use borzoi_wire::body::{
    ClusterMetadata, CreateTopic, Credentials, Login, LoginError, PollPrefix, SendError,
    SendMessages, StreamDetails, TopicDetails,
};
use borzoi_wire::frame::{
    EvictionReason, HEADER_BYTES, Reaction, RequestFault, RequestHeader, RequestView,
};
use borzoi_wire::profile::profile_a::{self, ReplyFault, ReplyOutcome};
use borzoi_wire::{
    CommandCode, DecodeError, ErrorCode, Operation, Profile, Request, RequestError, Wire,
};

const CLIENT: ClientId = ClientId(77);

fn header(operation: u8) -> RequestHeader {
    RequestHeader {
        client: CLIENT,
        request: RequestNumber(1),
        session: SessionId(5),
        operation,
        ..RequestHeader::default()
    }
}

fn check(header: RequestHeader, bound: bool) -> Result<Operation, RequestFault> {
    RequestView::new(&header.encode(0)).check(bound)
}

#[test]
fn each_rule_of_the_request_header_has_its_fault_and_its_answer() {
    let mut bytes = header(2).encode(0);
    bytes[60] = 8;
    let fault = RequestView::new(&bytes).check(true).unwrap_err();
    assert_eq!(fault, RequestFault::Command { command: 8 });
    assert_eq!(fault.reaction(), Reaction::Close);

    let nobody = RequestHeader { client: ClientId(0), ..header(2) };
    assert_eq!(check(nobody, true), Err(RequestFault::NoClient));

    for operation in [0, 4, 70, 127, 150, 166, 255] {
        let fault = check(header(operation), true).unwrap_err();
        assert_eq!(fault, RequestFault::UnknownOperation { operation });
        assert_eq!(fault.reaction(), Reaction::Deny(ErrorCode::InvalidCommand));
    }
    for operation in 64..=68 {
        let fault = check(header(operation), true).unwrap_err();
        assert!(matches!(fault, RequestFault::InternalOperation { .. }));
        let evicted = Reaction::Evict(EvictionReason::InvalidRequestOperation);
        assert_eq!(fault.reaction(), evicted);
    }
    let numbered = check(header(1), false).unwrap_err();
    assert!(matches!(numbered, RequestFault::NumberedLogin { .. }));
    let login = RequestHeader { client: CLIENT, operation: 1, ..RequestHeader::default() };
    assert_eq!(check(login, false), Ok(Operation::Register));
}

#[test]
fn outside_of_a_session_only_reads_logins_and_logouts_pass() {
    for &operation in Operation::ALL {
        let mut header = header(operation as u8);
        if operation == Operation::Register {
            (header.session, header.request) = (SessionId(0), RequestNumber(0));
        }
        let outcome = check(header, false);
        match operation {
            Operation::Register | Operation::NonReplicated | Operation::Logout => {
                assert_eq!(outcome, Ok(operation));
            }
            _ => {
                let reaction = outcome.unwrap_err().reaction();
                assert!(matches!(reaction, Reaction::Evict(_)), "{operation:?}");
            }
        }
    }
    let unnumbered = RequestHeader { request: RequestNumber(0), ..header(160) };
    let operation = Operation::SendMessages;
    assert_eq!(check(unnumbered, true), Err(RequestFault::NoRequestNumber { operation }));
}

#[test]
fn a_request_checksum_is_zero_or_that_of_the_body() {
    let body = b"some body";
    let with = |request_checksum| {
        let header = RequestHeader { request_checksum, ..header(128) }.encode(body.len());
        RequestView::new(&header).check_body(body)
    };
    assert_eq!(with(0), Ok(()));
    assert_eq!(with(borzoi_wire::frame::request_checksum(body)), Ok(()));
    assert_eq!(with(1), Err(RequestFault::Checksum));
    // The upper half counts too.
    let upper = borzoi_wire::frame::request_checksum(body) | 1 << 64;
    assert_eq!(with(upper), Err(RequestFault::Checksum));
    assert_eq!(RequestFault::Checksum.reaction(), Reaction::Deny(ErrorCode::InvalidFormat));
    let shorter = RequestView::new(&header(128).encode(body.len() + 1)).check_body(body);
    assert!(matches!(shorter, Err(RequestFault::Size { .. })));
}

#[test]
fn reads_of_unknown_foreign_and_legacy_codes_are_answered() {
    let read = |code| Request::decode(Operation::NonReplicated, code, &[]).unwrap_err().reaction();
    for code in [0, 2, 15, 16, 105, 106, 109, 124, u32::MAX] {
        assert_eq!(read(code), Reaction::Deny(ErrorCode::InvalidCommand), "{code}");
    }
    for code in [33, 39, 40, 45, 101, 121, 202, 604] {
        assert_eq!(read(code), Reaction::Deny(ErrorCode::FeatureUnavailable), "{code}");
    }
    for code in [38, 44] {
        assert_eq!(read(code), Reaction::Evict(EvictionReason::MalformedLogin), "{code}");
    }
    let internal = Request::decode(Operation::TruncatePartition, 0, &[]).unwrap_err();
    let evicted = Reaction::Evict(EvictionReason::InvalidRequestOperation);
    assert_eq!(internal.reaction(), evicted);
}

#[test]
fn a_body_that_does_not_decode_is_denied_for_every_command() {
    for &command in CommandCode::ALL {
        let Some(operation) = command.operation() else { continue };
        match Request::decode(operation, command.code(), &[9, 255]) {
            Ok(request) => {
                let mut body = Vec::new();
                request.write_body(&mut body);
                assert!(body.is_empty(), "{command:?} has no body");
            }
            Err(error) => {
                let expected = match command {
                    CommandCode::Login | CommandCode::TokenLogin => {
                        Reaction::Evict(EvictionReason::MalformedLogin)
                    }
                    CommandCode::SendMessages
                    | CommandCode::StoreConsumerOffset
                    | CommandCode::DeleteConsumerOffset => {
                        Reaction::Deny(ErrorCode::ResourceNotFound)
                    }
                    _ => Reaction::Deny(ErrorCode::InvalidCommand),
                };
                assert_eq!(error.reaction(), expected, "{command:?}");
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

#[test]
fn bytes_behind_a_complete_request_are_ignored() {
    let body = [1, 4, 7, 0, 0, 0, 99, 99];
    let request = Request::decode(Operation::NonReplicated, 200, &body).unwrap();
    let mut again = Vec::new();
    request.write_body(&mut again);
    assert_eq!(again, body[..6]);
}

fn login_body(version: u32, rest: &[u8]) -> Vec<u8> {
    [&version.to_le_bytes()[..], &[3], b"sdk", &[1], b"1", rest].concat()
}

#[test]
fn logins_are_told_apart_and_judged_by_version_first() {
    let password = [&[4][..], b"iggy", &[4], b"iggy", &[0; 4]].concat();
    let login = Login::decode(&login_body(11_264, &password)).unwrap();
    assert!(matches!(login.credentials, Credentials::Password { .. }));
    let token = [&[5][..], b"token", &[0; 4]].concat();
    let login = Login::decode(&login_body(11_265, &token)).unwrap();
    assert!(matches!(login.credentials, Credentials::Token { .. }));
    let stray = [&password[..], &[1, 2, 3]].concat();
    let login = Login::decode(&login_body(11_264, &stray)).unwrap();
    assert!(matches!(login.credentials, Credentials::Password { .. }));

    let no_context = &password[..password.len() - 4];
    let error = Login::decode(&login_body(11_264, no_context)).unwrap_err();
    assert_eq!(error, LoginError::Malformed);
    assert_eq!(error.reaction(), Reaction::Evict(EvictionReason::MalformedLogin));
    for version in [0, 11_263, 12_288, 12_290, u32::MAX] {
        let error = Login::decode(&login_body(version, b"whatever")).unwrap_err();
        assert!(matches!(error, LoginError::Incompatible(_)), "{version}");
        assert_eq!(error.reaction(), Reaction::Evict(EvictionReason::IncompatibleProtocol));
    }
    for len in 0..10 {
        let body = login_body(11_264, &[]);
        let error = Login::decode(&body[..len.min(body.len() - 1)]).unwrap_err();
        assert!(matches!(error, LoginError::Version(_)), "{len}");
    }
}

#[test]
fn a_secret_never_shows_in_debug_output() {
    let body = login_body(11_264, &[&[4][..], b"iggy", &[6], b"hidden", &[0; 4]].concat());
    let login = Login::decode(&body).unwrap();
    assert!(!format!("{login:?}").contains("hidden"));
}

#[test]
fn the_metadata_of_a_send_must_fit_and_fill_its_length() {
    let stream = [1, 4, 0, 0, 0, 0];
    let metadata = [&stream[..], &stream, &[1, 0], &[1, 0, 0, 0]].concat();
    let body = |length: u32| [&length.to_le_bytes()[..], &metadata, b"batch"].concat();
    let exact = u32::try_from(metadata.len()).unwrap();
    let body_exact = body(exact);
    let send = SendMessages::decode(&body_exact).unwrap();
    assert_eq!(send.batch, b"batch");
    assert_eq!(send.batch_range(body(exact).len()), 4 + metadata.len()..body(exact).len());

    let longer = body(exact + 2);
    let error = SendMessages::decode(&longer).unwrap_err();
    assert_eq!(error, SendError::MetadataLength { left: 2 });
    assert_eq!(error.deny(), ErrorCode::InvalidCommand);
    for length in [0, exact - 1, exact + 6, u32::MAX] {
        let body = body(length);
        let error = SendMessages::decode(&body).unwrap_err();
        assert!(matches!(error, SendError::Metadata(_)), "{length}");
        assert_eq!(error.deny(), ErrorCode::ResourceNotFound);
    }
}

#[test]
fn counts_that_cannot_fit_are_refused_before_anything_is_reserved() {
    // A cluster of four thousand million nodes in eight bytes.
    let lying = [&[0; 4][..], &[255; 4], &[0; 8]].concat();
    let error = ClusterMetadata::decode(&lying).unwrap_err();
    let expected = DecodeError::Count { what: "list", count: u64::from(u32::MAX), left: 8 };
    assert_eq!(error, expected);
    let stream = [&[0; 4][..], &[0; 8], &[255; 4], &[0; 16], &[1, b's'], &[0; 4]].concat();
    assert!(matches!(StreamDetails::decode(&stream), Err(DecodeError::Count { .. })));
    assert!(matches!(TopicDetails::decode(&[0; 40]), Err(DecodeError::Value { .. })));
    let lengths = [&[255; 4][..], b"short"].concat();
    assert!(matches!(ClusterMetadata::decode(&lengths), Err(DecodeError::Truncated { .. })));
}

fn topic_with_options(options: &[u8]) -> Result<CreateTopic, DecodeError> {
    let body = [&[1, 4, 0, 0, 0, 0][..], &[1, 0, 0, 0], &[1, b't'], options].concat();
    CreateTopic::decode(&body)
}

fn option(key: &str, value: u8) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap().to_le_bytes();
    [&[2][..], &length, key.as_bytes(), &[9, 1, 0, 0, 0, value]].concat()
}

#[test]
fn options_are_texts_once_each_and_limited() {
    assert!(topic_with_options(&[]).unwrap().options.0.is_empty());
    let twice = [option("a", 1), option("b", 1), option("a", 2)].concat();
    assert!(matches!(topic_with_options(&twice), Err(DecodeError::Duplicate { .. })));
    let not_text = [&[9, 1, 0, 0, 0, 7][..], &[9, 1, 0, 0, 0, 7]].concat();
    assert!(matches!(topic_with_options(&not_text), Err(DecodeError::Value { .. })));
    for broken in [&[2][..], &[2, 0, 0, 0, 0], &[2, 0, 1, 0, 0], &[0, 1, 0, 0, 0, 1]] {
        assert!(topic_with_options(broken).is_err(), "{broken:?}");
    }
    let many = |count: u32| -> Vec<u8> {
        (0..count).flat_map(|n| option(&format!("key{n}"), 1)).collect()
    };
    assert_eq!(topic_with_options(&many(1_024)).unwrap().options.0.entries().len(), 1_024);
    let error = topic_with_options(&many(1_025)).unwrap_err();
    assert!(matches!(error, DecodeError::TooLarge { len: 1_025, max: 1_024, .. }));
    let command = CommandCode::CreateTopic;
    let reaction = RequestError::Body { command, error }.reaction();
    assert_eq!(reaction, Reaction::Deny(ErrorCode::OptionsBlockTooLarge));
    let large = vec![0; 100_001];
    assert!(matches!(topic_with_options(&large), Err(DecodeError::TooLarge { .. })));
}

#[test]
fn a_client_refuses_frames_that_no_server_sends() {
    assert!(matches!(profile_a::read_reply(&[0; 255]), Err(ReplyFault::Size { .. })));
    let mut frame = header(2).encode(0);
    assert!(matches!(profile_a::read_reply(&frame), Err(ReplyFault::Command(5))));
    frame[60] = 8;
    frame[208] = 150;
    assert!(matches!(profile_a::read_reply(&frame), Err(ReplyFault::Operation(150))));
    frame[208] = 128;
    assert!(matches!(profile_a::read_reply(&frame), Err(ReplyFault::ResultSection)));
    frame[216] = 40;
    assert!(matches!(profile_a::read_reply(&frame), Ok(ReplyOutcome::Refused(_, 40))));
    let longer = [&frame[..], &[0]].concat();
    assert!(matches!(profile_a::read_reply(&longer), Err(ReplyFault::Size { .. })));
}

#[test]
fn a_poll_that_found_nothing_has_sixteen_bytes_and_never_none() {
    let to = RequestView::new(&header(2).encode(0)).reply_to();
    let prefix = PollPrefix::resync();
    let answer = borzoi_wire::reply::Answer::Done(borzoi_wire::Reply::Polled(prefix));
    let frame =
        Profile::A.encode_answer(&to, borzoi_wire::reply::ReplyPosition::default(), &answer);
    assert_eq!(frame.len(), HEADER_BYTES + 16);
    assert_eq!(PollPrefix::decode_exact(&frame[HEADER_BYTES..]), Ok(prefix));
}

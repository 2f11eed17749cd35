//! Frames that break a rule, each in one way. The server must answer or close, and nothing of
//! them may ever be seen by anybody.

use super::cx::Cx;
use super::draft::Draft;
use borzoi_types::{ClientId, RequestNumber, SessionId};
use borzoi_wire::batch::{MessageId, NewMessage, encode_batch};
use borzoi_wire::body::SendMessages;
use borzoi_wire::frame::{RequestHeader, request_checksum};
use borzoi_wire::{CommandCode, Identifier, Operation, Partitioning, Request, Wire};

/// The rules that are broken, by name.
pub const RULES: &[&str] = &[
    "an operation that does not exist",
    "operation zero",
    "an operation of the server's own",
    "a command byte of replicas",
    "no client identity",
    "a numbered login",
    "a change without a number",
    "a checksum of another body",
    "a code that does not exist",
    "a change sent as a read",
    "a size below a header",
    "a size of another frame",
    "a body cut short",
    "a name that is no text",
    "a count beyond the body",
    "a batch with a flipped bit",
    "a batch without messages",
    "a metadata length beyond the body",
    "random bytes as a body",
    "random bytes as a header",
];

fn header(cx: &mut Cx<'_>, operation: u8) -> RequestHeader {
    RequestHeader {
        client: ClientId(u128::from(cx.dice.bits()) << 64 | 1),
        operation,
        session: SessionId(cx.dice.between(1, 1_000)),
        request: RequestNumber(cx.dice.between(1, 1_000)),
        ..RequestHeader::default()
    }
}

fn frame(header: &RequestHeader, body: &[u8]) -> Vec<u8> {
    let mut out = header.encode(body.len()).to_vec();
    out.extend_from_slice(body);
    out
}

/// A frame that breaks one of the rules.
pub(super) fn draft(cx: &mut Cx<'_>) -> Draft {
    let rule = *cx.dice.pick(RULES);
    Draft::malformed(rule, broken(rule, cx))
}

/// A login of the old protocol inside a frame of the new one.
pub(super) fn legacy_login(command: CommandCode, cx: &mut Cx<'_>) -> Draft {
    let header =
        RequestHeader { code: command.code(), ..header(cx, Operation::NonReplicated as u8) };
    let mut draft = Draft::malformed("a login of the old protocol", frame(&header, &[0; 12]));
    draft.command = command;
    draft
}

fn create_stream(cx: &mut Cx<'_>) -> (RequestHeader, Vec<u8>) {
    let header = header(cx, Operation::CreateStream as u8);
    (header, vec![5, b'w', b'r', b'o', b'n', b'g'])
}

fn broken(rule: &'static str, cx: &mut Cx<'_>) -> Vec<u8> {
    match rule {
        "an operation that does not exist" => frame(&header(cx, 200), &[]),
        "operation zero" => frame(&header(cx, 0), &[]),
        "an operation of the server's own" => {
            let operation = u8::try_from(cx.dice.between(64, 68)).unwrap_or(64);
            frame(&header(cx, operation), &[0; 40])
        }
        "a numbered login" => frame(&header(cx, Operation::Register as u8), &[0; 30]),
        "a code that does not exist" => {
            let code = 60_000;
            frame(&RequestHeader { code, ..header(cx, Operation::NonReplicated as u8) }, &[])
        }
        "a change sent as a read" => {
            let code = CommandCode::CreateStream.code();
            let header = RequestHeader { code, ..header(cx, Operation::NonReplicated as u8) };
            frame(&header, &[5, b'w', b'r', b'o', b'n', b'g'])
        }
        "a batch with a flipped bit"
        | "a batch without messages"
        | "a metadata length beyond the body" => bad_send(rule, cx),
        "random bytes as a header" => {
            let mut bytes = random(cx, 256);
            // Else the stream of frames would be out of step, which is another rule.
            bytes[48..52].copy_from_slice(&256u32.to_le_bytes());
            bytes[60] = 5;
            bytes
        }
        other => bad_change(other, cx),
    }
}

fn bad_change(rule: &'static str, cx: &mut Cx<'_>) -> Vec<u8> {
    let (mut header, body) = create_stream(cx);
    match rule {
        "no client identity" => header.client = ClientId(0),
        "a change without a number" => header.request = RequestNumber(0),
        "a checksum of another body" => header.request_checksum = request_checksum(b"other"),
        "a body cut short" => return frame(&header, &body[..3]),
        "a name that is no text" => return frame(&header, &[3, 0xff, 0xfe, 0xc0]),
        "random bytes as a body" => {
            let length = cx.dice.index(60) + 1;
            header.operation = Operation::CreateUser as u8;
            let mut body = random(cx, length);
            // Longer than what follows: it must not be a user by chance.
            body[0] = 255;
            return frame(&header, &body);
        }
        "a count beyond the body" => {
            header.operation = Operation::CreateTopic as u8;
            return frame(&header, &[2, 1, b's', 255, 255, 255, 255]);
        }
        _ => {}
    }
    let mut bytes = frame(&header, &body);
    match rule {
        "a command byte of replicas" => bytes[60] = 6,
        "a size below a header" => bytes[48..52].copy_from_slice(&100u32.to_le_bytes()),
        "a size of another frame" => {
            // Shorter than what is sent: the rest is taken for the start of another frame.
            bytes.extend_from_slice(&[0xff; 256]);
        }
        _ => {}
    }
    bytes
}

fn bad_send(rule: &'static str, cx: &mut Cx<'_>) -> Vec<u8> {
    let message = NewMessage {
        id: MessageId(7),
        origin_timestamp: borzoi_types::Micros(1),
        payload: b"never to be seen",
        user_headers: &[],
    };
    let mut batch = Vec::new();
    encode_batch(&[message], &mut batch).expect("one small message");
    match rule {
        "a batch with a flipped bit" => {
            let at = cx.dice.index(batch.len());
            batch[at] ^= 1 << cx.dice.below(8);
        }
        "a batch without messages" => batch.clear(),
        _ => {}
    }
    let topic = cx.topic();
    let (stream, topic) = match topic {
        Some(topic) => cx.names(topic),
        None => (Identifier::Numeric(0), Identifier::Numeric(0)),
    };
    let send = SendMessages {
        stream: stream.as_identifier_ref(),
        topic: topic.as_identifier_ref(),
        partitioning: Partitioning::Balanced,
        messages_count: 1,
        batch: &batch,
    };
    let mut body = Vec::new();
    Request::SendMessages(send).write_body(&mut body);
    if rule == "a metadata length beyond the body" {
        let beyond = u32::try_from(body.len()).unwrap_or(0) + 1;
        body[..4].copy_from_slice(&beyond.encode());
    }
    frame(&header(cx, Operation::SendMessages as u8), &body)
}

fn random(cx: &mut Cx<'_>, length: usize) -> Vec<u8> {
    (0..length).map(|_| cx.dice.bits().to_le_bytes()[0]).collect()
}

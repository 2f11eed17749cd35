//! One request on its way, and the frame it travels in.

use crate::history::OpRef;
use crate::workload::draft::Draft;
use borzoi_types::{ClientId, Mono, RequestNumber, SessionId};
use borzoi_wire::Operation;
use borzoi_wire::frame::{RequestHeader, request_checksum};
use bytes::{Bytes, BytesMut};

/// One request that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// The operation it stands for.
    pub op: OpRef,
    /// What it asks.
    pub draft: Draft,
    /// Its number under the identity it was first sent with, and the epoch of that session.
    pub number: Option<(u64, u64)>,
    /// Not to be sent before.
    pub not_before: Mono,
    /// When the last frame left.
    pub sent_at: Mono,
    /// Whether an earlier frame may have taken effect.
    pub unsure: bool,
    /// When the client gives it up.
    pub give_up: Mono,
}

impl Pending {
    /// The operation byte it travels under. Logins of the old protocol travel as reads.
    pub(super) fn operation(&self) -> Operation {
        self.draft.command.operation().unwrap_or(Operation::NonReplicated)
    }

    /// Whether it changes nothing, so that it may be asked again freely. A poll may store an
    /// offset; asking it again is what clients do all the same.
    pub(super) fn is_read(&self) -> bool {
        self.operation() == Operation::NonReplicated
    }

    /// Whether a client without lasting identity may send it again as something new.
    pub(super) fn is_repeatable(&self) -> bool {
        self.operation() == Operation::SendMessages
    }

    /// The frame.
    pub(super) fn frame(&self, client: ClientId, session: SessionId, number: u64) -> Bytes {
        if let Some(raw) = &self.draft.raw {
            return raw.clone();
        }
        let (operation, body) = (self.operation(), &self.draft.body);
        let is_read = operation == Operation::NonReplicated;
        let carries_checksum = !is_read && !matches!(operation as u8, 160..=169);
        let header = RequestHeader {
            client,
            operation: operation as u8,
            session,
            request: RequestNumber(number),
            code: if is_read { self.draft.command.code() } else { 0 },
            request_checksum: if carries_checksum { request_checksum(body) } else { 0 },
            ..RequestHeader::default()
        };
        join(header, body)
    }
}

/// Header and body as one frame.
pub(super) fn join(header: RequestHeader, body: &[u8]) -> Bytes {
    let head = header.encode(body.len());
    let mut frame = BytesMut::with_capacity(head.len() + body.len());
    frame.extend_from_slice(&head);
    frame.extend_from_slice(body);
    frame.freeze()
}

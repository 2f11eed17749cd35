//! One request before it has a number and an identity.

use crate::history::Intent;
use borzoi_wire::{CommandCode, Request};
use bytes::Bytes;

/// A request as the workload makes it; the client adds who asks and under which number.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What it asks.
    pub intent: Intent,
    /// The command it is.
    pub command: CommandCode,
    /// Its body.
    pub body: Bytes,
    /// The whole frame, when it is deliberately not a proper one.
    pub raw: Option<Bytes>,
}

impl Draft {
    /// A proper request.
    #[must_use]
    pub fn new(intent: Intent, request: &Request<'_>) -> Self {
        let mut body = Vec::new();
        request.write_body(&mut body);
        Self { intent, command: request.command(), body: body.into(), raw: None }
    }

    /// A request that leaves no trace which is watched.
    #[must_use]
    pub fn other(request: &Request<'_>) -> Self {
        Self::new(Intent::Other(request.command()), request)
    }

    /// A frame that breaks the rule called `rule`.
    #[must_use]
    pub fn malformed(rule: &'static str, frame: Vec<u8>) -> Self {
        let (command, body) = (CommandCode::Ping, Bytes::new());
        Self { intent: Intent::Malformed(rule), command, body, raw: Some(frame.into()) }
    }
}

//! Frames between the replicas of one log.
//!
//! Every frame has a control part with a checksum; `Prepare` and `RepairPrepare` are followed by
//! the body, whose checksum is in the prepare's header. Decoding verifies all of it, so a replica
//! handles only whole messages. Arbitrary bytes never panic and never allocate more than they
//! hold.
//!
//! ```text
//!   0  checksum     u128  over the rest of the control part
//!  16  magic        u16   "BM"
//!  18  version      u8    1
//!  19  kind         u8
//!  20  control_len  u32   bytes of the control part, this prefix included
//!  24  fields of the kind
//!      body (Prepare and RepairPrepare only)
//! ```

use crate::codec::{DecodeError, Reader, Writer};
use crate::header::{Anchor, HEADER_BYTES, Prepare, PrepareHeader};
use crate::suffix::LogSuffix;
use borzoi_types::{Body, Op, View, checksum, limits};
use bytes::Bytes;
use std::sync::Arc;

const WHAT: &str = "replica message";
const MAGIC: u16 = u16::from_le_bytes(*b"BM");
const VERSION: u8 = 1;
const PREFIX_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 16;

/// Headers in one answer: 32 KiB of control data, so that catching up never delays a prepare.
pub const HEADERS_PER_ANSWER_MAX: usize = 256;
/// Prepares asked for in one request: one pipeline.
pub const PREPARES_PER_REQUEST_MAX: usize = limits::PIPELINE_OPS_MAX;
/// Opaque bytes a replica may attach to its do-view-change: 4,096 partitions' reservations.
pub const ATTACHMENT_BYTES_MAX: usize = 64 * 1024;

/// A replica's log as it enters a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DoViewChange {
    /// The view to start.
    pub view: View,
    /// The view whose log the sender has.
    pub log_view: View,
    /// The sender's knowledge of what is committed in that log.
    pub commit: Op,
    /// Operations up to this one are in the sender's checkpoint and no longer in its journal.
    pub released: Op,
    /// Head and everything above the sender's commit, with evidence per operation.
    pub suffix: LogSuffix,
    /// The sender may have lost what it acknowledged.
    pub must_learn: bool,
    /// What the sender's user wants a loss epoch to know.
    pub attachment: Bytes,
}

/// The log of a view in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartView {
    /// The view.
    pub view: View,
    /// Echo of the request's nonce; 0 when nobody asked.
    pub nonce: u64,
    /// Committed as the sender knows.
    pub commit: Op,
    /// Operations up to this one are in the sender's checkpoint and no longer in its journal.
    pub released: Op,
    /// Head and everything above `commit`; the evidence is the sender's.
    pub suffix: LogSuffix,
}

/// Everything replicas of a log say to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Primary to backups: hold this.
    Prepare {
        /// The primary's view; the prepare's own may be older when it is sent again.
        view: View,
        /// Committed as the primary knows.
        commit: Op,
        /// The primary's read round; echoed.
        round: u64,
        /// The operation.
        prepare: Arc<Prepare>,
    },
    /// Backup to primary: every operation up to `held` is held at the log's level.
    PrepareOk {
        /// The backup's view.
        view: View,
        /// How far the backup holds the log of this view.
        held: Anchor,
        /// Highest commit the backup has heard of in this view.
        commit: Op,
        /// Highest read round it has heard of in this view.
        round: u64,
    },
    /// Primary to a backup, carried by the link's heartbeat: where the log stands.
    Commit {
        /// The primary's view.
        view: View,
        /// Committed.
        commit: Anchor,
        /// The last operation prepared.
        head: Op,
        /// The primary's read round; echoed.
        round: u64,
    },
    /// The sender wants the group to enter `target`; with `target == view` it says that it has.
    StartViewChange {
        /// The sender's durable view.
        view: View,
        /// The view it wants.
        target: View,
    },
    /// To the primary of the view being formed.
    DoViewChange(Box<DoViewChange>),
    /// The log of a view in force: from its primary to all, and from anyone in it who is asked.
    StartView(Box<StartView>),
    /// Ask for [`Message::StartView`].
    RequestStartView {
        /// The sender's view.
        view: View,
        /// Chosen by the sender; echoed, so that an old answer is not taken for a new one.
        nonce: u64,
    },
    /// Ask for headers downwards: `top` and those below it, but not below `low`.
    RequestHeaders {
        /// The highest header wanted; its checksum is known from the header above it.
        top: Anchor,
        /// The lowest op wanted.
        low: Op,
    },
    /// Headers in rising order, chained, the last one being the `top` that was asked for or the
    /// highest that fitted.
    Headers {
        /// At most [`HEADERS_PER_ANSWER_MAX`].
        headers: Vec<PrepareHeader>,
    },
    /// Ask for prepares by identity.
    RequestPrepares {
        /// At most [`PREPARES_PER_REQUEST_MAX`].
        wanted: Vec<Anchor>,
    },
    /// One prepare that was asked for.
    RepairPrepare {
        /// The operation.
        prepare: Arc<Prepare>,
    },
    /// What was asked for lies in the sender's checkpoint.
    Released {
        /// Operations up to this one are no longer in the sender's journal.
        through: Op,
    },
}

impl Message {
    const fn kind(&self) -> u8 {
        match self {
            Self::Prepare { .. } => 1,
            Self::PrepareOk { .. } => 2,
            Self::Commit { .. } => 3,
            Self::StartViewChange { .. } => 4,
            Self::DoViewChange(_) => 5,
            Self::StartView(_) => 6,
            Self::RequestStartView { .. } => 7,
            Self::RequestHeaders { .. } => 8,
            Self::Headers { .. } => 9,
            Self::RequestPrepares { .. } => 10,
            Self::RepairPrepare { .. } => 11,
            Self::Released { .. } => 12,
        }
    }

    /// The sender's view, for the kinds that advertise it. Repair speaks of operations by identity
    /// and needs no view.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        match self {
            Self::Prepare { view, .. }
            | Self::PrepareOk { view, .. }
            | Self::Commit { view, .. }
            | Self::StartViewChange { view, .. }
            | Self::RequestStartView { view, .. } => Some(*view),
            Self::DoViewChange(dvc) => Some(dvc.view),
            Self::StartView(start) => Some(start.view),
            Self::RequestHeaders { .. }
            | Self::Headers { .. }
            | Self::RequestPrepares { .. }
            | Self::RepairPrepare { .. }
            | Self::Released { .. } => None,
        }
    }

    /// The frame, with a prepare's body by reference.
    #[must_use]
    pub fn encode(&self) -> Body {
        let mut writer = Writer::with_capacity(256);
        writer.u128(0);
        writer.u16(MAGIC);
        writer.u8(VERSION);
        writer.u8(self.kind());
        writer.u32(0);
        assert_eq!(writer.len(), PREFIX_BYTES, "the prefix is as documented");
        self.write_fields(&mut writer);
        let control_len = u32::try_from(writer.len()).expect("control parts are small");
        writer.patch(PREFIX_BYTES - 4, &control_len.to_le_bytes());
        let sum = checksum::xxh3_128(&writer.as_slice()[CHECKSUM_BYTES..]);
        writer.patch(0, &sum.to_le_bytes());
        let mut frame = Body::from(writer.finish());
        if let Self::Prepare { prepare, .. } | Self::RepairPrepare { prepare } = self {
            for part in prepare.body.parts() {
                frame.push(part.clone());
            }
        }
        frame
    }

    fn write_fields(&self, writer: &mut Writer) {
        match self {
            Self::Prepare { view, commit, round, prepare } => {
                writer.u32(view.get());
                writer.u64(commit.get());
                writer.u64(*round);
                writer.slice(&prepare.header.encode());
            }
            Self::PrepareOk { view, held, commit, round } => {
                writer.u32(view.get());
                write_anchor(writer, *held);
                writer.u64(commit.get());
                writer.u64(*round);
            }
            Self::Commit { view, commit, head, round } => {
                writer.u32(view.get());
                write_anchor(writer, *commit);
                writer.u64(head.get());
                writer.u64(*round);
            }
            Self::StartViewChange { view, target } => {
                writer.u32(view.get());
                writer.u32(target.get());
            }
            Self::DoViewChange(dvc) => write_do_view_change(writer, dvc),
            Self::StartView(start) => write_start_view(writer, start),
            Self::RequestStartView { view, nonce } => {
                writer.u32(view.get());
                writer.u64(*nonce);
            }
            Self::RequestHeaders { top, low } => {
                write_anchor(writer, *top);
                writer.u64(low.get());
            }
            Self::Headers { headers } => {
                assert!(headers.len() <= HEADERS_PER_ANSWER_MAX, "answers are bounded");
                writer.count(headers.len());
                for header in headers {
                    writer.slice(&header.encode());
                }
            }
            Self::RequestPrepares { wanted } => {
                assert!(wanted.len() <= PREPARES_PER_REQUEST_MAX, "requests are bounded");
                writer.count(wanted.len());
                for anchor in wanted {
                    write_anchor(writer, *anchor);
                }
            }
            Self::RepairPrepare { prepare } => writer.slice(&prepare.header.encode()),
            Self::Released { through } => writer.u64(through.get()),
        }
    }

    /// Reads and verifies one whole frame.
    ///
    /// # Errors
    /// Any [`DecodeError`]; the frame is then to be dropped and counted.
    pub fn decode(frame: &Bytes) -> Result<Self, DecodeError> {
        let prefix = frame.get(..PREFIX_BYTES).ok_or(DecodeError::Truncated { what: WHAT })?;
        let mut reader = Reader::new(WHAT, prefix);
        let stored = reader.u128()?;
        let magic = reader.u16()?;
        if magic != MAGIC {
            return Err(DecodeError::Format { what: WHAT, found: u32::from(magic) });
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(DecodeError::Format { what: WHAT, found: u32::from(version) });
        }
        let kind = reader.u8()?;
        let control_len = reader.u32()? as usize;
        if control_len < PREFIX_BYTES {
            return Err(reader.invalid("control_len"));
        }
        let control = frame.get(..control_len).ok_or(DecodeError::Truncated { what: WHAT })?;
        if checksum::xxh3_128(&control[CHECKSUM_BYTES..]) != stored {
            return Err(DecodeError::Checksum { what: WHAT });
        }
        let mut fields = Reader::new(WHAT, &control[PREFIX_BYTES..]);
        let message = Self::read_fields(kind, &mut fields, || frame.slice(control_len..))?;
        fields.finish()?;
        let carries_body = matches!(message, Self::Prepare { .. } | Self::RepairPrepare { .. });
        if !carries_body && frame.len() > control_len {
            return Err(DecodeError::Trailing { what: WHAT, extra: frame.len() - control_len });
        }
        Ok(message)
    }

    fn read_fields(
        kind: u8,
        reader: &mut Reader<'_>,
        body: impl FnOnce() -> Bytes,
    ) -> Result<Self, DecodeError> {
        Ok(match kind {
            1 => Self::Prepare {
                view: View(reader.u32()?),
                commit: reader.op()?,
                round: reader.u64()?,
                prepare: read_prepare(reader, body())?,
            },
            2 => Self::PrepareOk {
                view: View(reader.u32()?),
                held: read_anchor(reader)?,
                commit: reader.op()?,
                round: reader.u64()?,
            },
            3 => Self::Commit {
                view: View(reader.u32()?),
                commit: read_anchor(reader)?,
                head: reader.op()?,
                round: reader.u64()?,
            },
            4 => Self::StartViewChange { view: View(reader.u32()?), target: View(reader.u32()?) },
            5 => Self::DoViewChange(Box::new(read_do_view_change(reader)?)),
            6 => Self::StartView(Box::new(read_start_view(reader)?)),
            7 => Self::RequestStartView { view: View(reader.u32()?), nonce: reader.u64()? },
            8 => Self::RequestHeaders { top: read_anchor(reader)?, low: reader.op()? },
            9 => Self::Headers { headers: read_headers(reader)? },
            10 => Self::RequestPrepares { wanted: read_wanted(reader)? },
            11 => Self::RepairPrepare { prepare: read_prepare(reader, body())? },
            12 => Self::Released { through: reader.op()? },
            other => return Err(DecodeError::Format { what: WHAT, found: u32::from(other) }),
        })
    }
}

fn write_anchor(writer: &mut Writer, anchor: Anchor) {
    writer.u64(anchor.op.get());
    writer.u128(anchor.checksum);
}

fn read_anchor(reader: &mut Reader<'_>) -> Result<Anchor, DecodeError> {
    Ok(Anchor { op: reader.op()?, checksum: reader.u128()? })
}

fn read_prepare(reader: &mut Reader<'_>, body: Bytes) -> Result<Arc<Prepare>, DecodeError> {
    let header = PrepareHeader::decode(reader.take(HEADER_BYTES)?)?;
    Ok(Arc::new(Prepare::verified(header, Body::from(body))?))
}

fn read_headers(reader: &mut Reader<'_>) -> Result<Vec<PrepareHeader>, DecodeError> {
    let count = reader.count("headers", HEADER_BYTES, HEADERS_PER_ANSWER_MAX)?;
    let mut headers: Vec<PrepareHeader> = Vec::with_capacity(count);
    for _ in 0..count {
        let header = PrepareHeader::decode(reader.take(HEADER_BYTES)?)?;
        if headers.last().is_some_and(|below| !header.follows(below.anchor())) {
            return Err(reader.invalid("chain"));
        }
        headers.push(header);
    }
    Ok(headers)
}

fn read_wanted(reader: &mut Reader<'_>) -> Result<Vec<Anchor>, DecodeError> {
    let count = reader.count("wanted", 24, PREPARES_PER_REQUEST_MAX)?;
    (0..count).map(|_| read_anchor(reader)).collect()
}

fn write_do_view_change(writer: &mut Writer, dvc: &DoViewChange) {
    assert!(dvc.log_view <= dvc.view, "a log is adopted in a view that was entered");
    assert!(dvc.attachment.len() <= ATTACHMENT_BYTES_MAX, "attachments are bounded");
    writer.u32(dvc.view.get());
    writer.u32(dvc.log_view.get());
    writer.u64(dvc.commit.get());
    writer.u64(dvc.released.get());
    dvc.suffix.write(writer);
    writer.u8(u8::from(dvc.must_learn));
    writer.count(dvc.attachment.len());
    writer.slice(&dvc.attachment);
}

fn read_do_view_change(reader: &mut Reader<'_>) -> Result<DoViewChange, DecodeError> {
    let mut dvc = DoViewChange {
        view: View(reader.u32()?),
        log_view: View(reader.u32()?),
        commit: reader.op()?,
        released: reader.op()?,
        suffix: LogSuffix::read(reader)?,
        must_learn: reader.flag("must_learn")?,
        attachment: Bytes::new(),
    };
    let len = reader.count("attachment", 1, ATTACHMENT_BYTES_MAX)?;
    dvc.attachment = Bytes::copy_from_slice(reader.take(len)?);
    if dvc.log_view > dvc.view {
        return Err(reader.invalid("log_view"));
    }
    if dvc.suffix.below().op > dvc.commit {
        return Err(reader.invalid("commit"));
    }
    Ok(dvc)
}

fn write_start_view(writer: &mut Writer, start: &StartView) {
    assert!(start.suffix.below().op <= start.commit, "the whole uncommitted suffix travels");
    writer.u32(start.view.get());
    writer.u64(start.nonce);
    writer.u64(start.commit.get());
    writer.u64(start.released.get());
    start.suffix.write(writer);
}

fn read_start_view(reader: &mut Reader<'_>) -> Result<StartView, DecodeError> {
    let start = StartView {
        view: View(reader.u32()?),
        nonce: reader.u64()?,
        commit: reader.op()?,
        released: reader.op()?,
        suffix: LogSuffix::read(reader)?,
    };
    if start.suffix.below().op > start.commit {
        return Err(reader.invalid("commit"));
    }
    Ok(start)
}

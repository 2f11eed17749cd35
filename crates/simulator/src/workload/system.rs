//! Questions about the server, its clients and where consumer work should go.

use super::cx::Cx;
use super::draft::Draft;
use borzoi_types::{ClientId, Op, PartitionId, SessionId};
use borzoi_wire::body::{
    AttachRecord, ClientNumber, DescribeOptions, FlushUnsavedBuffer, GetClient, GetConsumerOffset,
    GetSnapshot, OptionsScope, PollMessages, SnapshotCompression, SnapshotContent,
};
use borzoi_wire::{
    CommandCode, ConsumerKind, ConsumerRef, IdentifierRef, OptionalPartition, PollingStrategy,
    Request,
};

/// Questions that change nothing.
pub(super) fn draft(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    Some(match command {
        CommandCode::GetStats => Draft::other(&Request::GetStats),
        CommandCode::GetSnapshot => Draft::other(&Request::GetSnapshot(GetSnapshot {
            compression: *cx.dice.pick(SnapshotCompression::ALL),
            content: vec![SnapshotContent::Test],
        })),
        CommandCode::GetClusterMetadata => Draft::other(&Request::GetClusterMetadata),
        CommandCode::DescribeOptions => {
            let scope = *cx.dice.pick(OptionsScope::ALL);
            Draft::other(&Request::DescribeOptions(DescribeOptions { scope }))
        }
        CommandCode::GetMe => Draft::other(&Request::GetMe),
        CommandCode::GetClient => {
            let client = ClientNumber(u32::try_from(cx.dice.between(1, 30)).unwrap_or(1));
            Draft::other(&Request::GetClient(GetClient { client }))
        }
        CommandCode::GetClients => Draft::other(&Request::GetClients),
        CommandCode::FlushUnsavedBuffer => {
            let topic = cx.topic()?;
            let partition = PartitionId(cx.partition(topic)?);
            let (stream, topic) = cx.names(topic);
            let body = FlushUnsavedBuffer { stream, topic, partition, fsync: true };
            Draft::other(&Request::FlushUnsavedBuffer(body))
        }
        _ => Draft::other(&Request::Ping),
    })
}

/// What stable clients of several nodes ask before consumer work.
pub(super) fn routing(command: CommandCode, cx: &mut Cx<'_>) -> Option<Draft> {
    let topic = cx.topic()?;
    let partition = OptionalPartition(Some(PartitionId(cx.partition(topic)?)));
    let id = IdentifierRef::Numeric(cx.consumer_number());
    let consumer = ConsumerRef { kind: ConsumerKind::Consumer, id };
    let (stream, topic) = cx.names(topic);
    let (stream, topic) = (stream.as_identifier_ref(), topic.as_identifier_ref());
    Some(Draft::other(&match command {
        CommandCode::GetPollRouting => Request::GetPollRouting(PollMessages {
            consumer,
            stream,
            topic,
            partition,
            strategy: PollingStrategy::Next,
            count: 1,
            auto_commit: true,
        }),
        CommandCode::GetOffsetRouting => {
            Request::GetOffsetRouting(GetConsumerOffset { consumer, stream, topic, partition })
        }
        // Of nobody: it must be refused, not believed.
        _ => Request::AttachConsumerSession(AttachRecord {
            client: ClientId(u128::from(cx.dice.bits()) | 1),
            session: SessionId(cx.dice.between(1, 1_000)),
            metadata_watermark: Op(0),
        }),
    }))
}

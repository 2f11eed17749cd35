//! Lane operations: round trips and damage.

use super::*;
use proptest::prelude::*;

fn consumer() -> impl Strategy<Value = ConsumerKey> {
    prop_oneof![
        any::<u32>().prop_map(ConsumerKey::Consumer),
        any::<u32>().prop_map(|id| ConsumerKey::Group(GroupId(id))),
    ]
}

fn identity() -> impl Strategy<Value = Option<SendIdentity>> {
    proptest::option::of((any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
        |(session, request, hash)| SendIdentity {
            session: SessionId(session),
            request: RequestNumber(request),
            hash,
        },
    ))
}

fn entry() -> impl Strategy<Value = Entry> {
    let key = any::<u64>().prop_map(PartitionKey);
    let number = any::<u64>();
    let sizes = prop_oneof![1usize..400, Just(BODY_BY_REFERENCE_BYTES_MIN)];
    let batch = (sizes, any::<u8>()).prop_map(|(size, fill)| Bytes::from(vec![fill; size]));
    prop_oneof![
        (key.clone(), number, any::<u32>(), number).prop_map(|(key, size, id, by)| {
            let options = PartitionOptions { segment_bytes: size, partition: PartitionId(id) };
            Entry::Create { key, options, by: Op(by) }
        }),
        (key.clone(), number, 1..u32::MAX, identity(), batch).prop_map(
            |(key, base, count, identity, batch)| Entry::Batch {
                key,
                base_offset: Offset(base),
                count,
                identity,
                batch,
            }
        ),
        (key.clone(), consumer(), number, any::<bool>()).prop_map(
            |(key, consumer, offset, auto_commit)| Entry::StoreOffset {
                key,
                consumer,
                offset: Offset(offset),
                auto_commit,
            }
        ),
        (key.clone(), consumer()).prop_map(|(key, consumer)| Entry::DeleteOffset { key, consumer }),
        (key.clone(), number).prop_map(|(key, n)| Entry::Truncate { key, first: Offset(n) }),
        (key.clone(), key.clone(), number).prop_map(|(key, new_key, by)| Entry::Purge {
            key,
            new_key,
            by: Op(by)
        }),
        (key.clone(), number).prop_map(|(key, by)| Entry::Delete { key, by: Op(by) }),
        (key, number).prop_map(|(key, to)| Entry::OffsetJump { key, to: Offset(to) }),
        number.prop_map(|session| Entry::SessionExpired { session: SessionId(session) }),
    ]
}

proptest! {
    #[test]
    fn every_operation_round_trips_in_pieces_and_in_one_piece(
        entries in proptest::collection::vec(entry(), 1..8)
    ) {
        let mut builder = OperationBuilder::default();
        for entry in &entries {
            builder.push(entry);
        }
        let len = builder.len();
        let body = builder.finish();
        prop_assert_eq!(body.len(), len);
        prop_assert!(builder.is_empty());
        prop_assert_eq!(decode(&body).unwrap(), entries.clone());
        prop_assert_eq!(decode(&Body::from(body.to_bytes())).unwrap(), entries);
    }

    #[test]
    fn arbitrary_and_cut_bytes_never_panic(
        entries in proptest::collection::vec(entry(), 1..4),
        cut in any::<proptest::sample::Index>(),
        flip in any::<(proptest::sample::Index, u8)>(),
    ) {
        let mut builder = OperationBuilder::default();
        for entry in &entries {
            builder.push(entry);
        }
        let mut bytes = builder.finish().to_bytes().to_vec();
        let at = flip.0.index(bytes.len());
        bytes[at] ^= flip.1;
        bytes.truncate(cut.index(bytes.len()));
        let _ = decode(&Body::from(bytes));
    }
}

#[test]
fn a_large_batch_is_carried_by_reference() {
    let batch = Bytes::from(vec![7u8; BODY_BY_REFERENCE_BYTES_MIN]);
    let entry = Entry::Batch {
        key: PartitionKey(1),
        base_offset: Offset(0),
        count: 1,
        identity: None,
        batch: batch.clone(),
    };
    let mut builder = OperationBuilder::default();
    builder.push(&entry);
    let body = builder.finish();
    assert_eq!(body.parts().len(), 2);
    assert_eq!(body.parts()[1].as_ptr(), batch.as_ptr());
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = vec![0u8; 24];
    bytes[0] = 2;
    assert_eq!(decode(&Body::from(bytes)), Err(OperationError::Version(2)));
}

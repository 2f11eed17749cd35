//! Lane operations: round trips and damage.

use super::*;
use bytes::Bytes;
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

fn retention() -> impl Strategy<Value = Retention> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(expiry, bytes_max)| Retention { message_expiry: Micros(expiry), bytes_max })
}

fn generation(consumer: ConsumerKey, generation: u64) -> u64 {
    if matches!(consumer, ConsumerKey::Group(_)) { generation } else { 0 }
}

fn entry() -> impl Strategy<Value = Entry> {
    let key = any::<u64>().prop_map(PartitionKey);
    let number = any::<u64>();
    let sizes = prop_oneof![1usize..400, Just(BODY_BY_REFERENCE_BYTES_MIN)];
    let batch = (sizes, any::<u8>()).prop_map(|(size, fill)| Bytes::from(vec![fill; size]));
    prop_oneof![
        (key.clone(), number, any::<u32>(), number, retention()).prop_map(
            |(key, segment_bytes, id, by, retention)| {
                let (partition, options_op) = (PartitionId(id), Op(by / 2));
                let options = PartitionOptions { segment_bytes, partition, retention, options_op };
                Entry::Create { key, options, by: Op(by) }
            }
        ),
        (key.clone(), retention(), number).prop_map(|(key, retention, by)| Entry::Options {
            key,
            retention,
            by: Op(by)
        }),
        (key.clone(), any::<u32>(), number).prop_map(|(key, count, by)| Entry::DeleteSegments {
            key,
            count,
            by: Op(by)
        }),
        (key.clone(), any::<u32>(), number).prop_map(|(key, group, generation)| {
            Entry::Generation { key, group: GroupId(group), generation }
        }),
        (key.clone(), any::<u32>())
            .prop_map(|(key, group)| Entry::GroupDeleted { key, group: GroupId(group) }),
        (key.clone(), number, 1..u32::MAX, identity(), batch).prop_map(
            |(key, base, count, identity, batch)| Entry::Batch {
                key,
                base_offset: Offset(base),
                count,
                identity,
                batch,
            }
        ),
        (key.clone(), consumer(), number, any::<(bool, bool)>(), number).prop_map(
            |(key, consumer, offset, (auto_commit, persisted), number)| Entry::StoreOffset {
                key,
                consumer,
                offset: Offset(offset),
                auto_commit,
                generation: generation(consumer, number),
                persisted,
            }
        ),
        (key.clone(), consumer(), number).prop_map(|(key, consumer, number)| {
            Entry::DeleteOffset { key, consumer, generation: generation(consumer, number) }
        }),
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

/// The bytes of one entry behind the header of an operation.
fn golden(kind: u8, flags: u8, subject: u64, fields: &[u64]) -> Body {
    let mut bytes = vec![1, 0, 0, 0, 0, 0, 0, 0, kind, flags, 0, 0];
    bytes.extend_from_slice(&u32::try_from(fields.len() * 8).unwrap().to_le_bytes());
    bytes.extend_from_slice(&subject.to_le_bytes());
    for field in fields {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    Body::from(bytes)
}

fn written(entry: &Entry) -> Vec<u8> {
    let mut builder = OperationBuilder::default();
    builder.push(entry);
    builder.finish().to_bytes().to_vec()
}

#[test]
fn entries_are_written_as_documented() {
    let key = PartitionKey(7);
    let group = ConsumerKey::Group(GroupId(5));
    let retention = Retention { message_expiry: Micros(60), bytes_max: 9_000 };
    let options = PartitionOptions {
        segment_bytes: 1 << 20,
        partition: PartitionId(3),
        retention,
        options_op: Op(40),
    };
    let store = |consumer, auto_commit, generation, persisted| {
        let offset = Offset(11);
        Entry::StoreOffset { key, consumer, offset, auto_commit, generation, persisted }
    };
    let golden_entries = [
        (Entry::Create { key, options, by: Op(41) }, (10, 0, vec![1 << 20, 3, 41, 60, 9_000, 40])),
        (Entry::Options { key, retention, by: Op(42) }, (11, 0, vec![60, 9_000, 42])),
        (Entry::DeleteSegments { key, count: 2, by: Op(43) }, (12, 0, vec![2, 43])),
        (store(group, true, 6, false), (13, 1, vec![11, 5, 6])),
        (store(group, false, 6, true), (13, 2, vec![11, 5, 6])),
        (store(ConsumerKey::Consumer(8), true, 0, true), (3, 3, vec![11, 8 << 32 | 1])),
        (Entry::DeleteOffset { key, consumer: group, generation: 6 }, (14, 0, vec![0, 5, 6])),
        (Entry::Generation { key, group: GroupId(5), generation: 6 }, (15, 0, vec![5, 6])),
        (Entry::GroupDeleted { key, group: GroupId(5) }, (16, 0, vec![5])),
    ];
    for (entry, (kind, flags, fields)) in golden_entries {
        let body = golden(kind, flags, 7, &fields);
        assert_eq!(written(&entry), body.to_bytes().to_vec(), "{entry:?}");
        assert_eq!(decode(&body).unwrap(), [entry]);
    }
}

#[test]
fn entries_of_the_first_version_are_read_as_what_they_meant() {
    let key = PartitionKey(7);
    let options = PartitionOptions {
        segment_bytes: 1 << 20,
        partition: PartitionId(3),
        retention: Retention::NONE,
        options_op: Op(0),
    };
    let create = decode(&golden(1, 0, 7, &[1 << 20, 3, 41])).unwrap();
    assert_eq!(create, [Entry::Create { key, options, by: Op(41) }]);
    let consumer = ConsumerKey::Group(GroupId(5));
    let store = decode(&golden(3, 1, 7, &[11, 5 << 32 | 2])).unwrap();
    let (offset, auto_commit, generation, persisted) = (Offset(11), true, 0, false);
    let expected = Entry::StoreOffset { key, consumer, offset, auto_commit, generation, persisted };
    assert_eq!(store, [expected]);
    let delete = decode(&golden(4, 0, 7, &[0, 5 << 32 | 2])).unwrap();
    assert_eq!(delete, [Entry::DeleteOffset { key, consumer, generation: 0 }]);
}

//! Consumer groups: members, assignment, hand-over of partitions, offsets.

use crate::support::{Place, code, name, number, root, texts, unique};
use iggy::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const GROUP: &str = "readers";

async fn place_with_group(partitions: u32) -> Place {
    let place = Place::new(partitions).await;
    place
        .client
        .create_consumer_group(&place.stream, &place.topic, GROUP)
        .await
        .expect("the name is free");
    place
}

async fn join(client: &IggyClient, place: &Place) {
    client.join_consumer_group(&place.stream, &place.topic, &name(GROUP)).await.expect("joined");
}

/// A further member on a connection of its own.
async fn member(place: &Place) -> IggyClient {
    let client = root(place.address()).await;
    join(&client, place).await;
    client
}

async fn details(place: &Place) -> ConsumerGroupDetails {
    let group = place.client.get_consumer_group(&place.stream, &place.topic, &name(GROUP)).await;
    group.expect("answered").expect("it exists")
}

/// Waits until the members' shares are these: a partition moves when its old owner has nothing
/// of it in flight, which is asked for after the join was answered.
async fn settled(place: &Place, partitions: u32, expected: &[usize]) {
    let mut seen = Vec::new();
    for _ in 0..500 {
        seen = shares(place, partitions).await;
        if seen == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("shares {seen:?}, expected {expected:?}");
}

/// Partitions of each member, and that every partition has exactly one owner.
async fn shares(place: &Place, partitions: u32) -> Vec<usize> {
    let group = details(place).await;
    let owned: Vec<u32> = group.members.iter().flat_map(|it| it.partitions.clone()).collect();
    let distinct: BTreeSet<u32> = owned.iter().copied().collect();
    assert_eq!(owned.len(), distinct.len(), "no partition has two owners");
    assert_eq!(distinct.len() as u32, partitions, "none is without");
    let mut shares: Vec<usize> = group.members.iter().map(|it| it.partitions.len()).collect();
    shares.sort_unstable();
    shares
}

async fn poll(
    client: &IggyClient,
    place: &Place,
    strategy: PollingStrategy,
    auto_commit: bool,
) -> Result<PolledMessages, IggyError> {
    let consumer = Consumer::group(name(GROUP));
    client
        .poll_messages(&place.stream, &place.topic, None, &consumer, &strategy, 100, auto_commit)
        .await
}

#[tokio::test]
async fn a_created_group_is_read_by_name_and_number_and_listed() {
    let place = place_with_group(3).await;
    let (stream, topic) = (&place.stream, &place.topic);
    let by_name = details(&place).await;
    assert_eq!((by_name.name.as_str(), by_name.partitions_count), (GROUP, 3));
    assert_eq!((by_name.members_count, by_name.members.len()), (0, 0));
    let by_number = place.client.get_consumer_group(stream, topic, &number(by_name.id)).await;
    assert_eq!(by_number.expect("answered").expect("there").name, GROUP);
    let listed = place.client.get_consumer_groups(stream, topic).await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id, listed[0].partitions_count), (by_name.id, 3));
}

#[tokio::test]
async fn a_taken_group_name_is_refused_and_the_members_stay() {
    let place = place_with_group(2).await;
    join(&place.client, &place).await;
    let again = place.client.create_consumer_group(&place.stream, &place.topic, GROUP).await;
    assert_eq!(code(again), 5004);
    settled(&place, 2, &[2]).await;
}

#[tokio::test]
async fn missing_groups_topics_and_streams_are_told_apart() {
    let place = Place::new(1).await;
    let (client, stream, topic) = (&place.client, &place.stream, &place.topic);
    let none = name("none");
    assert!(client.get_consumer_group(stream, topic, &none).await.expect("answered").is_none());
    assert_eq!(code(client.join_consumer_group(stream, topic, &none).await), 5000);
    assert_eq!(code(client.leave_consumer_group(stream, topic, &none).await), 5000);
    assert_eq!(code(client.delete_consumer_group(stream, topic, &none).await), 5000);
    assert_eq!(code(client.create_consumer_group(stream, &none, "g").await), 2010);
    assert_eq!(code(client.create_consumer_group(&none, topic, "g").await), 1009);
    assert_eq!(code(client.join_consumer_group(stream, &none, &none).await), 2010);
    assert_eq!(code(client.join_consumer_group(&none, topic, &none).await), 1009);
}

#[tokio::test]
async fn joining_twice_makes_one_member_and_leaving_without_having_joined_is_an_error() {
    let place = place_with_group(3).await;
    join(&place.client, &place).await;
    join(&place.client, &place).await;
    assert_eq!(details(&place).await.members_count, 1);
    let stranger = root(place.address()).await;
    let left = stranger.leave_consumer_group(&place.stream, &place.topic, &name(GROUP)).await;
    assert_eq!(code(left), 5006);
    place
        .client
        .leave_consumer_group(&place.stream, &place.topic, &name(GROUP))
        .await
        .expect("a member may leave");
    assert_eq!(details(&place).await.members_count, 0);
}

#[tokio::test]
async fn members_share_the_partitions_evenly_whoever_comes_and_goes() {
    let place = place_with_group(6).await;
    join(&place.client, &place).await;
    settled(&place, 6, &[6]).await;
    let two = member(&place).await;
    settled(&place, 6, &[3, 3]).await;
    let _three = member(&place).await;
    settled(&place, 6, &[2, 2, 2]).await;
    let _four = member(&place).await;
    settled(&place, 6, &[1, 1, 2, 2]).await;
    two.leave_consumer_group(&place.stream, &place.topic, &name(GROUP)).await.expect("left");
    settled(&place, 6, &[2, 2, 2]).await;
}

#[tokio::test]
async fn a_member_reads_all_its_partitions_in_turn() {
    let place = place_with_group(3).await;
    for partition in 0..3 {
        place.send(partition, &[&format!("of-{partition}")]).await;
    }
    join(&place.client, &place).await;
    let mut read = BTreeSet::new();
    for _ in 0..3 {
        let polled = poll(&place.client, &place, PollingStrategy::next(), true).await;
        read.extend(texts(&polled.expect("answered")));
    }
    let expected = ["of-0", "of-1", "of-2"].map(str::to_owned);
    assert_eq!(read, BTreeSet::from(expected));
}

#[tokio::test]
async fn two_members_read_every_message_once_between_them() {
    let place = place_with_group(4).await;
    join(&place.client, &place).await;
    let other = member(&place).await;
    for partition in 0..4 {
        place.fill(partition, 10).await;
    }
    let mut read = Vec::new();
    for _ in 0..6 {
        for client in [&place.client, &other] {
            let polled = poll(client, &place, PollingStrategy::next(), true).await;
            let polled = polled.expect("answered");
            let offsets = polled.messages.iter().map(|it| (polled.partition_id, it.header.offset));
            read.extend(offsets);
        }
    }
    let distinct: BTreeSet<(u32, u64)> = read.iter().copied().collect();
    assert_eq!((read.len(), distinct.len()), (40, 40));
}

#[tokio::test]
async fn more_members_than_partitions_leave_some_with_nothing_to_read() {
    let place = place_with_group(1).await;
    place.fill(0, 5).await;
    join(&place.client, &place).await;
    let idle = member(&place).await;
    settled(&place, 1, &[0, 1]).await;
    let polled = poll(&idle, &place, PollingStrategy::next(), false).await.expect("answered");
    assert!(polled.messages.is_empty(), "it owns nothing, which is no error");
}

#[tokio::test]
async fn whoever_is_no_member_cannot_poll_as_one() {
    let place = place_with_group(1).await;
    place.fill(0, 5).await;
    let stranger = root(place.address()).await;
    assert_eq!(code(poll(&stranger, &place, PollingStrategy::next(), false).await), 5006);
}

#[tokio::test]
async fn a_member_whose_connection_is_lost_gives_its_partitions_back() {
    let place = place_with_group(2).await;
    join(&place.client, &place).await;
    let brief = member(&place).await;
    settled(&place, 2, &[1, 1]).await;
    brief.disconnect().await.expect("disconnected");
    for _ in 0..200 {
        if details(&place).await.members_count == 1 {
            settled(&place, 2, &[2]).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the lost member is still there");
}

#[tokio::test]
async fn partitions_added_and_removed_while_members_are_present_are_dealt_out_at_once() {
    let place = place_with_group(2).await;
    join(&place.client, &place).await;
    let _other = member(&place).await;
    place.client.create_partitions(&place.stream, &place.topic, 3).await.expect("added");
    settled(&place, 5, &[2, 3]).await;
    assert_eq!(details(&place).await.partitions_count, 5);
    place.client.delete_partitions(&place.stream, &place.topic, 4).await.expect("removed");
    settled(&place, 1, &[0, 1]).await;
}

#[tokio::test]
async fn a_group_goes_on_after_its_stored_offset_also_with_another_member() {
    let place = place_with_group(1).await;
    place.fill(0, 20).await;
    join(&place.client, &place).await;
    let consumer = Consumer::group(name(GROUP));
    place
        .client
        .store_consumer_offset(&consumer, &place.stream, &place.topic, Some(0), 11)
        .await
        .expect("its owner may");
    let (stream, topic) = (&place.stream, &place.topic);
    place.client.leave_consumer_group(stream, topic, &name(GROUP)).await.expect("left");
    let heir = member(&place).await;
    let polled = poll(&heir, &place, PollingStrategy::next(), false).await.expect("answered");
    assert_eq!(polled.messages[0].header.offset, 12);
}

#[tokio::test]
async fn only_the_owner_of_a_partition_stores_and_deletes_the_offset_of_its_group() {
    let place = place_with_group(1).await;
    place.fill(0, 5).await;
    join(&place.client, &place).await;
    let consumer = Consumer::group(name(GROUP));
    let (stream, topic) = (&place.stream, &place.topic);
    place
        .client
        .store_consumer_offset(&consumer, stream, topic, Some(0), 3)
        .await
        .expect("its owner may");
    let idle = member(&place).await;
    let stored = idle.store_consumer_offset(&consumer, stream, topic, Some(0), 1).await;
    assert_eq!(code(stored), 20);
    let deleted = idle.delete_consumer_offset(&consumer, stream, topic, Some(0)).await;
    assert_eq!(code(deleted), 20);
    let stranger = root(place.address()).await;
    let read = stranger.get_consumer_offset(&consumer, stream, topic, Some(0)).await;
    assert_eq!(read.expect("anyone may read it").expect("stored").stored_offset, 3);
}

#[tokio::test]
async fn the_offsets_of_a_group_and_of_a_consumer_of_the_same_number_are_two_things() {
    let place = place_with_group(1).await;
    place.fill(0, 10).await;
    join(&place.client, &place).await;
    let id = details(&place).await.id;
    let (group, single) = (Consumer::group(number(id)), Consumer::new(number(id)));
    let (client, stream, topic) = (&place.client, &place.stream, &place.topic);
    client.store_consumer_offset(&group, stream, topic, Some(0), 7).await.expect("stored");
    let read = client.get_consumer_offset(&single, stream, topic, Some(0)).await;
    assert!(read.expect("answered").is_none());
    client.store_consumer_offset(&single, stream, topic, Some(0), 2).await.expect("stored");
    let read = client.get_consumer_offset(&group, stream, topic, Some(0)).await;
    assert_eq!(read.expect("answered").expect("stored").stored_offset, 7);
}

#[tokio::test]
async fn a_deleted_group_takes_its_offsets_along_and_its_number_is_not_used_again() {
    let place = place_with_group(1).await;
    place.fill(0, 10).await;
    join(&place.client, &place).await;
    let first = details(&place).await.id;
    let consumer = Consumer::group(name(GROUP));
    let (client, stream, topic) = (&place.client, &place.stream, &place.topic);
    client.store_consumer_offset(&consumer, stream, topic, Some(0), 7).await.expect("stored");
    client.delete_consumer_group(stream, topic, &name(GROUP)).await.expect("deleted");
    assert!(poll(client, &place, PollingStrategy::next(), false).await.is_err());
    client.create_consumer_group(stream, topic, GROUP).await.expect("the name is free");
    assert!(details(&place).await.id > first);
    let read = client.get_consumer_offset(&consumer, stream, topic, Some(0)).await;
    assert!(read.expect("answered").is_none(), "the new group has stored nothing");
    join(client, &place).await;
    let polled = poll(client, &place, PollingStrategy::next(), false).await.expect("answered");
    assert_eq!(polled.messages[0].header.offset, 0);
}

#[tokio::test]
async fn numbers_of_groups_rise_from_zero_in_each_topic() {
    let place = Place::new(1).await;
    for expected in 0..3 {
        let group = place
            .client
            .create_consumer_group(&place.stream, &place.topic, &unique("group"))
            .await
            .expect("created");
        assert_eq!(group.id, expected);
    }
    let other = Place::new(1).await;
    let group = other.client.create_consumer_group(&other.stream, &other.topic, "g").await;
    assert_eq!(group.expect("created").id, 0);
}

#[tokio::test]
async fn a_client_lists_the_groups_it_is_a_member_of() {
    let place = place_with_group(1).await;
    join(&place.client, &place).await;
    place
        .client
        .create_consumer_group(&place.stream, &place.topic, "second")
        .await
        .expect("created");
    place
        .client
        .join_consumer_group(&place.stream, &place.topic, &name("second"))
        .await
        .expect("joined");
    let me = place.client.get_me().await.expect("answered");
    assert_eq!((me.consumer_groups_count, me.consumer_groups.len()), (2, 2));
    place.client.delete_topic(&place.stream, &place.topic).await.expect("deleted");
    let me = place.client.get_me().await.expect("answered");
    assert_eq!(me.consumer_groups_count, 0, "groups go with their topic");
}

//! Permissions on every level; a change counts from the next request.

use crate::support::{Account, Place, code, message, name, number, unique};
use iggy::prelude::*;
use std::collections::BTreeMap;

fn global(global: GlobalPermissions) -> Permissions {
    Permissions { global, streams: None }
}

async fn ids(place: &Place) -> (usize, usize) {
    let stream = place.client.get_stream(&place.stream).await.expect("read").expect("there");
    let topic =
        place.client.get_topic(&place.stream, &place.topic).await.expect("read").expect("there");
    (stream.id as usize, topic.id as usize)
}

fn on_topic(stream: usize, topic: usize, grant: TopicPermissions) -> Permissions {
    let topics = Some(BTreeMap::from([(topic, grant)]));
    let stream_grant = StreamPermissions { topics, ..StreamPermissions::default() };
    Permissions {
        global: GlobalPermissions::default(),
        streams: Some(BTreeMap::from([(stream, stream_grant)])),
    }
}

async fn send(client: &IggyClient, place: &Place) -> Result<SendMessagesResponse, IggyError> {
    let partition = Partitioning::partition_id(0);
    client.send_messages(&place.stream, &place.topic, &partition, &mut [message("m")]).await
}

async fn poll(client: &IggyClient, place: &Place) -> Result<PolledMessages, IggyError> {
    let consumer = Consumer::default();
    let first = PollingStrategy::first();
    client.poll_messages(&place.stream, &place.topic, Some(0), &consumer, &first, 1, false).await
}

#[tokio::test]
async fn a_user_without_permissions_may_only_look_after_itself() {
    let place = Place::new(1).await;
    place.fill(0, 1).await;
    let account = Account::new(None).await;
    let client = account.login().await;
    client.ping().await.expect("anyone may");
    client.get_me().await.expect("anyone may");
    client.get_cluster_metadata().await.expect("anyone may");
    client.describe_options(OptionsScope::Topic).await.expect("anyone may");
    assert!(client.get_personal_access_tokens().await.expect("its own").is_empty());
    assert_eq!(code(client.get_stats().await), 41);
    assert_eq!(code(client.get_clients().await), 41);
    assert_eq!(code(client.get_streams().await), 41);
    assert_eq!(code(client.get_stream(&place.stream).await), 41);
    assert_eq!(code(client.create_stream(&unique("never")).await), 41);
    assert_eq!(code(client.delete_stream(&place.stream).await), 41);
    assert_eq!(code(client.get_topics(&place.stream).await), 41);
    assert_eq!(code(client.purge_topic(&place.stream, &place.topic).await), 41);
    assert_eq!(code(client.create_partitions(&place.stream, &place.topic, 1).await), 41);
    assert_eq!(code(client.create_user(&unique("u"), "pass", UserStatus::Active, None).await), 41);
    assert_eq!(code(send(&client, &place).await), 41);
    assert_eq!(code(poll(&client, &place).await), 41);
    let consumer = Consumer::default();
    let stored =
        client.store_consumer_offset(&consumer, &place.stream, &place.topic, Some(0), 0).await;
    assert_eq!(code(stored), 41);
    let group = client.create_consumer_group(&place.stream, &place.topic, "g").await;
    assert_eq!(code(group), 41);
}

#[tokio::test]
async fn a_grant_for_one_topic_opens_that_topic_and_no_other() {
    let (place, other) = (Place::new(1).await, Place::new(1).await);
    let (stream, topic) = ids(&place).await;
    let grant = TopicPermissions {
        poll_messages: true,
        send_messages: true,
        ..TopicPermissions::default()
    };
    let account = Account::new(Some(on_topic(stream, topic, grant))).await;
    let client = account.login().await;
    send(&client, &place).await.expect("granted");
    assert_eq!(poll(&client, &place).await.expect("granted").messages.len(), 1);
    assert_eq!(code(send(&client, &other).await), 41);
    assert_eq!(code(poll(&client, &other).await), 41);
    assert_eq!(code(client.delete_topic(&place.stream, &place.topic).await), 41);
}

#[tokio::test]
async fn a_poll_grant_allows_offsets_and_no_group_operation() {
    let place = Place::new(1).await;
    place.fill(0, 3).await;
    let permissions =
        global(GlobalPermissions { poll_messages: true, ..GlobalPermissions::default() });
    let account = Account::new(Some(permissions)).await;
    let client = account.login().await;
    let consumer = Consumer::new(number(77));
    let (stream, topic) = (&place.stream, &place.topic);
    client.store_consumer_offset(&consumer, stream, topic, Some(0), 1).await.expect("granted");
    let stored = client.get_consumer_offset(&consumer, stream, topic, Some(0)).await;
    assert_eq!(stored.expect("granted").expect("stored").stored_offset, 1);
    assert_eq!(code(send(&client, &place).await), 41);
    assert_eq!(code(client.create_consumer_group(stream, topic, "g").await), 41);
    place.client.create_consumer_group(stream, topic, "g").await.expect("root may");
    assert_eq!(code(client.join_consumer_group(stream, topic, &name("g")).await), 41);
    assert_eq!(code(client.get_consumer_groups(stream, topic).await), 41);
}

#[tokio::test]
async fn a_read_grant_implies_polling_and_a_manage_grant_sending() {
    let place = Place::new(1).await;
    place.fill(0, 1).await;
    let (stream, topic) = ids(&place).await;
    let read = TopicPermissions { read_topic: true, ..TopicPermissions::default() };
    let reader = Account::new(Some(on_topic(stream, topic, read))).await;
    let client = reader.login().await;
    poll(&client, &place).await.expect("read implies poll");
    assert_eq!(code(send(&client, &place).await), 41);
    client.create_consumer_group(&place.stream, &place.topic, "readers").await.expect("granted");
    let manage = TopicPermissions { manage_topic: true, ..TopicPermissions::default() };
    let manager = Account::new(Some(on_topic(stream, topic, manage))).await;
    let client = manager.login().await;
    send(&client, &place).await.expect("manage implies send");
    poll(&client, &place).await.expect("and poll");
    client.purge_topic(&place.stream, &place.topic).await.expect("and purge");
    assert_eq!(code(client.delete_stream(&place.stream).await), 41, "of its scope only");
}

#[tokio::test]
async fn permissions_taken_away_are_gone_for_the_next_request_of_an_open_connection() {
    let place = Place::new(1).await;
    let permissions =
        global(GlobalPermissions { send_messages: true, ..GlobalPermissions::default() });
    let account = Account::new(Some(permissions)).await;
    let client = account.login().await;
    send(&client, &place).await.expect("granted");
    let user = name(&account.name);
    account.owner.update_permissions(&user, None).await.expect("taken away");
    assert_eq!(code(send(&client, &place).await), 41);
    let more = global(GlobalPermissions { manage_topics: true, ..GlobalPermissions::default() });
    account.owner.update_permissions(&user, Some(more.clone())).await.expect("given");
    send(&client, &place).await.expect("granted again, by another flag");
    let read = account.owner.get_user(&user).await.expect("read").expect("there");
    assert_eq!(read.permissions, Some(more), "the full set was replaced");
}

#[tokio::test]
async fn grants_add_up_over_the_levels_and_a_lower_one_takes_nothing_away() {
    let place = Place::new(1).await;
    let (stream, topic) = ids(&place).await;
    // Nothing on the stream and the topic, polling everywhere.
    let mut permissions = on_topic(stream, topic, TopicPermissions::default());
    permissions.global.poll_messages = true;
    let account = Account::new(Some(permissions)).await;
    let client = account.login().await;
    poll(&client, &place).await.expect("granted globally");
    assert_eq!(code(send(&client, &place).await), 41, "granted nowhere");
}

#[tokio::test]
async fn what_does_not_exist_is_reported_as_missing_also_without_permission() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let none = name("no-such-stream");
    assert!(client.get_stream(&none).await.expect("answered").is_none());
    assert_eq!(code(client.delete_stream(&none).await), 1009);
    let place = Place::new(1).await;
    let sent = client
        .send_messages(&none, &none, &Partitioning::partition_id(0), &mut [message("m")])
        .await;
    assert_eq!(code(sent), 20);
    assert_eq!(code(client.delete_topic(&none, &place.topic).await), 1009);
}

#[tokio::test]
async fn a_grant_to_read_servers_opens_figures_and_connections() {
    let permissions =
        global(GlobalPermissions { read_servers: true, ..GlobalPermissions::default() });
    let account = Account::new(Some(permissions)).await;
    let client = account.login().await;
    client.get_stats().await.expect("granted");
    let me = client.get_me().await.expect("answered");
    let clients = client.get_clients().await.expect("granted");
    assert!(clients.iter().any(|other| other.client_id == me.client_id));
    assert!(client.get_client(me.client_id).await.expect("granted").is_some());
    assert_eq!(code(client.get_streams().await), 41);
}

#[tokio::test]
async fn a_grant_to_manage_users_opens_users_and_nothing_else() {
    let permissions =
        global(GlobalPermissions { manage_users: true, ..GlobalPermissions::default() });
    let account = Account::new(Some(permissions)).await;
    let client = account.login().await;
    let title = unique("made");
    client.create_user(&title, "secret", UserStatus::Active, None).await.expect("granted");
    client.update_permissions(&name(&title), None).await.expect("granted");
    client.delete_user(&name(&title)).await.expect("granted");
    assert_eq!(code(client.create_stream(&unique("never")).await), 41);
    assert_eq!(code(client.get_stats().await), 41);
}

//! The node as its clients see it: who is connected, figures, option catalogues, raw commands.

use crate::support::{Account, Place, code, connected, name, root, shared};
use bytes::Bytes;
use iggy::prelude::*;

#[tokio::test]
async fn connected_clients_are_listed_with_user_address_and_transport() {
    let account = Account::new(None).await;
    let client = account.login().await;
    let me = client.get_me().await.expect("answered");
    let listed = account.owner.get_clients().await.expect("listed");
    let found = listed.iter().find(|it| it.client_id == me.client_id).expect("it is listed");
    assert_eq!((found.user_id, found.transport.as_str()), (me.user_id, "TCP"));
    assert_eq!(found.address, me.address);
    let read = account.owner.get_client(me.client_id).await.expect("read").expect("there");
    assert_eq!((read.user_id, read.address), (me.user_id, me.address));
}

#[tokio::test]
async fn an_unknown_client_reads_as_none() {
    let server = shared();
    let client = root(server.address()).await;
    assert!(client.get_client(u32::MAX).await.expect("answered").is_none());
    assert!(client.get_client(0).await.expect("answered").is_none());
}

#[tokio::test]
async fn a_client_that_has_gone_is_no_longer_listed() {
    let server = shared();
    let (client, brief) = (root(server.address()).await, root(server.address()).await);
    let number = brief.get_me().await.expect("answered").client_id;
    assert!(client.get_client(number).await.expect("answered").is_some());
    brief.disconnect().await.expect("disconnected");
    for _ in 0..200 {
        if client.get_client(number).await.expect("answered").is_none() {
            let listed = client.get_clients().await.expect("listed");
            assert!(listed.iter().all(|other| other.client_id != number));
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it is still there");
}

#[tokio::test]
async fn a_client_that_has_logged_out_has_no_user() {
    let server = shared();
    let (client, other) = (root(server.address()).await, root(server.address()).await);
    let number = other.get_me().await.expect("answered").client_id;
    other.logout_user().await.expect("logged out");
    let read = client.get_client(number).await.expect("answered");
    assert!(read.is_none_or(|read| read.user_id.is_none()));
}

#[tokio::test]
async fn the_catalogue_lists_every_option_of_a_topic_and_none_of_streams_and_users() {
    let server = shared();
    let client = root(server.address()).await;
    let topic = client.describe_options(OptionsScope::Topic).await.expect("answered");
    let keys: Vec<&str> = topic.iter().map(|option| option.key.as_str()).collect();
    for key in [
        "compression_algorithm",
        "message_expiry",
        "max_topic_size",
        "segment_size",
        "durability",
        "consumer_offset_durability",
        "messages_required_to_save",
        "size_of_messages_required_to_save",
        "preallocate_segments",
    ] {
        assert!(keys.contains(&key), "{key} is missing from {keys:?}");
    }
    assert!(topic.iter().all(|option| !option.description.is_empty()));
    for scope in [OptionsScope::Stream, OptionsScope::User] {
        assert!(client.describe_options(scope).await.expect("answered").is_empty());
    }
}

#[tokio::test]
async fn figures_of_machine_and_process_are_filled_in() {
    let place = Place::new(1).await;
    place.fill(0, 3).await;
    let stats = place.client.get_stats().await.expect("answered");
    assert!(!stats.hostname.is_empty() && !stats.os_name.is_empty());
    assert!(!stats.kernel_version.is_empty() && !stats.os_version.is_empty());
    assert!(stats.total_memory.as_bytes_u64() > stats.available_memory.as_bytes_u64());
    assert!(stats.memory_usage.as_bytes_u64() > 1_000_000);
    assert!(stats.threads_count >= 1);
    assert!(stats.total_disk_space.as_bytes_u64() > 0);
    assert!(stats.messages_size_bytes.as_bytes_u64() > 0);
    assert!(stats.cache_metrics.is_empty(), "there is no such cache");
    let own = place.server.as_ref().expect("shared").process_id();
    assert_eq!(stats.process_id, own);
}

#[tokio::test]
async fn figures_follow_what_is_created_and_deleted() {
    let (_folder, data) = borzoi_conformance::data_directory();
    let options = borzoi_conformance::ServerOptions::default();
    let server = borzoi_conformance::Server::start(&data, &options);
    let place = Place::at(server.address(), 3, Durability::Persisted).await;
    place.fill(0, 10).await;
    place.fill(2, 5).await;
    place.client.create_consumer_group(&place.stream, &place.topic, "g").await.expect("created");
    let stats = place.client.get_stats().await.expect("answered");
    let counts = |stats: &Stats| {
        let objects = (stats.streams_count, stats.topics_count, stats.partitions_count);
        (objects, stats.messages_count, stats.consumer_groups_count, stats.clients_count)
    };
    assert_eq!(counts(&stats), ((1, 1, 3), 15, 1, 1));
    place.client.delete_partitions(&place.stream, &place.topic, 1).await.expect("deleted");
    let stats = place.client.get_stats().await.expect("answered");
    assert_eq!(counts(&stats), ((1, 1, 2), 10, 1, 1));
    let topic = place.client.get_topic(&place.stream, &place.topic).await.expect("read");
    assert_eq!(topic.expect("there").messages_count, 10, "the topic has lost them as well");
    place.client.delete_stream(&place.stream).await.expect("deleted");
    let stats = place.client.get_stats().await.expect("answered");
    assert_eq!(counts(&stats), ((0, 0, 0), 0, 0, 1));
    assert_eq!(stats.messages_size_bytes.as_bytes_u64(), 0);
}

#[tokio::test]
async fn a_raw_ping_is_empty_and_raw_figures_are_not() {
    let server = shared();
    let client = root(server.address()).await;
    let ping = client.send_binary_request(1, Bytes::new()).await.expect("answered");
    assert!(ping.is_empty());
    let stats = client.send_binary_request(10, Bytes::new()).await.expect("answered");
    assert!(!stats.is_empty());
}

#[tokio::test]
async fn an_unknown_command_is_an_invalid_command() {
    let server = shared();
    let client = root(server.address()).await;
    for unknown in [0, 2, 99, 60_000, u32::MAX] {
        let answer = client.send_binary_request(unknown, Bytes::new()).await;
        assert_eq!(code(answer), 3, "command {unknown}");
    }
    client.ping().await.expect("the connection goes on");
}

#[tokio::test]
async fn a_read_of_the_cluster_needs_a_login() {
    let server = shared();
    let client = connected(server.address()).await;
    assert_eq!(code(client.get_cluster_metadata().await), 40);
    assert_eq!(code(client.get_me().await), 40);
    assert_eq!(code(client.get_stats().await), 40);
    assert_eq!(code(client.create_stream("never").await), 40);
    assert_eq!(code(client.get_topics(&name("never")).await), 40);
}

#[tokio::test]
async fn everything_about_users_groups_and_tokens_survives_kill_nine() {
    let (_folder, data) = borzoi_conformance::data_directory();
    let options = borzoi_conformance::ServerOptions::default();
    let server = borzoi_conformance::Server::start(&data, &options);
    let place = Place::at(server.address(), 2, Durability::Persisted).await;
    place.fill(0, 10).await;
    let (stream, topic) = (place.stream.clone(), place.topic.clone());
    let permissions = Permissions::root();
    place
        .client
        .create_user("alice", "secret", UserStatus::Active, Some(permissions.clone()))
        .await
        .expect("created");
    let alice = connected(server.address()).await;
    alice.login_user("alice", "secret").await.expect("logged in");
    let never = IggyExpiry::NeverExpire;
    let token = alice.create_personal_access_token("laptop", never).await.expect("made");
    let group = place.client.create_consumer_group(&stream, &topic, "readers").await;
    let group = group.expect("created").id;
    let consumer = Consumer::group(name("readers"));
    place.client.join_consumer_group(&stream, &topic, &name("readers")).await.expect("joined");
    place
        .client
        .store_consumer_offset(&consumer, &stream, &topic, Some(0), 6)
        .await
        .expect("stored");
    server.kill();
    let server = borzoi_conformance::Server::start(&data, &options);
    let robot = connected(server.address()).await;
    robot.login_with_personal_access_token(&token.token).await.expect("the token is known");
    let user = robot.get_user(&name("alice")).await.expect("read").expect("there");
    assert_eq!(user.permissions, Some(permissions));
    let read = robot.get_consumer_group(&stream, &topic, &name("readers")).await;
    let read = read.expect("read").expect("there");
    assert_eq!((read.id, read.members_count), (group, 0), "members end with their connections");
    let stored = robot.get_consumer_offset(&consumer, &stream, &topic, Some(0)).await;
    assert_eq!(stored.expect("answered").expect("stored").stored_offset, 6);
}

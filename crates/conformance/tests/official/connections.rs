//! Connecting, logging in and out, who is connected.

use crate::support::{Place, code, connected, root, shared};
use borzoi_conformance::{ROOT_PASSWORD, ROOT_USERNAME};
use iggy::prelude::*;

#[tokio::test]
async fn a_ping_is_answered_before_login() {
    let server = shared();
    let client = connected(server.address()).await;
    client.ping().await.expect("a ping needs no login");
}

#[tokio::test]
async fn a_read_before_login_is_unauthenticated() {
    let server = shared();
    let client = connected(server.address()).await;
    assert_eq!(code(client.get_streams().await), 40);
}

#[tokio::test]
async fn root_logs_in_and_is_user_zero() {
    let server = shared();
    let client = connected(server.address()).await;
    let identity = client.login_user(ROOT_USERNAME, ROOT_PASSWORD).await.expect("root may log in");
    assert_eq!(identity.user_id, 0);
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_look_the_same() {
    let server = shared();
    let client = connected(server.address()).await;
    assert_eq!(code(client.login_user(ROOT_USERNAME, "not the password").await), 42);
    let other = connected(server.address()).await;
    assert_eq!(code(other.login_user("nobody", "not the password").await), 42);
}

#[tokio::test]
async fn a_failed_login_leaves_room_for_a_right_one() {
    let server = shared();
    let client = connected(server.address()).await;
    assert_eq!(code(client.login_user(ROOT_USERNAME, "wrong").await), 42);
    let again = connected(server.address()).await;
    again.login_user(ROOT_USERNAME, ROOT_PASSWORD).await.expect("the right password counts");
}

#[tokio::test]
async fn after_logout_reads_are_refused_and_a_new_login_works() {
    let server = shared();
    let client = root(server.address()).await;
    client.logout_user().await.expect("logout is answered");
    assert_eq!(code(client.get_streams().await), 40);
    client.login_user(ROOT_USERNAME, ROOT_PASSWORD).await.expect("login after logout");
    client.get_streams().await.expect("reads work again");
}

#[tokio::test]
async fn me_names_the_user_and_the_transport() {
    let server = shared();
    let client = root(server.address()).await;
    let me = client.get_me().await.expect("me is answered");
    assert_eq!(me.user_id, Some(0));
    assert_eq!(me.transport, "TCP");
    assert!(me.client_id > 0);
    assert!(me.address.starts_with("127.0.0.1:"), "{}", me.address);
}

#[tokio::test]
async fn two_connections_have_two_client_numbers() {
    let server = shared();
    let one = root(server.address()).await.get_me().await.expect("me").client_id;
    let client = root(server.address()).await;
    let two = client.get_me().await.expect("me").client_id;
    assert_ne!(one, two);
    assert_eq!(client.get_me().await.expect("me").client_id, two, "the number stays");
}

#[tokio::test]
async fn a_single_node_reports_itself_as_the_healthy_leader() {
    let server = shared();
    let client = root(server.address()).await;
    let cluster = client.get_cluster_metadata().await.expect("cluster metadata is answered");
    assert_eq!(cluster.nodes.len(), 1);
    assert_eq!(cluster.nodes[0].role, ClusterNodeRole::Leader);
    assert_eq!(cluster.nodes[0].status, ClusterNodeStatus::Healthy);
}

#[tokio::test]
async fn stats_count_streams_topics_partitions_and_messages() {
    let place = Place::new(3).await;
    place.fill(0, 10).await;
    let stats = place.client.get_stats().await.expect("stats are answered");
    assert!(stats.streams_count >= 1);
    assert!(stats.topics_count >= 1);
    assert!(stats.partitions_count >= 3);
    assert!(stats.messages_count >= 10);
    assert!(stats.clients_count >= 1);
    assert!(stats.process_id > 0);
    assert!(!stats.iggy_server_version.is_empty());
}

#[tokio::test]
async fn an_operation_of_a_later_version_is_answered_with_feature_unavailable() {
    let place = Place::new(1).await;
    let flushed = place.client.flush_unsaved_buffer(&place.stream, &place.topic, 0, true).await;
    assert_eq!(code(flushed), 5);
}

//! Decodes the payload of a reply vector by the command in its name.

use borzoi_wire::body::{PollPrefix, PollReply};
use borzoi_wire::codec::{DecodeError, Empty, ToEnd, Wire};
use borzoi_wire::reply::Reply;

pub struct Decoded<'a> {
    pub value: Reply,
    pub records: Option<&'a [u8]>,
}

impl Decoded<'_> {
    pub fn prefix(&self) -> PollPrefix {
        let Reply::Polled(prefix) = self.value else { panic!("not a poll") };
        prefix
    }
}

fn or_not_found<'a, T: Wire<'a>>(
    payload: &'a [u8],
    wrap: impl FnOnce(T) -> Reply,
) -> Result<Reply, DecodeError> {
    Ok(Option::<T>::decode_exact(payload)?.map_or(Reply::NotFound, wrap))
}

pub fn decode<'a>(name: &str, payload: &'a [u8]) -> Decoded<'a> {
    let command = name.split('.').nth(1).unwrap();
    if command == "poll_messages" {
        let poll = PollReply::decode_exact(payload).unwrap();
        return Decoded { value: Reply::Polled(poll.prefix), records: Some(poll.records) };
    }
    let value = match command {
        "login_register" => Wire::decode_exact(payload).map(Reply::Identity),
        "get_cluster_metadata" => Wire::decode_exact(payload).map(Reply::ClusterMetadata),
        "get_me" => Wire::decode_exact(payload).map(Reply::Client),
        "create_stream" => Wire::decode_exact(payload).map(Reply::Stream),
        "create_topic" => Wire::decode_exact(payload).map(Reply::Topic),
        "get_topic" => or_not_found(payload, Reply::Topic),
        "get_topics" => Wire::decode_exact(payload).map(Reply::Topics),
        "send_messages" => Wire::decode_exact(payload).map(Reply::Sent),
        "get_consumer_offset" => or_not_found(payload, Reply::ConsumerOffset),
        "create_consumer_group" => Wire::decode_exact(payload).map(Reply::GroupCreated),
        "sync_consumer_group" => or_not_found(payload, Reply::Assignment),
        "get_consumer_group" => or_not_found(payload, Reply::Group),
        "get_consumer_groups" => {
            ToEnd::decode_exact(payload).map(|ToEnd(groups)| Reply::Groups(groups))
        }
        "create_user" => Wire::decode_exact(payload).map(Reply::User),
        "create_personal_access_token" => Wire::decode_exact(payload).map(Reply::Token),
        "get_stats" => Wire::decode_exact(payload).map(|stats| Reply::Stats(Box::new(stats))),
        "describe_options" => Wire::decode_exact(payload).map(Reply::OptionDescriptions),
        "get_poll_routing" => Wire::decode_exact(payload).map(Reply::Routing),
        "ping"
        | "create_partitions"
        | "store_consumer_offset"
        | "join_consumer_group"
        | "delete_segments"
        | "logout" => Empty::decode_exact(payload).map(|Empty| Reply::Empty),
        other => panic!("{other} has a reply vector that this test does not know"),
    };
    Decoded { value: value.unwrap(), records: None }
}

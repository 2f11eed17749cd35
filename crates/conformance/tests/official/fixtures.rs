//! Data directories that released builds wrote: this build opens every one and finds everything.

use crate::support::{name, root, texts};
use borzoi_conformance::{Server, ServerOptions, data_directory};
use iggy::prelude::*;
use std::path::Path;
use std::process::Command;

async fn opens(archive: &str) {
    let (folder, data) = data_directory();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(archive);
    let unpacked = Command::new("tar").arg("xzf").arg(&path).arg("-C").arg(folder.path()).status();
    assert!(unpacked.is_ok_and(|status| status.success()), "cannot unpack {}", path.display());
    let server = Server::start(&data, &ServerOptions::default());
    let client = root(server.address()).await;
    let stream = name("fixture");
    for level in ["persisted", "replicated"] {
        let topic = name(level);
        let details = client.get_topic(&stream, &topic).await.expect("read").expect("there");
        assert_eq!(details.messages_count, 400, "{level}");
        let consumer = Consumer::new(name("fixture"));
        let poll = async |partition, strategy: PollingStrategy| {
            client
                .poll_messages(&stream, &topic, Some(partition), &consumer, &strategy, 1_000, false)
                .await
                .expect("answered")
        };
        let expected: Vec<String> = (0..100).map(|index| format!("message {index}")).collect();
        assert_eq!(texts(&poll(1, PollingStrategy::first()).await), expected, "{level}");
        let rest = poll(1, PollingStrategy::next()).await;
        assert_eq!(texts(&rest), expected[40..], "{level}: after the stored offset");
        let large = poll(0, PollingStrategy::first()).await;
        assert_eq!(large.messages.len(), 300, "{level}");
        assert!(large.messages.iter().all(|message| message.payload.len() == 1_000));
        let mut more = [crate::support::message("more")];
        let partitioning = Partitioning::partition_id(1);
        let sent = client
            .send_messages(&stream, &topic, &partitioning, &mut more)
            .await
            .expect("confirmed");
        assert!(sent.confirmations[0].base_offset >= 100, "{level}: no offset twice");
    }
}

#[tokio::test]
async fn the_data_directory_of_version_one_is_opened() {
    opens("data-v1.tar.gz").await;
}

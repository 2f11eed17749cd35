//! `borzoi serve` as an operator meets it: what it refuses, what it says, how it stops.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use support::{Server, borzoi, refusal};

#[test]
fn it_says_where_it_listens_and_stops_cleanly_on_both_signals() {
    let directory = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let server = Server::start(borzoi(directory.path()).arg("--with-default-root-credentials"));
        assert!(TcpStream::connect(&server.address).is_ok());
        let config = directory.path().join("runtime/current_config.toml");
        let config = std::fs::read_to_string(config).unwrap();
        assert!(config.contains(&format!("address = \"{}\"", server.address)), "{config}");
        let (status, errors) = server.stop(signal);
        assert!(status.success(), "{errors}");
        assert!(errors.contains("stopped"), "{errors}");
    }
}

#[test]
fn connections_that_are_open_do_not_hold_up_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&mut borzoi(directory.path()));
    let idle: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    let (status, errors) = server.stop("-TERM");
    assert!(status.success(), "{errors}");
    drop(idle);
}

#[test]
fn a_directory_in_use_is_refused_naming_the_process_and_the_first_server_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&mut borzoi(directory.path()));
    let errors = refusal(&mut borzoi(directory.path()));
    assert!(errors.contains(&format!("process {}", server.child.id())), "{errors}");
    assert!(TcpStream::connect(&server.address).is_ok());
    assert!(server.stop("-TERM").0.success());
}

#[test]
fn a_directory_of_another_program_is_refused_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ibdata1"), "not ours").unwrap();
    let errors = refusal(&mut borzoi(directory.path()));
    assert!(errors.contains("ibdata1"), "{errors}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let errors = refusal(&mut borzoi(&directory.path().join("ibdata1")));
    assert!(errors.contains("not a directory"), "{errors}");
}

#[test]
fn stray_files_beside_the_data_are_reported_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Server::start(&mut borzoi(directory.path())).stop("-TERM").0.success());
    let stray = directory.path().join("notes.txt");
    std::fs::write(&stray, "mine").unwrap();
    let (status, errors) = Server::start(&mut borzoi(directory.path())).stop("-TERM");
    assert!(status.success());
    assert!(errors.contains("notes.txt"), "{errors}");
    assert_eq!(std::fs::read_to_string(stray).unwrap(), "mine");
}

#[test]
fn a_superblock_that_is_not_ours_is_refused_and_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Server::start(&mut borzoi(directory.path())).stop("-TERM").0.success());
    let superblock = directory.path().join("superblock");
    let garbage = vec![0x5a; std::fs::metadata(&superblock).unwrap().len() as usize];
    std::fs::write(&superblock, &garbage).unwrap();
    let errors = refusal(&mut borzoi(directory.path()));
    assert!(errors.contains("superblock"), "{errors}");
    assert_eq!(std::fs::read(&superblock).unwrap(), garbage);
}

#[test]
fn impossible_configuration_is_refused_before_anything_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let lease = "partition.offset_reservation_lease=0";
    let errors = refusal(borzoi(&data).args(["--set", lease]));
    assert!(errors.contains("partition.offset_reservation_lease"), "{errors}");
    assert!(errors.contains("1 to 16777216"), "{errors}");
    let errors = refusal(borzoi(&data).args(["--set", "tcp.adress=1:1"]));
    assert!(errors.contains("tcp.adress") && errors.contains("tcp.address"), "{errors}");
    let errors = refusal(borzoi(&data).env("BORZOI_TPC_ADDRESS", "1:1"));
    assert!(errors.contains("BORZOI_TPC_ADDRESS"), "{errors}");
    let errors = refusal(borzoi(&data).env("IGGY_ROOT_PASSWORD", "secret"));
    assert!(errors.contains("IGGY_ROOT_USERNAME"), "{errors}");
    let errors = refusal(borzoi(&data).args(["--replica-id", "1"]));
    assert!(errors.contains("--replica-id"), "{errors}");
    assert!(!data.exists());
}

#[test]
fn an_address_in_use_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let errors = refusal(borzoi(directory.path()).args(["--address", &address]));
    assert!(errors.contains(&address) && errors.contains("tcp.address"), "{errors}");
}

#[test]
fn a_generated_password_is_shown_at_the_first_start_only_and_never_written_down() {
    let directory = tempfile::tempdir().unwrap();
    let (_, errors) = Server::start(&mut borzoi(directory.path())).stop("-TERM");
    let line = errors.lines().find(|line| line.contains("generated credentials")).unwrap();
    let password = line.rsplit(' ').next().unwrap();
    assert!(password.len() >= 20, "{line}");
    let config = directory.path().join("runtime/current_config.toml");
    assert!(!std::fs::read_to_string(config).unwrap().contains(password));
    let (_, errors) = Server::start(&mut borzoi(directory.path())).stop("-TERM");
    assert!(!errors.contains("generated credentials"), "{errors}");
    let (_, errors) = Server::start(borzoi(directory.path()).arg("--fresh")).stop("-TERM");
    assert!(errors.contains("generated credentials"), "a fresh directory is a first start");
}

#[test]
fn a_volume_without_room_is_refused_saying_so() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(directory.path())
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return; // Only root may mount.
    }
    let errors = refusal(&mut borzoi(directory.path()));
    let read_only =
        Command::new("mount").args(["-o", "remount,ro"]).arg(directory.path()).status().unwrap();
    let refused =
        if read_only.success() { refusal(&mut borzoi(directory.path())) } else { String::new() };
    let _ = Command::new("umount").arg(directory.path()).status();
    assert!(errors.contains("no space left"), "{errors}");
    assert!(!read_only.success() || refused.contains("read-only"), "{refused}");
}

//! Where the real server takes its settings from, and where its log goes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;
use support::{Server, borzoi, refusal};

#[test]
fn a_file_of_variables_stands_in_for_an_environment_that_does_not_say_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = "BORZOI_CLUSTER_NAME=from-file\nIGGY_ROOT_USERNAME=ann\nIGGY_ROOT_PASSWORD=secret\n";
    fs::write(directory.path().join(".env"), file).unwrap();
    let server = Server::start(borzoi(&data).current_dir(directory.path()));
    assert_eq!(server.configured("cluster", "name"), "from-file");
    let (_, errors) = server.stop("-TERM");
    assert!(!errors.contains("generated credentials"), "{errors}");
    let mut command = borzoi(&data);
    command.current_dir(directory.path()).env("BORZOI_CLUSTER_NAME", "from-environment");
    assert_eq!(Server::start(&mut command).configured("cluster", "name"), "from-environment");
    let flag = Server::start(command.args(["--set", "cluster.name=from-flag"]));
    assert_eq!(flag.configured("cluster", "name"), "from-flag");
    drop(flag);
    let named = directory.path().join("other.env");
    fs::write(&named, "BORZOI_CLUSTER_NAME\n").unwrap();
    for variable in ["BORZOI_ENV_PATH", "IGGY_ENV_PATH"] {
        let errors = refusal(borzoi(&data).current_dir(directory.path()).env(variable, &named));
        assert!(errors.contains("other.env, line 1"), "{errors}");
    }
}

fn log_files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_log_is_also_in_a_file_which_a_restart_goes_on_with() {
    let directory = tempfile::tempdir().unwrap();
    for starts in 1..=2 {
        let (_, errors) = Server::start(&mut borzoi(directory.path())).stop("-TERM");
        assert!(!errors.contains("logs"), "the directory is ours: {errors}");
        let text = fs::read_to_string(directory.path().join("logs/borzoi.log")).unwrap();
        assert_eq!(text.matches(" ready").count(), starts, "{text}");
        assert_eq!(text.matches("stopped").count(), starts, "the last line is not lost: {text}");
        assert!(!text.contains('\u{1b}'), "no colours");
    }
    let elsewhere = directory.path().join("elsewhere");
    let place = format!("log.directory={}", elsewhere.display());
    let other = tempfile::tempdir().unwrap();
    let json = ["--log-format", "json", "--set", &place];
    Server::start(borzoi(other.path()).args(json)).stop("-TERM");
    let text = fs::read_to_string(elsewhere.join("borzoi.log")).unwrap();
    assert!(text.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{text}");
    let off = tempfile::tempdir().unwrap();
    Server::start(borzoi(off.path()).args(["--set", "log.files=false"])).stop("-TERM");
    assert!(!off.path().join("logs").exists());
}

#[test]
fn log_files_stay_within_their_limits_under_a_talkative_server() {
    let directory = tempfile::tempdir().unwrap();
    let limits = ["log.file_size_max=64 KiB", "log.total_size_max=128 KiB"];
    let mut command = borzoi(directory.path());
    command.args(["--log-level", "trace", "--set", limits[0], "--set", limits[1]]);
    // The reader of standard error must not hold the server up.
    let server = Server::start(command.stderr(std::process::Stdio::null()));
    let logs = directory.path().join("logs");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while log_files(&logs).len() < 2 && std::time::Instant::now() < until {
        for _ in 0..50 {
            drop(std::net::TcpStream::connect(&server.address));
        }
    }
    drop(server);
    let names = log_files(&logs);
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        assert!(fs::metadata(logs.join(name)).unwrap().len() <= 64 * 1024);
    }
}

#[test]
fn a_directory_that_cannot_hold_the_log_refuses_the_start_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let place = format!("log.directory={}", file.join("logs").display());
    let data = directory.path().join("data");
    let errors = refusal(borzoi(&data).args(["--set", &place]));
    assert!(errors.contains("log.directory"), "{errors}");
}

#[test]
fn a_variable_that_became_a_topic_option_refuses_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let errors = refusal(borzoi(&data).env("IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC", "true"));
    assert!(errors.contains("topic option enforce_fsync"), "{errors}");
    assert!(!data.exists());
}

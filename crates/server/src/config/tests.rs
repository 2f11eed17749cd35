//! Settings from file, environment and flags.

use super::*;

fn sources(variables: &[(&str, &str)]) -> Sources {
    let environment =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { environment, ..Sources::default() }
}

fn load(sources: &Sources) -> Settings {
    Settings::load(sources).unwrap().0
}

fn refused(sources: &Sources) -> String {
    Settings::load(sources).unwrap_err().to_string()
}

#[test]
fn the_default_file_names_every_key_once_and_explains_it() {
    let table: toml::Table = DEFAULT_FILE.parse().unwrap();
    let mut names = Vec::new();
    for (section, value) in &table {
        for name in value.as_table().unwrap().keys() {
            names.push(format!("{section}.{name}"));
        }
    }
    let mut known: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    names.sort();
    known.sort();
    assert_eq!(names, known);
    let lines: Vec<&str> = DEFAULT_FILE.lines().collect();
    for (line, next) in lines.iter().zip(&lines[1..]) {
        if next.contains(" = ") && !next.starts_with('#') {
            let explained = line.starts_with('#') || line.contains(" = ");
            assert!(explained, "{next} is not explained");
        }
    }
}

#[test]
fn effective_values_read_back_as_the_same_settings() {
    let settings = load(&sources(&[("BORZOI_NODE_SHARDS", "3"), ("BORZOI_LOG_FORMAT", "json")]));
    let mut again = load(&Sources::default());
    assert_ne!(again, settings);
    again.read_toml(&settings.to_toml(), "test").unwrap();
    assert_eq!(again, settings);
}

#[test]
fn flags_win_over_variables_which_win_over_files_which_win_over_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("borzoi.toml");
    std::fs::write(&path, "[tcp]\naddress = \"h:1\"\n[lanes]\npersisted = 2\nreplicated = 2\n")
        .unwrap();
    let mut all = sources(&[
        ("BORZOI_CONFIG_PATH", path.to_str().unwrap()),
        ("BORZOI_TCP_ADDRESS", "h:2"),
        ("IGGY_TCP_ADDRESS", "h:9"),
        ("BORZOI_LANES_REPLICATED", "3"),
    ]);
    all.flags.push(("tcp.address".to_owned(), "h:3".to_owned(), "--address".to_owned()));
    let settings = load(&all);
    assert_eq!(settings.tcp_address, "h:3");
    assert_eq!((settings.lanes_persisted, settings.lanes_replicated), (2, 3));
    all.flags.clear();
    assert_eq!(load(&all).tcp_address, "h:2");
    all.environment.remove("BORZOI_TCP_ADDRESS");
    assert_eq!(load(&all).tcp_address, "h:9");
    assert_eq!(load(&Sources::default()).tcp_address, "127.0.0.1:8090");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    let message = refused(&sources(&[("BORZOI_TCP_ADRESS", "h:1")]));
    assert!(message.contains("BORZOI_TCP_ADRESS") && message.contains("BORZOI_TCP_ADDRESS"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("borzoi.toml");
    let file = Sources { file: Some(path.clone()), ..Sources::default() };
    for (text, key, nearest) in [
        ("[tcp]\nadress = \"h:1\"", "tcp.adress", "tcp.address"),
        ("[lane]\npersisted = 1", "lane", "lanes"),
        ("tcp = 5", "tcp", "tcp.address"),
    ] {
        std::fs::write(&path, text).unwrap();
        let message = refused(&file);
        assert!(message.contains(&format!("key {key} in")), "{message}");
        assert!(message.contains(nearest), "{message}");
    }
    std::fs::write(&path, "[tcp\n").unwrap();
    assert!(refused(&file).contains("not valid TOML"));
    std::fs::remove_file(&path).unwrap();
    assert!(refused(&file).contains("borzoi.toml"));
}

#[test]
fn impossible_values_are_refused_naming_key_value_origin_and_what_is_allowed() {
    let cases = [
        ("BORZOI_PARTITION_OFFSET_RESERVATION_LEASE", "0", "1 to 16777216"),
        ("BORZOI_PARTITION_OFFSET_RESERVATION_LEASE", "16777217", "1 to 16777216"),
        ("BORZOI_NODE_SHARDS", "0", "1 to 256"),
        ("BORZOI_NODE_SHARDS", "257", "1 to 256"),
        ("BORZOI_LANES_PERSISTED", "513", "1 to 512"),
        ("BORZOI_TCP_ADDRESS", "127.0.0.1", "port"),
        ("BORZOI_TCP_ADDRESS", "127.0.0.1:70000", "port"),
        ("BORZOI_TOPICS_DURABILITY", "memory", "persisted or replicated"),
        ("BORZOI_JOURNAL_FILE_SIZE", "134217729", "4096"),
        ("BORZOI_CHECKPOINT_INTERVAL", "5", "duration"),
        ("BORZOI_LOG_FORMAT", "xml", "human or json"),
        ("BORZOI_LOG_LEVEL", "=,=", "filter"),
    ];
    for (variable, value, allowed) in cases {
        let message = refused(&sources(&[(variable, value)]));
        assert!(message.contains(variable), "{message}");
        assert!(message.contains(&format!("\"{value}\"")), "{message}");
        assert!(message.contains(allowed), "{message}");
    }
    let at_the_limit = [
        ("BORZOI_PARTITION_OFFSET_RESERVATION_LEASE", "16777216"),
        ("BORZOI_NODE_SHARDS", "256"),
        ("BORZOI_LANES_PERSISTED", "512"),
    ];
    load(&sources(&at_the_limit));
}

#[test]
fn variables_of_the_reference_system_are_read_or_warned_about() {
    let (settings, warnings) = Settings::load(&sources(&[
        ("IGGY_SYSTEM_PATH", "/data"),
        ("IGGY_HTTP_ENABLED", "false"),
        ("IGGY_ROOT_PASSWORD", "x"),
        ("IGGY_TCP_ADDRESS", ""),
        ("RUST_LOG", "debug"),
    ]))
    .unwrap();
    assert_eq!(settings.data_directory, PathBuf::from("/data"));
    assert_eq!(settings.log_level, "debug");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("IGGY_HTTP_ENABLED"));
    for (value, count) in [("2", 2), ("1..4", 3), ("all", 4), ("numa:nodes=0;cores=2", 4)] {
        let settings = load(&sources(&[("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", value)]));
        assert_eq!(settings.shard_count(8), count, "{value}");
    }
    refused(&sources(&[("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", "4..4")]));
}

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
        ("BORZOI_LOG_FILE_SIZE_MAX", "65535", "64 KiB"),
        ("BORZOI_LOG_FILE_AGE_MAX", "999 ms", "1 s"),
        ("BORZOI_HTTP_ADDRESS", "3000", "port"),
        ("BORZOI_HTTP_ENABLED", "maybe", "true or false"),
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
        ("BORZOI_LOG_FILE_SIZE_MAX", "64 KiB"),
        ("BORZOI_LOG_FILE_AGE_MAX", "1 s"),
    ];
    load(&sources(&at_the_limit));
}

#[test]
fn what_only_several_keys_together_make_impossible_is_refused() {
    let message = refused(&sources(&[("BORZOI_LOG_TOTAL_SIZE_MAX", "1 MiB")]));
    assert!(message.contains("log.total_size_max") && message.contains("1048576"), "{message}");
    assert!(message.contains("not below log.file_size_max"), "{message}");
    load(&sources(&[("BORZOI_LOG_TOTAL_SIZE_MAX", "64 MiB")]));
    load(&sources(&[("BORZOI_LOG_TOTAL_SIZE_MAX", "0"), ("BORZOI_LOG_FILE_SIZE_MAX", "0")]));
    let message = refused(&sources(&[("BORZOI_ENCRYPTION_ENABLED", "true")]));
    assert!(message.contains("encryption.active_key"), "{message}");
}

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

#[test]
fn encryption_keys_are_never_shown_and_the_highest_is_used_unless_one_is_named() {
    let secret = &KEY[..20];
    let message = refused(&sources(&[("BORZOI_ENCRYPTION_KEYS", secret)]));
    assert!(message.contains("encryption.keys = \"(hidden)\""), "{message}");
    assert!(!message.contains(secret), "{message}");
    let keys = format!("1:{KEY},4:{KEY}");
    let enabled = ("BORZOI_ENCRYPTION_ENABLED", "true");
    let settings = load(&sources(&[("BORZOI_ENCRYPTION_KEYS", &keys), enabled]));
    assert_eq!(settings.encrypting_key(), Some(4));
    assert!(!settings.to_toml().contains(KEY));
    assert!(!format!("{settings:?}").contains(KEY));
    let active = ("BORZOI_ENCRYPTION_ACTIVE_KEY", "1");
    let settings = load(&sources(&[("BORZOI_ENCRYPTION_KEYS", &keys), enabled, active]));
    assert_eq!(settings.encrypting_key(), Some(1));
    let unknown = ("BORZOI_ENCRYPTION_ACTIVE_KEY", "2");
    let message = refused(&sources(&[("BORZOI_ENCRYPTION_KEYS", &keys), enabled, unknown]));
    assert!(message.contains("encryption.active_key = \"2\""), "{message}");
    let settings = load(&sources(&[("IGGY_SYSTEM_ENCRYPTION_KEY", KEY)]));
    assert_eq!(settings.encrypting_key(), None, "a key alone only lets old data be read");
}

#[test]
fn a_file_of_keys_adds_to_the_keys_and_must_be_there_and_right() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    let file = ("BORZOI_ENCRYPTION_KEYS_FILE", path.to_str().unwrap());
    assert!(refused(&sources(&[file])).contains("keys"));
    std::fs::write(&path, format!("# spare\n3:{KEY}\n")).unwrap();
    let settings = load(&sources(&[file, ("BORZOI_ENCRYPTION_KEYS", KEY)]));
    assert_eq!(settings.encryption_keys.0.len(), 2);
    std::fs::write(&path, format!("1:{KEY}\n")).unwrap();
    let message = refused(&sources(&[file, ("BORZOI_ENCRYPTION_KEYS", KEY)]));
    assert!(message.contains("encryption.keys_file") && !message.contains(KEY), "{message}");
}

#[test]
fn http_takes_a_free_port_where_tcp_does_and_its_own_otherwise() {
    let address = |variables: &[(&str, &str)]| -> Option<String> {
        load(&sources(variables)).http_bind_address().map(str::to_owned)
    };
    assert_eq!(address(&[]).as_deref(), Some("127.0.0.1:3000"));
    let free = ("BORZOI_TCP_ADDRESS", "127.0.0.1:0");
    assert_eq!(address(&[free]).as_deref(), Some("127.0.0.1:0"));
    assert_eq!(address(&[free, ("IGGY_HTTP_ADDRESS", "h:80")]).as_deref(), Some("h:80"));
    assert_eq!(address(&[("IGGY_HTTP_ENABLED", "false")]), None);
}

#[test]
fn variables_that_became_topic_options_refuse_the_start_naming_the_option() {
    let message = refused(&sources(&[("IGGY_SYSTEM_SEGMENT_SIZE", "1 GiB")]));
    assert!(message.contains("IGGY_SYSTEM_SEGMENT_SIZE"), "{message}");
    assert!(message.contains("topic option segment_size"), "{message}");
    let message = refused(&sources(&[("IGGY_SYSTEM_MESSAGE_DEDUPLICATION_ENABLED", "true")]));
    assert!(message.contains("DEDUPLICATION"), "{message}");
}

#[test]
fn every_alias_of_the_reference_system_sets_its_key() {
    for key in KEYS {
        let Some(alias) = key.alias else { continue };
        let value = match key.path {
            "data.directory" | "log.directory" => "elsewhere",
            "tcp.address" | "http.address" => "h:1",
            "cluster.name" => "other",
            "encryption.keys" => KEY,
            "log.level" => "debug",
            "log.retention" | "retention.interval" => "1 h",
            path if path.starts_with("log.") && path.ends_with("max") => "100 KiB",
            path if path.ends_with("enabled") || path == "log.files" => "false",
            _ => "3",
        };
        let small = ("BORZOI_LOG_FILE_SIZE_MAX", "64 KiB");
        let rest = [(alias, value), ("BORZOI_ENCRYPTION_ENABLED", "false"), small];
        let variables = if key.path == "log.file_size_max" { &rest[..2] } else { &rest[..] };
        let by_alias = load(&sources(variables));
        let own = key.variable();
        let mut with_own = variables.to_vec();
        with_own[0] = (&own, value);
        assert_eq!(by_alias, load(&sources(&with_own)), "{alias}");
    }
}

#[test]
fn variables_of_the_reference_system_are_read_or_warned_about() {
    let (settings, warnings) = Settings::load(&sources(&[
        ("IGGY_SYSTEM_PATH", "/data"),
        ("IGGY_QUIC_ENABLED", "false"),
        ("IGGY_ROOT_PASSWORD", "x"),
        ("IGGY_TCP_ADDRESS", ""),
        ("RUST_LOG", "debug"),
    ]))
    .unwrap();
    assert_eq!(settings.data_directory, PathBuf::from("/data"));
    assert_eq!(settings.log_level, "debug");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("IGGY_QUIC_ENABLED"));
    for (value, count) in [("2", 2), ("1..4", 3), ("all", 4), ("numa:nodes=0;cores=2", 4)] {
        let settings = load(&sources(&[("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", value)]));
        assert_eq!(settings.shard_count(8), count, "{value}");
    }
    refused(&sources(&[("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", "4..4")]));
}

//! Topic options: what is accepted, what is refused with which number, what is reported.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like tests.

use borzoi_metadata::{
    Compression, EXPIRY_NEVER, OptionKey, SIZE_UNLIMITED, TopicDefaults, TopicOptions,
    TopicOptionsUpdate, no_options, topic_catalogue,
};
use borzoi_types::{Durability, Micros};
use borzoi_wire::{ErrorCode, Options, Value};

const DEFAULTS: TopicDefaults = TopicDefaults { durability: Durability::Persisted };
const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

fn text(text: &str) -> Value<'static> {
    Value::text(text.to_owned()).unwrap()
}

fn block(entries: &[(&str, Value<'static>)]) -> Options {
    let mut options = Options::none();
    for (key, value) in entries {
        options.set(key, value.clone()).unwrap();
    }
    options
}

fn parse(entries: &[(&str, Value<'static>)]) -> Result<TopicOptions, ErrorCode> {
    TopicOptions::parse(&block(entries), 1, &DEFAULTS)
}

fn keys(options: &Options) -> Vec<String> {
    options.entries().iter().map(|entry| entry.key.to_string()).collect()
}

#[test]
fn nothing_named_means_defaults_all_of_them_derived() {
    let options = parse(&[]).unwrap();
    assert_eq!((options.message_expiry, options.max_topic_size), (EXPIRY_NEVER, SIZE_UNLIMITED));
    assert_eq!((options.segment_size, options.compression), (GIB, Compression::None));
    assert_eq!(options.durability, Durability::Persisted);
    assert!(options.explicit().is_empty());
    let derived = options.derived();
    assert_eq!(derived.get("durability"), Some(&text("persisted")));
    assert_eq!(derived.get("consumer_offset_durability"), Some(&text("persisted")));
    assert_eq!(derived.get("messages_required_to_save"), Some(&Value::U32(1_024)));
    assert_eq!(derived.entries().len(), OptionKey::ALL.len() - 1);
    let replicated = TopicDefaults { durability: Durability::Replicated };
    let options = TopicOptions::parse(&Options::none(), 1, &replicated).unwrap();
    assert_eq!(options.durability, Durability::Replicated);
}

#[test]
fn what_was_sent_is_reported_apart_from_what_was_filled_in() {
    let sent = [("max_topic_size", Value::U64(u64::MAX)), ("message_expiry", Value::U64(7))];
    let options = parse(&sent).unwrap();
    assert_eq!(keys(&options.explicit()), ["message_expiry", "max_topic_size"]);
    assert!(!keys(&options.derived()).contains(&"message_expiry".to_owned()));
    assert_eq!(options.explicit().get("message_expiry"), Some(&Value::U64(7)));
}

#[test]
fn the_options_of_the_stable_client_are_taken_as_named() {
    let named = |level: &str| {
        parse(&[("durability", text(level)), ("consumer_offset_durability", text(level))])
    };
    let options = named("replicated").unwrap();
    assert_eq!(options.durability, Durability::Replicated);
    assert_eq!(options.consumer_offset_durability, Durability::Replicated);
    assert_eq!(named("persisted").unwrap().durability, Durability::Persisted);
    assert_eq!(named("memory"), Err(ErrorCode::InvalidOptionValue));
    // Unnamed, offsets follow the topic.
    let options = parse(&[("durability", text("replicated"))]).unwrap();
    assert_eq!(options.consumer_offset_durability, Durability::Replicated);
}

#[test]
fn the_older_fsync_key_means_persisted() {
    let replicated = TopicDefaults { durability: Durability::Replicated };
    let sent = block(&[("enforce_fsync", Value::Bool(true))]);
    let options = TopicOptions::parse(&sent, 1, &replicated).unwrap();
    assert_eq!(options.durability, Durability::Persisted);
    assert_eq!(keys(&options.explicit()), ["enforce_fsync"]);
    assert_eq!(options.derived().get("durability"), Some(&text("persisted")));
    let contradiction = [("enforce_fsync", Value::Bool(true)), ("durability", text("replicated"))];
    assert_eq!(parse(&contradiction), Err(ErrorCode::InvalidOptionValue));
    let agreement = [("enforce_fsync", Value::Bool(true)), ("durability", text("persisted"))];
    assert!(parse(&agreement).is_ok());
    let off = parse(&[("enforce_fsync", text("false"))]).unwrap();
    assert_eq!(off.durability, Durability::Persisted, "false asks for nothing");
}

#[test]
fn times_are_understood_in_every_sensible_form() {
    let hour = 3_600_000_000;
    let cases = [
        (Value::U64(hour), hour),
        (Value::I32(5), 5),
        (Value::U128(u128::from(u64::MAX)), u64::MAX),
        (text("1h"), hour),
        (text("1h 30min"), hour + hour / 2),
        (text("15days 2min 2s"), 15 * 24 * hour + 122_000_000),
        (text("1.5s"), 1_500_000),
        (text("250ms"), 250_000),
        (text("90"), 90),
        (text("unlimited"), u64::MAX),
        (text("never_expire"), u64::MAX),
        (text("none"), u64::MAX),
        (text("Server_Default"), u64::MAX),
        (text("0"), u64::MAX),
        (Value::U64(0), u64::MAX),
    ];
    for (value, micros) in cases {
        let options = parse(&[("message_expiry", value.clone())]);
        assert_eq!(options.map(|it| it.message_expiry), Ok(Micros(micros)), "{value:?}");
    }
    let bad = ["soon", "1 fortnight", "h", "-1s", "1..2s", "99999999999999999999y", " ", "5s x"];
    for value in bad.map(text).into_iter().chain([
        Value::I64(-1),
        Value::F64(1.0),
        Value::Bool(true),
        Value::U128(u128::MAX),
        Value::raw(b"1".to_vec()).unwrap(),
    ]) {
        let options = parse(&[("message_expiry", value.clone())]);
        assert_eq!(options, Err(ErrorCode::InvalidOptionValue), "{value:?}");
    }
}

#[test]
fn sizes_are_understood_in_every_sensible_form() {
    let cases = [
        (text("15GB"), 15_000_000_000),
        (text("2 GiB"), 2 * GIB),
        (text("1.5gib"), GIB + GIB / 2),
        (text("2147483648"), 2 * GIB),
        (text("2147483648 B"), 2 * GIB),
        (text("unlimited"), u64::MAX),
        (text("server_default"), u64::MAX),
        (Value::U64(0), u64::MAX),
        (Value::U64(GIB), GIB),
    ];
    for (value, bytes) in cases {
        let options = parse(&[("max_topic_size", value.clone())]);
        assert_eq!(options.map(|it| it.max_topic_size), Ok(bytes), "{value:?}");
    }
    for value in ["big", "GB", "1 XB", "1.2345678GB", "99999999999PB", "-1"].map(text) {
        let options = parse(&[("max_topic_size", value.clone())]);
        assert_eq!(options, Err(ErrorCode::InvalidOptionValue), "{value:?}");
    }
}

#[test]
fn ranges_hold_at_their_edges() {
    let cases = [
        ("segment_size", Value::U64(MIB), true),
        ("segment_size", Value::U64(MIB - 512), false),
        ("segment_size", Value::U64(GIB), true),
        ("segment_size", Value::U64(GIB + 512), false),
        ("segment_size", Value::U64(MIB + 511), false),
        ("segment_size", text("2 MiB"), true),
        ("messages_required_to_save", Value::U32(0), false),
        ("messages_required_to_save", Value::U32(1), true),
        ("messages_required_to_save", Value::U32(16_777_216), true),
        ("messages_required_to_save", Value::U32(16_777_217), false),
        ("messages_required_to_save", text("5"), true),
        ("messages_required_to_save", Value::U64(1 << 40), false),
        ("size_of_messages_required_to_save", Value::U64(GIB), true),
        ("size_of_messages_required_to_save", Value::U64(GIB + 1), false),
        ("compression_algorithm", text("gzip"), true),
        ("compression_algorithm", text("zstd"), false),
        ("compression_algorithm", Value::U8(1), false),
        ("preallocate_segments", Value::U8(1), true),
        ("preallocate_segments", Value::U8(2), false),
        ("preallocate_segments", text("TRUE"), true),
        ("preallocate_segments", text("yes"), false),
    ];
    for (key, value, fits) in cases {
        let expected = if fits { None } else { Some(ErrorCode::InvalidOptionValue) };
        assert_eq!(parse(&[(key, value.clone())]).err(), expected, "{key} {value:?}");
    }
}

#[test]
fn a_size_limit_holds_at_least_one_segment() {
    let sizes = |topic: u64, segment: u64| {
        parse(&[("max_topic_size", Value::U64(topic)), ("segment_size", Value::U64(segment))])
    };
    assert!(sizes(2 * MIB, 2 * MIB).is_ok());
    assert_eq!(sizes(2 * MIB - 1, 2 * MIB), Err(ErrorCode::InvalidTopicSize));
    let below_default = parse(&[("max_topic_size", Value::U64(GIB - 1))]);
    assert_eq!(below_default, Err(ErrorCode::InvalidTopicSize));
}

#[test]
fn preallocation_is_bounded_by_the_partitions() {
    let sent = block(&[("preallocate_segments", Value::Bool(true))]);
    assert!(TopicOptions::parse(&sent, 64, &DEFAULTS).is_ok());
    let over = TopicOptions::parse(&sent, 65, &DEFAULTS);
    assert_eq!(over, Err(ErrorCode::InvalidOptionValue));
}

#[test]
fn unknown_keys_are_refused_everywhere() {
    let unknown = block(&[("retention", Value::U64(1))]);
    let refused = ErrorCode::UnsupportedOptionKey;
    assert_eq!(TopicOptions::parse(&unknown, 1, &DEFAULTS), Err(refused));
    assert_eq!(TopicOptionsUpdate::parse(&unknown), Err(refused));
    assert_eq!(no_options(&unknown), Err(refused));
    assert_eq!(no_options(&Options::none()), Ok(()));
}

#[test]
fn an_update_changes_three_keys_and_leaves_the_rest() {
    for key in OptionKey::ALL {
        let options = parse(&[]).unwrap();
        let sent = block(&[(key.name(), options.value(*key))]);
        let refused = TopicOptionsUpdate::parse(&sent).err();
        let expected =
            if key.is_updatable() { None } else { Some(ErrorCode::UnsupportedOptionKey) };
        assert_eq!(refused, expected, "{key:?}");
    }
    let before = parse(&[("segment_size", Value::U64(MIB))]).unwrap();
    let sent = block(&[("message_expiry", text("1h")), ("max_topic_size", Value::U64(0))]);
    let update = TopicOptionsUpdate::parse(&sent).unwrap();
    let after = before.updated(&update).unwrap();
    assert_eq!(after.message_expiry, Micros(3_600_000_000));
    assert_eq!(after.max_topic_size, SIZE_UNLIMITED, "a value for the default changes nothing");
    assert_eq!(keys(&after.explicit()), ["message_expiry", "segment_size"]);
    let too_small = TopicOptionsUpdate { max_topic_size: Some(MIB - 1), ..Default::default() };
    assert_eq!(before.updated(&too_small), Err(ErrorCode::InvalidTopicSize));
    let fits = TopicOptionsUpdate { max_topic_size: Some(MIB), ..Default::default() };
    assert_eq!(before.updated(&fits).unwrap().max_topic_size, MIB);
    let bad = block(&[("message_expiry", text("soon"))]);
    assert_eq!(TopicOptionsUpdate::parse(&bad), Err(ErrorCode::InvalidOptionValue));
}

#[test]
fn the_catalogue_lists_every_key_with_its_kind_and_default() {
    let catalogue = topic_catalogue(&DEFAULTS);
    let listed: Vec<(String, u8)> =
        catalogue.iter().map(|entry| (entry.name.to_string(), entry.default.kind())).collect();
    let expected = [
        ("compression_algorithm", 2),
        ("message_expiry", 12),
        ("max_topic_size", 12),
        ("segment_size", 12),
        ("enforce_fsync", 3),
        ("durability", 2),
        ("consumer_offset_durability", 2),
        ("messages_required_to_save", 11),
        ("size_of_messages_required_to_save", 12),
        ("preallocate_segments", 3),
    ];
    let expected: Vec<(String, u8)> = expected.map(|(key, kind)| (key.to_owned(), kind)).into();
    assert_eq!(listed, expected);
    assert!(catalogue.iter().all(|entry| !entry.description.0.is_empty()));
}

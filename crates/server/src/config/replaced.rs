//! Variables of the reference system for what is now an option of each topic. A deployment that
//! still sets one expects something of its data, so it is told instead of being served otherwise.

/// Variable, and what to use instead.
const REPLACED: &[(&str, &str)] = &[
    ("IGGY_SYSTEM_TOPIC_MAX_SIZE", "the topic option max_topic_size"),
    ("IGGY_SYSTEM_TOPIC_MESSAGE_EXPIRY", "the topic option message_expiry"),
    ("IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC", "the topic option enforce_fsync"),
    (
        "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE",
        "the topic option messages_required_to_save",
    ),
    (
        "IGGY_SYSTEM_PARTITION_SIZE_OF_MESSAGES_REQUIRED_TO_SAVE",
        "the topic option size_of_messages_required_to_save",
    ),
    ("IGGY_SYSTEM_SEGMENT_SIZE", "the topic option segment_size"),
    ("IGGY_SYSTEM_SEGMENT_PREALLOCATE", "the topic option preallocate_segments"),
];

/// Beginnings of variables of sections that are gone, and what to use instead.
const REPLACED_SECTIONS: &[(&str, &str)] = &[
    (
        "IGGY_SYSTEM_MESSAGE_DEDUPLICATION_",
        "nothing: a send that is repeated under its identity is recognised without it",
    ),
    ("IGGY_EXTRA_", "nothing: its keys are gone"),
];

/// What to use instead of a variable that would be without effect on data.
#[must_use]
pub fn instead_of(variable: &str) -> Option<&'static str> {
    let named = REPLACED.iter().find(|(name, _)| *name == variable);
    let section = REPLACED_SECTIONS.iter().find(|(start, _)| variable.starts_with(start));
    named.or(section).map(|(_, instead)| *instead)
}

//! Topic options: the catalogue, what a topic has, what an update may change (wire protocol,
//! section 7.1; behaviour, section 9.2).
//!
//! A request's option block is parsed and completed with defaults where it is admitted; the log
//! carries the finished record, so the catalogue and the defaults may change without changing what
//! an old log means.

use crate::codec::{Codec, DecodeError, Input, codec_struct};
use crate::option_values::{duration_value, flag_value, number_value, size_value, text_value};
use borzoi_types::{Durability, Micros};
use borzoi_wire::body::{Compression, OptionDescription};
use borzoi_wire::{ErrorCode, Name, Options, Text, Value};
use std::borrow::Cow;

/// A message expiry that never comes.
pub const EXPIRY_NEVER: Micros = Micros(u64::MAX);

/// A topic size without limit.
pub const SIZE_UNLIMITED: u64 = u64::MAX;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// Smallest segment size in bytes.
pub const SEGMENT_BYTES_MIN: u64 = MIB;
/// Largest segment size in bytes, also the default.
pub const SEGMENT_BYTES_MAX: u64 = GIB;
/// Segment sizes are multiples of this many bytes.
pub const SEGMENT_BYTES_STEP: u64 = 512;
/// Largest flush threshold in messages.
pub const MESSAGES_TO_SAVE_MAX: u32 = 16_777_216;
/// Largest flush threshold in bytes.
pub const BYTES_TO_SAVE_MAX: u64 = GIB;
/// Most that preallocation may reserve for one topic, in bytes.
pub const PREALLOCATED_BYTES_MAX: u64 = 64 * GIB;

impl Codec for Compression {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let byte = u8::get(input)?;
        let bad = DecodeError::Value { what: "compression", value: u64::from(byte) };
        Self::from_byte(byte).ok_or(bad)
    }
}

/// The name of a compression in option blocks.
#[must_use]
pub const fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
    }
}

impl Codec for Durability {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let byte = u8::get(input)?;
        let bad = DecodeError::Value { what: "durability", value: u64::from(byte) };
        Self::from_byte(byte).ok_or(bad)
    }
}

/// The name of a level in option blocks.
#[must_use]
pub const fn durability_name(level: Durability) -> &'static str {
    match level {
        Durability::Replicated => "replicated",
        Durability::Persisted => "persisted",
    }
}

fn durability_from_name(name: &str) -> Option<Durability> {
    [Durability::Replicated, Durability::Persisted]
        .into_iter()
        .find(|&level| durability_name(level) == name)
}

macro_rules! option_keys {
    ($( $(#[$meta:meta])* $key:ident = $bit:literal $name:literal $text:literal, )+) => {
        /// A key of the topic catalogue. The number is its place in the explicit mask.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum OptionKey { $( $(#[$meta])* $key = $bit, )+ }

        impl OptionKey {
            /// Every key, in the order in which blocks list them.
            pub const ALL: &'static [Self] = &[$( Self::$key, )+];

            /// The key as clients write it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$key => $name, )+ }
            }

            /// One line about it.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $( Self::$key => $text, )+ }
            }
        }
    };
}

option_keys! {
    /// Compression of payloads, informative.
    CompressionAlgorithm = 0 "compression_algorithm"
        "Compression that producers use, for information: none or gzip",
    /// Age at which messages may be removed.
    MessageExpiry = 1 "message_expiry"
        "Age in microseconds after which messages are removed; 2^64-1 means never",
    /// Size at which the oldest messages are removed.
    MaxTopicSize = 2 "max_topic_size"
        "Size in bytes above which the oldest segments are removed; 2^64-1 means unlimited",
    /// Segment size.
    SegmentSize = 3 "segment_size"
        "Segment size in bytes: 1 MiB to 1 GiB, a multiple of 512",
    /// Older name of persisted durability.
    EnforceFsync = 4 "enforce_fsync"
        "True asks for durability persisted",
    /// When a send is confirmed.
    Durability = 5 "durability"
        "When a send is confirmed: persisted (flushed) or replicated (handed to the kernel)",
    /// When an offset store is confirmed.
    ConsumerOffsetDurability = 6 "consumer_offset_durability"
        "When an offset store is confirmed: persisted or replicated",
    /// Accepted and reported.
    MessagesRequiredToSave = 7 "messages_required_to_save"
        "Kept for compatibility; confirmation depends on durability alone",
    /// Accepted and reported.
    SizeOfMessagesRequiredToSave = 8 "size_of_messages_required_to_save"
        "Kept for compatibility; confirmation depends on durability alone",
    /// Accepted and reported.
    PreallocateSegments = 9 "preallocate_segments"
        "Kept for compatibility; segments are written in place as they grow",
}

impl OptionKey {
    /// The key under a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// Whether an update of a topic may change it.
    #[must_use]
    pub const fn is_updatable(self) -> bool {
        matches!(self, Self::CompressionAlgorithm | Self::MessageExpiry | Self::MaxTopicSize)
    }

    const fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

/// All options of one topic, completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicOptions {
    /// Informative.
    pub compression: Compression,
    /// Age at which messages go; [`EXPIRY_NEVER`] for never.
    pub message_expiry: Micros,
    /// Bytes above which the oldest segments go; [`SIZE_UNLIMITED`] for no limit.
    pub max_topic_size: u64,
    /// Bytes at which a segment is closed.
    pub segment_size: u64,
    /// As the client sent it; the effective level is `durability`.
    pub enforce_fsync: bool,
    /// Level of the lane that the topic's partitions live in.
    pub durability: Durability,
    /// Level of offset stores.
    pub consumer_offset_durability: Durability,
    /// Reported only.
    pub messages_required_to_save: u32,
    /// Reported only.
    pub size_of_messages_required_to_save: u64,
    /// Reported only.
    pub preallocate_segments: bool,
    /// One bit per [`OptionKey`] that a client sent.
    explicit: u16,
}

codec_struct!(TopicOptions {
    compression,
    message_expiry,
    max_topic_size,
    segment_size,
    enforce_fsync,
    durability,
    consumer_offset_durability,
    messages_required_to_save,
    size_of_messages_required_to_save,
    preallocate_segments,
    explicit,
});

/// What the server fills in for keys that a client does not send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicDefaults {
    /// Level of topics that name none.
    pub durability: Durability,
}

impl Default for TopicDefaults {
    fn default() -> Self {
        Self { durability: Durability::Persisted }
    }
}

impl TopicOptions {
    /// The options of a topic created without naming any.
    #[must_use]
    pub const fn defaults(defaults: &TopicDefaults) -> Self {
        Self {
            compression: Compression::None,
            message_expiry: EXPIRY_NEVER,
            max_topic_size: SIZE_UNLIMITED,
            segment_size: SEGMENT_BYTES_MAX,
            enforce_fsync: false,
            durability: defaults.durability,
            consumer_offset_durability: defaults.durability,
            messages_required_to_save: 1_024,
            size_of_messages_required_to_save: MIB,
            preallocate_segments: false,
            explicit: 0,
        }
    }

    /// Parses the options of a create request for `partitions` partitions.
    ///
    /// # Errors
    /// 4041 for an unknown key, 4042 for a value that does not parse, is out of range or
    /// contradicts another, 1019 for a size limit below the segment size.
    pub fn parse(
        sent: &Options,
        partitions: u32,
        defaults: &TopicDefaults,
    ) -> Result<Self, ErrorCode> {
        let mut options = Self::defaults(defaults);
        for entry in sent.entries() {
            let key = OptionKey::from_name(entry.key.as_str());
            let key = key.ok_or(ErrorCode::UnsupportedOptionKey)?;
            options.set(key, &entry.value)?;
            options.explicit |= key.bit();
        }
        options.settle_durability()?;
        options.check(partitions)?;
        Ok(options)
    }

    fn set(&mut self, key: OptionKey, value: &Value<'_>) -> Result<(), ErrorCode> {
        const BAD: ErrorCode = ErrorCode::InvalidOptionValue;
        match key {
            OptionKey::CompressionAlgorithm => {
                self.compression = compression_value(value).ok_or(BAD)?;
            }
            OptionKey::MessageExpiry => {
                let expiry = duration_value(value).ok_or(BAD)?;
                self.message_expiry = if expiry == 0 { EXPIRY_NEVER } else { Micros(expiry) };
            }
            OptionKey::MaxTopicSize => {
                let size = size_value(value).ok_or(BAD)?;
                self.max_topic_size = if size == 0 { SIZE_UNLIMITED } else { size };
            }
            OptionKey::SegmentSize => self.segment_size = size_value(value).ok_or(BAD)?,
            OptionKey::EnforceFsync => self.enforce_fsync = flag_value(value).ok_or(BAD)?,
            OptionKey::Durability => self.durability = durability_value(value).ok_or(BAD)?,
            OptionKey::ConsumerOffsetDurability => {
                self.consumer_offset_durability = durability_value(value).ok_or(BAD)?;
            }
            OptionKey::MessagesRequiredToSave => {
                let number = number_value(value).ok_or(BAD)?;
                self.messages_required_to_save = u32::try_from(number).map_err(|_| BAD)?;
            }
            OptionKey::SizeOfMessagesRequiredToSave => {
                let size = size_value(value).ok_or(BAD)?;
                self.size_of_messages_required_to_save = if size == 0 { MIB } else { size };
            }
            OptionKey::PreallocateSegments => {
                self.preallocate_segments = flag_value(value).ok_or(BAD)?;
            }
        }
        Ok(())
    }

    /// The older key asks for the stronger level; naming the weaker one beside it contradicts.
    fn settle_durability(&mut self) -> Result<(), ErrorCode> {
        if self.enforce_fsync {
            if self.is_explicit(OptionKey::Durability) && self.durability != Durability::Persisted {
                return Err(ErrorCode::InvalidOptionValue);
            }
            self.durability = Durability::Persisted;
        }
        if !self.is_explicit(OptionKey::ConsumerOffsetDurability) {
            self.consumer_offset_durability = self.durability;
        }
        Ok(())
    }

    /// Ranges, and relations between values.
    fn check(&self, partitions: u32) -> Result<(), ErrorCode> {
        let segment_fits = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_size)
            && self.segment_size.is_multiple_of(SEGMENT_BYTES_STEP);
        let messages_fit = (1..=MESSAGES_TO_SAVE_MAX).contains(&self.messages_required_to_save);
        let bytes_fit = self.size_of_messages_required_to_save <= BYTES_TO_SAVE_MAX;
        if !segment_fits || !messages_fit || !bytes_fit || !self.preallocation_fits(partitions) {
            return Err(ErrorCode::InvalidOptionValue);
        }
        self.check_size(self.max_topic_size)
    }

    /// Whether preallocating `partitions` partitions stays within its limit.
    #[must_use]
    pub fn preallocation_fits(&self, partitions: u32) -> bool {
        let bytes = self.segment_size.saturating_mul(u64::from(partitions));
        !self.preallocate_segments || bytes <= PREALLOCATED_BYTES_MAX
    }

    /// A finite size limit holds at least one segment.
    fn check_size(&self, max_topic_size: u64) -> Result<(), ErrorCode> {
        if max_topic_size < self.segment_size {
            return Err(ErrorCode::InvalidTopicSize);
        }
        Ok(())
    }

    /// The options after an update.
    ///
    /// # Errors
    /// 1019 for a size limit below the segment size.
    pub fn updated(&self, update: &TopicOptionsUpdate) -> Result<Self, ErrorCode> {
        let mut options = *self;
        if let Some(compression) = update.compression {
            options.compression = compression;
            options.explicit |= OptionKey::CompressionAlgorithm.bit();
        }
        if let Some(expiry) = update.message_expiry {
            options.message_expiry = expiry;
            options.explicit |= OptionKey::MessageExpiry.bit();
        }
        if let Some(size) = update.max_topic_size {
            self.check_size(size)?;
            options.max_topic_size = size;
            options.explicit |= OptionKey::MaxTopicSize.bit();
        }
        Ok(options)
    }

    /// Whether a client sent the key, at creation or in an update.
    #[must_use]
    pub const fn is_explicit(&self, key: OptionKey) -> bool {
        self.explicit & key.bit() != 0
    }

    /// The value of a key in its canonical kind.
    #[must_use]
    pub fn value(&self, key: OptionKey) -> Value<'static> {
        let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
        match key {
            OptionKey::CompressionAlgorithm => text(compression_name(self.compression)),
            OptionKey::MessageExpiry => Value::U64(self.message_expiry.0),
            OptionKey::MaxTopicSize => Value::U64(self.max_topic_size),
            OptionKey::SegmentSize => Value::U64(self.segment_size),
            OptionKey::EnforceFsync => Value::Bool(self.enforce_fsync),
            OptionKey::Durability => text(durability_name(self.durability)),
            OptionKey::ConsumerOffsetDurability => {
                text(durability_name(self.consumer_offset_durability))
            }
            OptionKey::MessagesRequiredToSave => Value::U32(self.messages_required_to_save),
            OptionKey::SizeOfMessagesRequiredToSave => {
                Value::U64(self.size_of_messages_required_to_save)
            }
            OptionKey::PreallocateSegments => Value::Bool(self.preallocate_segments),
        }
    }

    /// Keys that clients sent, with their values.
    #[must_use]
    pub fn explicit(&self) -> Options {
        self.block(|key| self.is_explicit(key))
    }

    /// Keys that the server filled in, with their effective values. `enforce_fsync` is only an
    /// older way to ask for a level and is reported only to those who used it.
    #[must_use]
    pub fn derived(&self) -> Options {
        self.block(|key| !self.is_explicit(key) && key != OptionKey::EnforceFsync)
    }

    fn block(&self, listed: impl Fn(OptionKey) -> bool) -> Options {
        let mut block = Options::none();
        for key in OptionKey::ALL.iter().copied().filter(|key| listed(*key)) {
            block.set(key.name(), self.value(key)).expect("a key has 1 to 255 bytes");
        }
        block
    }
}

/// The catalogue of topic options as clients ask for it (code 13); streams and users have none.
#[must_use]
pub fn topic_catalogue(defaults: &TopicDefaults) -> Vec<OptionDescription> {
    let values = TopicOptions::defaults(defaults);
    let entries = OptionKey::ALL.iter().map(|key| OptionDescription {
        name: Name::new(key.name()).expect("a key has 1 to 255 bytes"),
        default: values.value(*key),
        description: Text::from(key.description()),
    });
    entries.collect()
}

/// What an update changes; absent means unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TopicOptionsUpdate {
    /// New compression.
    pub compression: Option<Compression>,
    /// New expiry.
    pub message_expiry: Option<Micros>,
    /// New size limit in bytes.
    pub max_topic_size: Option<u64>,
}

codec_struct!(TopicOptionsUpdate { compression, message_expiry, max_topic_size });

impl TopicOptionsUpdate {
    /// Parses the options of an update request. A value that stands for "default" changes nothing.
    ///
    /// # Errors
    /// 4041 for a key that is unknown or may not change, 4042 for a value that does not parse.
    pub fn parse(sent: &Options) -> Result<Self, ErrorCode> {
        const BAD: ErrorCode = ErrorCode::InvalidOptionValue;
        let mut update = Self::default();
        for entry in sent.entries() {
            let value = &entry.value;
            match OptionKey::from_name(entry.key.as_str()) {
                Some(OptionKey::CompressionAlgorithm) => {
                    update.compression = Some(compression_value(value).ok_or(BAD)?);
                }
                Some(OptionKey::MessageExpiry) => {
                    let expiry = duration_value(value).ok_or(BAD)?;
                    update.message_expiry = (expiry != 0).then_some(Micros(expiry));
                }
                Some(OptionKey::MaxTopicSize) => {
                    let size = size_value(value).ok_or(BAD)?;
                    update.max_topic_size = (size != 0).then_some(size);
                }
                Some(_) | None => return Err(ErrorCode::UnsupportedOptionKey),
            }
        }
        Ok(update)
    }
}

/// Streams and users have no options: any key is refused.
///
/// # Errors
/// 4041 when there is an entry.
pub const fn no_options(sent: &Options) -> Result<(), ErrorCode> {
    if sent.is_empty() { Ok(()) } else { Err(ErrorCode::UnsupportedOptionKey) }
}

fn compression_value(value: &Value<'_>) -> Option<Compression> {
    let name = text_value(value)?;
    Compression::ALL.iter().copied().find(|&known| compression_name(known) == name)
}

fn durability_value(value: &Value<'_>) -> Option<Durability> {
    durability_from_name(text_value(value)?)
}

const _: () = assert!(SEGMENT_BYTES_MAX.is_multiple_of(SEGMENT_BYTES_STEP));
const _: () = assert!(OptionKey::ALL.len() <= u16::BITS as usize);

//! Option blocks (wire protocol, section 7): entries whose keys are texts, each key once.
//!
//! In a request the block runs to the end of the body; in a reply its length stands before it.
//! What the keys mean is decided by who applies them, not here.

use crate::codec::{DecodeError, Reader, Wire, usize_from};
use crate::name::{Name, NameLengthError};
use crate::tlv::{Entries, Value, write_entry};
use borzoi_types::limits::{OPTIONS_BYTES_MAX, OPTIONS_ENTRIES_MAX};
use std::borrow::Cow;

/// Keys of topic options that profile A knows (section 7.1).
pub mod keys {
    /// `none` or `gzip`; text.
    pub const COMPRESSION_ALGORITHM: &str = "compression_algorithm";
    /// Microseconds until a message may be deleted; u64.
    pub const MESSAGE_EXPIRY: &str = "message_expiry";
    /// Bytes of a topic; u64.
    pub const MAX_TOPIC_SIZE: &str = "max_topic_size";
    /// Bytes of a segment; u64.
    pub const SEGMENT_SIZE: &str = "segment_size";
    /// Whether a send waits for the disk; bool. Of the baseline.
    pub const ENFORCE_FSYNC: &str = "enforce_fsync";
    /// `replicated` or `persisted`; text. Of 0.11.0 stable.
    pub const DURABILITY: &str = "durability";
    /// `replicated` or `persisted` for stored offsets; text. Of 0.11.0 stable.
    pub const CONSUMER_OFFSET_DURABILITY: &str = "consumer_offset_durability";
    /// Messages after which a partition is saved; u32.
    pub const MESSAGES_REQUIRED_TO_SAVE: &str = "messages_required_to_save";
    /// Bytes after which a partition is saved; u64.
    pub const SIZE_OF_MESSAGES_REQUIRED_TO_SAVE: &str = "size_of_messages_required_to_save";
    /// Whether segments are laid out in advance; bool.
    pub const PREALLOCATE_SEGMENTS: &str = "preallocate_segments";
}

/// One option.
#[derive(Clone, PartialEq, Debug)]
pub struct OptionEntry {
    /// The key.
    pub key: Name,
    /// The value.
    pub value: Value<'static>,
}

/// An option block, in the order in which it travels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    entries: Vec<OptionEntry>,
}

impl Options {
    /// No options.
    #[must_use]
    pub const fn none() -> Self {
        Self { entries: Vec::new() }
    }

    /// The options in order.
    #[must_use]
    pub fn entries(&self) -> &[OptionEntry] {
        &self.entries
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value<'static>> {
        self.entries.iter().find(|entry| entry.key.as_str() == key).map(|entry| &entry.value)
    }

    /// Sets `key`, in its old place if it is there.
    ///
    /// # Errors
    /// When the key has not 1 to 255 bytes.
    pub fn set(&mut self, key: &str, value: Value<'static>) -> Result<(), NameLengthError> {
        let key = Name::new(key)?;
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.value = value,
            None => self.entries.push(OptionEntry { key, value }),
        }
        Ok(())
    }

    /// Reads a block that fills `bytes`.
    fn from_block(bytes: &[u8]) -> Result<Self, DecodeError> {
        let what = "options";
        if bytes.len() > OPTIONS_BYTES_MAX {
            return Err(DecodeError::TooLarge { what, len: bytes.len(), max: OPTIONS_BYTES_MAX });
        }
        let mut entries = Vec::new();
        for entry in Entries::new(bytes) {
            let entry = entry?;
            if entries.len() == OPTIONS_ENTRIES_MAX {
                let len = entries.len() + 1;
                return Err(DecodeError::TooLarge { what, len, max: OPTIONS_ENTRIES_MAX });
            }
            let kind = u64::from(entry.key.kind());
            let Value::Text(Cow::Borrowed(key)) = entry.key else {
                return Err(DecodeError::Value { what: "kind of an option key", value: kind });
            };
            let value = entry.value.into_owned();
            let key = Name::new(key).map_err(|_| DecodeError::Text { what: "option key" })?;
            entries.push(OptionEntry { key, value });
        }
        if has_duplicates(&entries) {
            return Err(DecodeError::Duplicate { what });
        }
        Ok(Self { entries })
    }

    fn write_block(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            let key = Value::Text(Cow::Borrowed(entry.key.as_str()));
            write_entry(&key, &entry.value, out);
        }
    }

    /// Reads a block up to the end of the body, as it stands in requests.
    ///
    /// # Errors
    /// When it is above a limit, a key is not a text or occurs twice, or an entry does not decode.
    pub fn read_to_end(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_block(reader.rest())
    }

    /// Appends the block without its length, as it stands in requests.
    pub fn write_to_end(&self, out: &mut Vec<u8>) {
        self.write_block(out);
    }
}

fn has_duplicates(entries: &[OptionEntry]) -> bool {
    let mut keys: Vec<&Name> = entries.iter().map(|entry| &entry.key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// The form of replies: u32 length, then the block.
impl Wire<'_> for Options {
    const BYTES_MIN: usize = 4;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = usize_from(reader.u32("options length")?);
        Self::from_block(reader.bytes("options", length)?)
    }
    fn write(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        self.write_block(out);
        let length = u32::try_from(out.len() - at - 4).expect("1,024 entries are below 4 GiB");
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Options at the end of a request: the block runs to the end of the body.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrailingOptions(pub Options);

impl Wire<'_> for TrailingOptions {
    const BYTES_MIN: usize = 0;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(Options::read_to_end(reader)?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write_to_end(out);
    }
}

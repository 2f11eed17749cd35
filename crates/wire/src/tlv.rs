//! Typed keys and values: user headers of messages and option blocks (wire protocol, section 5.6).
//!
//! ```text
//! entry: key part, value part
//! part:  kind u8 | length u32 (1 to 255) | data
//! ```
//!
//! Entries follow each other to the end of their area. Reading borrows; nothing is allocated.

use crate::codec::{DecodeError, Reader, usize_from};
use std::borrow::Cow;

/// Longest data of a key or value.
pub const VALUE_BYTES_MAX: usize = 255;

/// The kind byte of a key or value.
pub type KindByte = u8;

/// A typed key or value. `'static` owns its data.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // The variants are their types.
pub enum Value<'a> {
    Raw(Cow<'a, [u8]>),
    Text(Cow<'a, str>),
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    I128(i128),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    U128(u128),
    F32(f32),
    F64(f64),
}

impl<'a> Value<'a> {
    /// A text, if it has 1 to 255 bytes.
    #[must_use]
    pub fn text(text: impl Into<Cow<'a, str>>) -> Option<Self> {
        let text = text.into();
        (1..=VALUE_BYTES_MAX).contains(&text.len()).then_some(Self::Text(text))
    }

    /// Raw bytes, if there are 1 to 255.
    #[must_use]
    pub fn raw(bytes: impl Into<Cow<'a, [u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        (1..=VALUE_BYTES_MAX).contains(&bytes.len()).then_some(Self::Raw(bytes))
    }

    /// The kind byte.
    #[must_use]
    pub const fn kind(&self) -> KindByte {
        match self {
            Self::Raw(_) => 1,
            Self::Text(_) => 2,
            Self::Bool(_) => 3,
            Self::I8(_) => 4,
            Self::I16(_) => 5,
            Self::I32(_) => 6,
            Self::I64(_) => 7,
            Self::I128(_) => 8,
            Self::U8(_) => 9,
            Self::U16(_) => 10,
            Self::U32(_) => 11,
            Self::U64(_) => 12,
            Self::U128(_) => 13,
            Self::F32(_) => 14,
            Self::F64(_) => 15,
        }
    }

    /// A copy that owns its data.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Raw(bytes) => Value::Raw(Cow::Owned(bytes.into_owned())),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Bool(value) => Value::Bool(value),
            Self::I8(value) => Value::I8(value),
            Self::I16(value) => Value::I16(value),
            Self::I32(value) => Value::I32(value),
            Self::I64(value) => Value::I64(value),
            Self::I128(value) => Value::I128(value),
            Self::U8(value) => Value::U8(value),
            Self::U16(value) => Value::U16(value),
            Self::U32(value) => Value::U32(value),
            Self::U64(value) => Value::U64(value),
            Self::U128(value) => Value::U128(value),
            Self::F32(value) => Value::F32(value),
            Self::F64(value) => Value::F64(value),
        }
    }

    /// Reads the data of a value of this kind: the whole of `data`.
    ///
    /// # Errors
    /// When the kind is unknown, the length is not that of the kind, a bool is neither 0 nor 1 or
    /// a text is not UTF-8.
    pub fn from_data(kind: KindByte, data: &'a [u8]) -> Result<Self, DecodeError> {
        let wrong = DecodeError::Value { what: "value length", value: data.len() as u64 };
        if data.is_empty() || data.len() > VALUE_BYTES_MAX {
            return Err(wrong);
        }
        macro_rules! number {
            ($variant:ident, $type:ident) => {
                match data.try_into() {
                    Ok(bytes) => Ok(Self::$variant($type::from_le_bytes(bytes))),
                    Err(_) => Err(wrong),
                }
            };
        }
        match kind {
            1 => Ok(Self::Raw(Cow::Borrowed(data))),
            2 => core::str::from_utf8(data)
                .map(|text| Self::Text(Cow::Borrowed(text)))
                .map_err(|_| DecodeError::Text { what: "text value" }),
            3 => match data {
                [0] => Ok(Self::Bool(false)),
                [1] => Ok(Self::Bool(true)),
                [other] => Err(DecodeError::Value { what: "bool value", value: u64::from(*other) }),
                _ => Err(wrong),
            },
            4 => number!(I8, i8),
            5 => number!(I16, i16),
            6 => number!(I32, i32),
            7 => number!(I64, i64),
            8 => number!(I128, i128),
            9 => number!(U8, u8),
            10 => number!(U16, u16),
            11 => number!(U32, u32),
            12 => number!(U64, u64),
            13 => number!(U128, u128),
            14 => number!(F32, f32),
            15 => number!(F64, f64),
            _ => Err(DecodeError::Value { what: "value kind", value: u64::from(kind) }),
        }
    }

    /// Appends the data without kind and length.
    pub fn write_data(&self, out: &mut Vec<u8>) {
        match self {
            Self::Raw(bytes) => out.extend_from_slice(bytes),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::I8(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::I16(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::I32(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::I64(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::I128(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::U8(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::U16(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::U32(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::U64(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::U128(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::F32(value) => out.extend_from_slice(&value.to_le_bytes()),
            Self::F64(value) => out.extend_from_slice(&value.to_le_bytes()),
        }
    }

    pub(crate) fn read_part(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind = reader.u8("value kind")?;
        let length = usize_from(reader.u32("value length")?);
        if length == 0 || length > VALUE_BYTES_MAX {
            return Err(DecodeError::Value { what: "value length", value: length as u64 });
        }
        Self::from_data(kind, reader.bytes("value data", length)?)
    }

    pub(crate) fn write_part(&self, out: &mut Vec<u8>) {
        out.push(self.kind());
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        self.write_data(out);
        let length = out.len() - at - 4;
        assert!((1..=VALUE_BYTES_MAX).contains(&length), "a key or value has 1 to 255 bytes");
        let length = u32::try_from(length).expect("at most 255");
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// One key with its value.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: Value<'a>,
    /// The value.
    pub value: Value<'a>,
}

/// Iterator over the entries of an area, such as the user headers of a message. Ends after the
/// first fault.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    reader: Reader<'a>,
}

impl<'a> Entries<'a> {
    /// Iterates over bytes that hold entries and nothing else.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes) }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let entry = Value::read_part(&mut self.reader).and_then(|key| {
            let value = Value::read_part(&mut self.reader)?;
            Ok(Entry { key, value })
        });
        if entry.is_err() {
            self.reader.rest();
        }
        Some(entry)
    }
}

/// Appends an entry. Panics when a raw or text part has not 1 to 255 bytes; [`Value::text`] and
/// [`Value::raw`] make only such that do.
pub fn write_entry(key: &Value<'_>, value: &Value<'_>, out: &mut Vec<u8>) {
    key.write_part(out);
    value.write_part(out);
}

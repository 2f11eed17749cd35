//! Short texts: names of one to 255 bytes, secrets of up to 255 bytes, texts with a long length.

use crate::codec::{DecodeError, Reader, Wire, write_text32};
use core::fmt;
use thiserror::Error;

/// Longest name in bytes: its length travels in one byte.
pub const NAME_BYTES_MAX: usize = 255;

/// A text that cannot be a name or secret because of its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{len} bytes do not fit: between {min} and 255 are allowed")]
pub struct NameLengthError {
    /// Length of the refused text in bytes.
    pub len: usize,
    /// Smallest length that is allowed.
    pub min: usize,
}

/// A name of 1 to 255 bytes of UTF-8, borrowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameRef<'a>(&'a str);

impl<'a> NameRef<'a> {
    /// Takes `text` as a name.
    ///
    /// # Errors
    /// When it is empty or longer than 255 bytes.
    pub const fn new(text: &'a str) -> Result<Self, NameLengthError> {
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(NameLengthError { len: text.len(), min: 1 });
        }
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// An owned copy.
    #[must_use]
    pub fn to_name(self) -> Name {
        Name(self.0.to_owned())
    }
}

impl<'a> Wire<'a> for NameRef<'a> {
    const BYTES_MIN: usize = 2;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let len = reader.u8("name length")?;
        if len == 0 {
            return Err(DecodeError::Value { what: "name length", value: 0 });
        }
        Ok(Self(reader.text("name", usize::from(len))?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_short(self.0, out);
    }
}

/// A name of 1 to 255 bytes of UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Takes `text` as a name.
    ///
    /// # Errors
    /// When it is empty or longer than 255 bytes.
    pub fn new(text: impl Into<String>) -> Result<Self, NameLengthError> {
        let text = text.into();
        NameRef::new(&text)?;
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, borrowed.
    #[must_use]
    pub fn as_name_ref(&self) -> NameRef<'_> {
        NameRef(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Wire<'_> for Name {
    const BYTES_MIN: usize = 2;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(NameRef::read(reader)?.to_name())
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_short(&self.0, out);
    }
}

/// A password or token of 0 to 255 bytes of UTF-8. Never shown by `Debug`; its rules (3 to 100
/// bytes for a password) are checked where it is used, so that the answer can name them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes `text` as a secret.
    ///
    /// # Errors
    /// When it is longer than 255 bytes.
    pub fn new(text: impl Into<String>) -> Result<Self, NameLengthError> {
        let text = text.into();
        if text.len() > NAME_BYTES_MAX {
            return Err(NameLengthError { len: text.len(), min: 0 });
        }
        Ok(Self(text))
    }

    /// The text, to be verified or sent, never logged.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Wire<'_> for Secret {
    const BYTES_MIN: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.u8("secret length")?;
        Ok(Self(reader.text("secret", usize::from(len))?.to_owned()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_short(&self.0, out);
    }
}

/// A text after a u32 length, possibly empty (`string32` of the protocol).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Text(pub String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Wire<'_> for Text {
    const BYTES_MIN: usize = 4;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(reader.text32("text")?.to_owned()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_text32(&self.0, out);
    }
}

fn write_short(text: &str, out: &mut Vec<u8>) {
    let len = u8::try_from(text.len()).expect("checked when the name or secret was made");
    out.push(len);
    out.extend_from_slice(text.as_bytes());
}

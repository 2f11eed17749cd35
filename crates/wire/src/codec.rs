//! How values become bytes and bytes become values.
//!
//! Invariants:
//! - decoding never panics, whatever the bytes;
//! - decoding never reserves more memory than the bytes at hand justify: a count is accepted only
//!   if that many elements of their smallest size could still follow ([`Reader::count`]), and the
//!   memory of an element is bounded by its smallest encoding ([`MEMORY_PER_BYTE_MAX`]);
//! - every decodable value encodes again; values that could not be encoded cannot be built.
//!
//! All integers are little-endian (wire protocol, section 5).

use borzoi_types::{
    ClientId, GroupId, Micros, Offset, Op, PartitionId, SessionId, StreamId, TopicId, UserId,
};
use thiserror::Error;

/// Memory that an element of a list may take for each byte of its smallest encoding. Checked when
/// this crate is compiled: it bounds what decoding can reserve by the length of the frame.
pub const MEMORY_PER_BYTE_MAX: usize = 16;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("{what}: {needed} bytes needed, {left} left")]
    Truncated {
        /// The field that was being read.
        what: &'static str,
        /// Bytes the field needs.
        needed: usize,
        /// Bytes that were left.
        left: usize,
    },
    /// A value outside of what its field allows.
    #[error("{what}: the value {value} is not allowed")]
    Value {
        /// The field.
        what: &'static str,
        /// The value found.
        value: u64,
    },
    /// Text that is not UTF-8.
    #[error("{what}: not UTF-8")]
    Text {
        /// The field.
        what: &'static str,
    },
    /// A count that the remaining bytes cannot hold.
    #[error("{what}: {count} elements cannot fit in the {left} bytes left")]
    Count {
        /// The list.
        what: &'static str,
        /// Elements announced.
        count: u64,
        /// Bytes that were left.
        left: usize,
    },
    /// A list, text or block above its limit.
    #[error("{what}: {len} is above the limit of {max}")]
    TooLarge {
        /// The list, text or block.
        what: &'static str,
        /// Its length (bytes or entries).
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A key that may occur once occurs twice.
    #[error("{what}: a key occurs twice")]
    Duplicate {
        /// The block.
        what: &'static str,
    },
    /// Bytes after the end of a value that must be exact.
    #[error("{what}: {left} bytes too many")]
    Trailing {
        /// The value.
        what: &'static str,
        /// Bytes that were left.
        left: usize,
    },
}

/// A position in bytes that are being decoded.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left.len()
    }

    /// Whether everything was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer are left.
    pub fn bytes(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.left.split_at_checked(len) {
            Some((taken, left)) => {
                self.left = left;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated { what, needed: len, left: self.left.len() }),
        }
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer are left.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        match self.left.split_first_chunk::<N>() {
            Some((taken, left)) => {
                self.left = left;
                Ok(*taken)
            }
            None => Err(DecodeError::Truncated { what, needed: N, left: self.left.len() }),
        }
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.left)
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    /// The next u16.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer bytes are left.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    /// The next u32.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer bytes are left.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// The next u64.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer bytes are left.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// The next u128.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer bytes are left.
    pub fn u128(&mut self, what: &'static str) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array(what)?))
    }

    /// A flag byte, 0 or 1.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] at the end, [`DecodeError::Value`] for any other byte.
    pub fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Value { what, value: u64::from(value) }),
        }
    }

    /// `len` bytes of UTF-8.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when fewer are left, [`DecodeError::Text`] when not UTF-8.
    pub fn text(&mut self, what: &'static str, len: usize) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.bytes(what, len)?).map_err(|_| DecodeError::Text { what })
    }

    /// A text after its u32 length (`string32` of the protocol).
    ///
    /// # Errors
    /// As [`Reader::text`].
    pub fn text32(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        let len = self.u32(what)?;
        self.text(what, usize_from(len))
    }

    /// Checks an announced count of elements of at least `bytes_min` bytes each against what is
    /// left, so that a caller may reserve that many.
    ///
    /// # Errors
    /// [`DecodeError::Count`] when they cannot fit.
    pub fn count(
        &self,
        what: &'static str,
        count: u32,
        bytes_min: usize,
    ) -> Result<usize, DecodeError> {
        let elements = usize_from(count);
        let fits = elements.checked_mul(bytes_min.max(1)).is_some_and(|all| all <= self.left.len());
        if fits {
            Ok(elements)
        } else {
            Err(DecodeError::Count { what, count: u64::from(count), left: self.left.len() })
        }
    }

    /// `count` values, one after the other.
    ///
    /// # Errors
    /// [`DecodeError::Count`] when they cannot fit, else the error of an element.
    pub fn list<T: Wire<'a>>(
        &mut self,
        what: &'static str,
        count: u32,
    ) -> Result<Vec<T>, DecodeError> {
        const { assert!(size_of::<T>() <= MEMORY_PER_BYTE_MAX * T::BYTES_MIN) };
        let elements = self.count(what, count, T::BYTES_MIN)?;
        let mut list = Vec::with_capacity(elements);
        for _ in 0..elements {
            list.push(T::read(self)?);
        }
        Ok(list)
    }

    /// Values, one after the other, up to the end of the bytes.
    ///
    /// # Errors
    /// The error of an element.
    pub fn list_to_end<T: Wire<'a>>(&mut self) -> Result<Vec<T>, DecodeError> {
        const { assert!(size_of::<T>() <= MEMORY_PER_BYTE_MAX * T::BYTES_MIN) };
        let mut list = Vec::new();
        while !self.is_empty() {
            list.push(T::read(self)?);
        }
        Ok(list)
    }
}

/// A value with one byte layout. `'a` is the life of borrowed parts.
pub trait Wire<'a>: Sized {
    /// Bytes of the smallest encoding.
    const BYTES_MIN: usize;

    /// Reads one value and leaves `reader` behind it.
    ///
    /// # Errors
    /// The first thing that is wrong with the bytes.
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Appends the encoding to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Decodes a value from the start of `bytes`. Bytes behind it are ignored, as section 9.1 asks
    /// of servers, so that later clients may append fields.
    ///
    /// # Errors
    /// The first thing that is wrong with the bytes.
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::read(&mut Reader::new(bytes))
    }

    /// Decodes a value that must fill `bytes`.
    ///
    /// # Errors
    /// As [`Wire::decode`], and [`DecodeError::Trailing`] when bytes are left.
    fn decode_exact(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::read(&mut reader)?;
        if reader.is_empty() {
            Ok(value)
        } else {
            Err(DecodeError::Trailing { what: "body", left: reader.left() })
        }
    }

    /// The encoding on its own.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

macro_rules! integers {
    ($($inner:ident),+) => {$(
        impl Wire<'_> for $inner {
            const BYTES_MIN: usize = size_of::<$inner>();
            fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($inner::from_le_bytes(reader.array(stringify!($inner))?))
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}
integers!(u8, u16, u32, u64, u128, f32);

impl Wire<'_> for bool {
    const BYTES_MIN: usize = 1;
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.flag("flag")
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

/// Gives a newtype the encoding of the number in it.
macro_rules! number_newtypes {
    ($($name:ident($inner:ident)),+ $(,)?) => {$(
        impl $crate::codec::Wire<'_> for $name {
            const BYTES_MIN: usize = size_of::<$inner>();
            fn read(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self($inner::from_le_bytes(reader.array(stringify!($name))?)))
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0.to_le_bytes());
            }
        }
    )+};
}
pub(crate) use number_newtypes;

number_newtypes!(
    ClientId(u128),
    SessionId(u64),
    Op(u64),
    Offset(u64),
    Micros(u64),
    StreamId(u32),
    TopicId(u32),
    PartitionId(u32),
    UserId(u32),
    GroupId(u32),
);

/// A list after its u32 count.
impl<'a, T: Wire<'a>> Wire<'a> for Vec<T> {
    const BYTES_MIN: usize = 4;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = reader.u32("count")?;
        reader.list("list", count)
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_list32(self, out);
    }
}

/// A value that is absent when the body ends before it: how "no such object" is answered.
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    const BYTES_MIN: usize = 0;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if reader.is_empty() { Ok(None) } else { T::read(reader).map(Some) }
    }
    fn write(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.write(out);
        }
    }
}

/// A list up to the end of the body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ToEnd<T>(pub Vec<T>);

impl<'a, T: Wire<'a>> Wire<'a> for ToEnd<T> {
    const BYTES_MIN: usize = 0;
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.list_to_end().map(Self)
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_list(&self.0, out);
    }
}

/// A body of no bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Empty;

impl Wire<'_> for Empty {
    const BYTES_MIN: usize = 0;
    fn read(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
    fn write(&self, _: &mut Vec<u8>) {}
}

/// Declares a plain type whose layout is its fields in order. With a lifetime, it borrows.
macro_rules! wire_record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty, )+
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )+
        }

        impl<'a> $crate::codec::Wire<'a> for $name {
            $crate::codec::wire_fields!($( $field: $type, )+);
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident<'a> {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty, )+
        }
    ) => {
        $(#[$meta])*
        pub struct $name<'a> {
            $( $(#[$field_meta])* pub $field: $type, )+
        }

        impl<'a> $crate::codec::Wire<'a> for $name<'a> {
            $crate::codec::wire_fields!($( $field: $type, )+);
        }
    };
}
pub(crate) use wire_record;

/// The inside of an implementation of [`Wire`] for fields in order.
macro_rules! wire_fields {
    ($( $field:ident: $type:ty, )+) => {
        const BYTES_MIN: usize = 0 $( + <$type as $crate::codec::Wire<'a>>::BYTES_MIN )+;
        fn read(
            reader: &mut $crate::codec::Reader<'a>,
        ) -> Result<Self, $crate::codec::DecodeError> {
            Ok(Self { $( $field: $crate::codec::Wire::read(reader)?, )+ })
        }
        fn write(&self, out: &mut Vec<u8>) {
            $( $crate::codec::Wire::write(&self.$field, out); )+
        }
    };
}
pub(crate) use wire_fields;

/// Declares an enumeration of stable one-byte values.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident($what:literal) {
            $( $(#[$variant_meta:meta])* $variant:ident = $value:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant = $value, )+
        }

        impl $name {
            /// Every value, in rising order of its byte.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            /// The value stored under `byte`, if it is one.
            #[must_use]
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $( $value => Some(Self::$variant), )+
                    _ => None,
                }
            }
        }

        impl $crate::codec::Wire<'_> for $name {
            const BYTES_MIN: usize = 1;
            fn read(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let byte = reader.u8($what)?;
                Self::from_byte(byte).ok_or($crate::codec::DecodeError::Value {
                    what: $what,
                    value: u64::from(byte),
                })
            }
            fn write(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
        }
    };
}
pub(crate) use wire_enum;

/// Appends a text after its u32 length. Panics above 4 GiB, far beyond any frame.
pub(crate) fn write_text32(text: &str, out: &mut Vec<u8>) {
    let len = u32::try_from(text.len()).expect("a text is shorter than a frame, so below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Appends a list after its u32 count. Panics above 2^32 elements, far beyond any frame.
pub(crate) fn write_list32<'a, T: Wire<'a>>(list: &[T], out: &mut Vec<u8>) {
    let count = u32::try_from(list.len()).expect("a list is shorter than a frame, so below 2^32");
    out.extend_from_slice(&count.to_le_bytes());
    write_list(list, out);
}

/// Appends the elements of a list.
pub(crate) fn write_list<'a, T: Wire<'a>>(list: &[T], out: &mut Vec<u8>) {
    for element in list {
        element.write(out);
    }
}

/// A u32 as a length. Lossless: the project targets 64-bit machines.
pub(crate) const fn usize_from(value: u32) -> usize {
    const { assert!(size_of::<usize>() >= size_of::<u32>()) };
    value as usize
}

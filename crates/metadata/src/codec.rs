//! The log form of the metadata types: little-endian, counted, self-checking.
//!
//! The form is Borzoi's own and versioned where it is framed (`command`, `snapshot`), so a change
//! of the client protocol never changes what an old log means.
//!
//! Invariants:
//! - decoding never panics and never reserves more than the bytes at hand justify;
//! - equal values have equal bytes: maps and sets are written in key order and read back only if
//!   their keys rise strictly.

use borzoi_types::{
    ClientId, GroupId, LogId, Micros, Op, PartitionId, PartitionKey, ReplicaId, RequestNumber,
    SessionId, StreamId, TopicId, UserId,
};
use borzoi_wire::{Identifier, Name};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Why bytes are not a command or a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("the bytes end inside {what}")]
    Truncated {
        /// What was being read.
        what: &'static str,
    },
    /// A field holds a value outside of what it may hold.
    #[error("{what} holds {value}, which is not allowed")]
    Value {
        /// What was being read.
        what: &'static str,
        /// What was found; a length, a discriminant or the number itself.
        value: u64,
    },
    /// Bytes are left after the last field.
    #[error("{left} bytes are left after the end")]
    Trailing {
        /// How many.
        left: usize,
    },
    /// The keys of a map or set do not rise.
    #[error("the keys of {what} do not rise")]
    Unordered {
        /// What was being read.
        what: &'static str,
    },
    /// Parts of a snapshot contradict each other.
    #[error("the parts contradict each other: {what}")]
    Inconsistent {
        /// The rule that is broken.
        what: &'static str,
    },
}

/// A position in bytes that are being decoded.
pub struct Input<'a> {
    left: &'a [u8],
}

impl<'a> Input<'a> {
    /// Starts at the beginning of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Takes the next `len` bytes.
    pub fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, left) =
            self.left.split_at_checked(len).ok_or(DecodeError::Truncated { what })?;
        self.left = left;
        Ok(taken)
    }

    /// Takes the next `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, left) =
            self.left.split_first_chunk::<N>().ok_or(DecodeError::Truncated { what })?;
        self.left = left;
        Ok(*taken)
    }

    /// Bytes not read yet.
    pub const fn left(&self) -> usize {
        self.left.len()
    }

    /// Succeeds only at the end.
    pub const fn end(&self) -> Result<(), DecodeError> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing { left: self.left.len() })
        }
    }
}

/// A value with one log form.
pub trait Codec: Sized {
    /// Appends the log form to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads one value and leaves `input` behind it.
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError>;
}

macro_rules! integers {
    ($($name:ident),+) => {$(
        impl Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
                Ok($name::from_le_bytes(input.array(stringify!($name))?))
            }
        }
    )+};
}
integers!(u8, u16, u32, u64, u128);

/// Gives a newtype the log form of the number in it.
macro_rules! codec_number {
    ($($name:ident),+ $(,)?) => {$(
        impl $crate::codec::Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $crate::codec::Codec::put(&self.0, out);
            }
            fn get(
                input: &mut $crate::codec::Input<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self($crate::codec::Codec::get(input)?))
            }
        }
    )+};
}
pub(crate) use codec_number;

codec_number!(
    ClientId,
    GroupId,
    LogId,
    Micros,
    Op,
    PartitionId,
    PartitionKey,
    ReplicaId,
    RequestNumber,
    SessionId,
    StreamId,
    TopicId,
    UserId
);

/// Gives a struct the log form of its fields in the order listed.
macro_rules! codec_struct {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::codec::Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::codec::Codec::put(&self.$field, out); )+
            }
            fn get(
                input: &mut $crate::codec::Input<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $( let $field = $crate::codec::Codec::get(input)?; )+
                Ok(Self { $($field),+ })
            }
        }
    };
}
pub(crate) use codec_struct;

/// Gives an enum a log form: one stable byte, then the fields of the variant in the order listed.
macro_rules! codec_enum {
    ($name:ident {
        $( $byte:literal => $variant:ident
            $( { $($field:ident),+ } )? $( ( $inner:ident ) )? ),+ $(,)?
    }) => {
        impl $crate::codec::Codec for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant $( { $($field),+ } )? $( ( $inner ) )? => {
                        out.push($byte);
                        $( $( $crate::codec::Codec::put($field, out); )+ )?
                        $( $crate::codec::Codec::put($inner, out); )?
                    } )+
                }
            }
            fn get(
                input: &mut $crate::codec::Input<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Codec>::get(input)? {
                    $( $byte => {
                        $( $( let $field = $crate::codec::Codec::get(input)?; )+ )?
                        $( let $inner = $crate::codec::Codec::get(input)?; )?
                        Ok(Self::$variant $( { $($field),+ } )? $( ( $inner ) )?)
                    } )+
                    other => Err($crate::codec::DecodeError::Value {
                        what: stringify!($name),
                        value: u64::from(other),
                    }),
                }
            }
        }
    };
}
pub(crate) use codec_enum;

impl Codec for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        match u8::get(input)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Value { what: "flag", value: u64::from(other) }),
        }
    }
}

impl<const N: usize> Codec for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        input.array("bytes")
    }
}

/// A count or length as it is written. Panics above 2^32, which nothing in a log reaches.
fn put_count(count: usize, out: &mut Vec<u8>) {
    u32::try_from(count).expect("an operation and a table hold fewer than 2^32 entries").put(out);
}

/// A count of elements of at least one byte each: no more than bytes are left.
fn get_count(input: &mut Input<'_>, what: &'static str) -> Result<usize, DecodeError> {
    let count = u32::get(input)?;
    match usize::try_from(count) {
        Ok(count) if count <= input.left() => Ok(count),
        _ => Err(DecodeError::Value { what, value: u64::from(count) }),
    }
}

impl Codec for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let len = get_count(input, "text length")?;
        let bytes = input.take(len, "text")?;
        let text = core::str::from_utf8(bytes);
        let bad = |_| DecodeError::Value { what: "text that is not UTF-8", value: len as u64 };
        Ok(text.map_err(bad)?.to_owned())
    }
}

impl<T: Codec> Codec for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::get(input)? { Some(T::get(input)?) } else { None })
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for value in self {
            value.put(out);
        }
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let count = get_count(input, "list length")?;
        // Grows as elements prove to be there: an element may be larger in memory than encoded.
        let mut list = Self::new();
        for _ in 0..count {
            list.push(T::get(input)?);
        }
        Ok(list)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok((A::get(input)?, B::get(input)?))
    }
}

impl<K: Codec + Ord, V: Codec> Codec for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let count = get_count(input, "map length")?;
        let mut map = Self::new();
        for _ in 0..count {
            let key = K::get(input)?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(DecodeError::Unordered { what: "map" });
            }
            let value = V::get(input)?;
            map.insert(key, value);
        }
        Ok(map)
    }
}

impl<T: Codec + Ord> Codec for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for value in self {
            value.put(out);
        }
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let count = get_count(input, "set length")?;
        let mut set = Self::new();
        for _ in 0..count {
            let value = T::get(input)?;
            if set.last().is_some_and(|last| *last >= value) {
                return Err(DecodeError::Unordered { what: "set" });
            }
            set.insert(value);
        }
        Ok(set)
    }
}

impl Codec for Name {
    fn put(&self, out: &mut Vec<u8>) {
        let len = u8::try_from(self.as_str().len()).expect("a name has at most 255 bytes");
        out.push(len);
        out.extend_from_slice(self.as_str().as_bytes());
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let len = u8::get(input)?;
        let bytes = input.take(usize::from(len), "name")?;
        let bad = DecodeError::Value { what: "name", value: u64::from(len) };
        let text = core::str::from_utf8(bytes).map_err(|_| bad)?;
        Self::new(text).map_err(|_| bad)
    }
}

impl Codec for Identifier {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Numeric(number) => {
                out.push(1);
                number.put(out);
            }
            Self::Name(name) => {
                out.push(2);
                name.put(out);
            }
        }
    }
    fn get(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        match u8::get(input)? {
            1 => Ok(Self::Numeric(u32::get(input)?)),
            2 => Ok(Self::Name(Name::get(input)?)),
            other => Err(DecodeError::Value { what: "identifier", value: u64::from(other) }),
        }
    }
}

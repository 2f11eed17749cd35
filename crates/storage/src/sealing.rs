//! Encryption of batches at rest: AES-256-GCM over the frames, once, when a batch is stamped.
//!
//! The primary seals a batch after its offsets are minted and before it enters the log, so every
//! replica stores the same bytes: in the journal, in segments, in the tails of checkpoints. A read
//! opens it; nothing else looks inside.
//!
//! ```text
//! batch key = BLAKE2s-256(keyed with the master key; "borzoi batch key", key number,
//!             partition key, first 52 bytes of the stamped header)
//! nonce     = key number (4 bytes), base offset (8 bytes)
//! vouched   = first 52 bytes of the stamped header (partition, offset, times, length, checksum,
//!             count)
//! ```
//!
//! Why no key and nonce are ever used for two texts: a partition key is never reused and an offset
//! is handed out once, so two *confirmed* batches differ in partition key or base offset. A batch
//! that was prepared and lost before it was confirmed (a torn journal tail, a view change) may have
//! its offset minted again. Its bytes may still lie on the disk. Therefore the batch key depends on
//! the whole stamped header: the time of appending, which rises within a log, and the checksum over
//! the frames. Two batches with equal headers have, but for a collision of 64 bits at one and the
//! same microsecond, equal frames, and encrypting the same text twice tells nothing.
//!
//! Invariants: sealing changes no length and no stamped field; what was opened is what was sealed,
//! or it is an error; master keys are never shown.

use aes_gcm::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use blake2::Blake2sMac256;
use blake2::digest::Mac as _;
use borzoi_types::PartitionKey;
use borzoi_wire::batch::{BATCH_HEADER_BYTES, SEALED_HEADER_BYTES, Seal};
use bytes::{Bytes, BytesMut};
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a master key.
pub const MASTER_KEY_BYTES: usize = 32;

/// Bytes of the value by which a master key is recognised without showing it.
pub const KEY_CHECK_BYTES: usize = 16;

/// Why a sealed batch cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The key is not configured.
    #[error("encrypted with key {key}, which is not configured")]
    MissingKey {
        /// Its number.
        key: u32,
    },
    /// The configured key is another one, or the bytes are not what was written.
    #[error("encrypted with another key {key} than the configured one, or changed since")]
    Mismatch {
        /// Its number.
        key: u32,
    },
}

struct Keys {
    by_number: BTreeMap<u32, [u8; MASTER_KEY_BYTES]>,
    active: Option<u32>,
}

/// The master keys of a node. Cheap to clone; without keys it costs nothing.
#[derive(Clone, Default)]
pub struct Keyring(Option<Arc<Keys>>);

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.as_deref();
        f.debug_struct("Keyring")
            .field("numbers", &keys.map(|keys| keys.by_number.keys().collect::<Vec<_>>()))
            .field("active", &self.active())
            .finish()
    }
}

impl Keyring {
    /// Keys by number; new batches are sealed with `active`, or stay plain without one.
    ///
    /// # Panics
    /// When `active` is not among the keys, or a number is 0.
    #[must_use]
    pub fn new(by_number: BTreeMap<u32, [u8; MASTER_KEY_BYTES]>, active: Option<u32>) -> Self {
        assert!(!by_number.contains_key(&0), "key number 0 means that there is none");
        assert!(active.is_none_or(|number| by_number.contains_key(&number)), "an unknown key");
        if by_number.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(Keys { by_number, active })))
    }

    /// Number of the key that new batches are sealed with.
    #[must_use]
    pub fn active(&self) -> Option<u32> {
        let keys = self.0.as_ref()?;
        assert!(keys.active.is_none_or(|number| keys.by_number.contains_key(&number)));
        keys.active
    }

    /// A value that tells one master key from another and says nothing else about it.
    #[must_use]
    pub fn check_value(&self, number: u32) -> Option<[u8; KEY_CHECK_BYTES]> {
        let mut mac = self.mac(number)?;
        assert!(number != 0, "there is no key number 0");
        mac.update(b"borzoi key check");
        let full: [u8; 32] = mac.finalize().into_bytes().into();
        assert!(full.len() > KEY_CHECK_BYTES, "half of it is enough to tell keys apart");
        full.first_chunk().copied()
    }

    /// Encrypts the frames of a stamped batch in place, if a key is active.
    pub fn seal(&self, partition: PartitionKey, batch: &mut BytesMut) {
        let Some(key) = self.active() else { return };
        assert!(batch.len() >= BATCH_HEADER_BYTES, "a stamped batch has a header");
        assert_eq!(Seal::read(batch), Ok(None), "a batch is sealed once");
        let (header, frames) = batch.split_at_mut(BATCH_HEADER_BYTES);
        let vouched = &header[..SEALED_HEADER_BYTES];
        let cipher = self.batch_cipher(key, partition, vouched).expect("an active key is there");
        let sealed = cipher.encrypt_inout_detached(&nonce(key, vouched), vouched, frames.into());
        let tag = sealed.expect("a batch is far shorter than the cipher allows");
        Seal { key, tag: tag.into() }.write(header);
        assert!(matches!(Seal::read(batch), Ok(Some(seal)) if seal.key == key));
    }

    /// The plain form of a sealed batch: what was stamped.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// When the batch is not sealed.
    pub fn open(&self, partition: PartitionKey, batch: &[u8]) -> Result<Bytes, OpenError> {
        let seal = Seal::read(batch).ok().flatten().expect("the caller has seen the seal");
        assert!(batch.len() >= BATCH_HEADER_BYTES && seal.key != 0, "a seal stands in a header");
        let vouched = &batch[..SEALED_HEADER_BYTES];
        let Some(cipher) = self.batch_cipher(seal.key, partition, vouched) else {
            return Err(OpenError::MissingKey { key: seal.key });
        };
        let mut plain = batch.to_vec();
        let (header, frames) = plain.split_at_mut(BATCH_HEADER_BYTES);
        Seal::clear(header);
        let (nonce, tag) = (nonce(seal.key, vouched), Tag::from(seal.tag));
        cipher
            .decrypt_inout_detached(&nonce, vouched, frames.into(), &tag)
            .map_err(|_| OpenError::Mismatch { key: seal.key })?;
        assert!(plain.len() == batch.len() && plain[..SEALED_HEADER_BYTES] == *vouched);
        assert!(Seal::read(&plain) == Ok(None), "what was opened is plain");
        Ok(Bytes::from(plain))
    }

    fn mac(&self, number: u32) -> Option<Blake2sMac256> {
        let master = self.0.as_ref()?.by_number.get(&number)?;
        Some(<Blake2sMac256 as blake2::digest::KeyInit>::new(&(*master).into()))
    }

    fn batch_cipher(
        &self,
        number: u32,
        partition: PartitionKey,
        vouched: &[u8],
    ) -> Option<Aes256Gcm> {
        assert_eq!(vouched.len(), SEALED_HEADER_BYTES, "a key belongs to one stamped header");
        let mut mac = self.mac(number)?;
        mac.update(b"borzoi batch key");
        mac.update(&number.to_le_bytes());
        mac.update(&partition.0.to_le_bytes());
        mac.update(vouched);
        let key: [u8; 32] = mac.finalize().into_bytes().into();
        Some(Aes256Gcm::new(&key.into()))
    }
}

fn nonce(number: u32, vouched: &[u8]) -> Nonce<aes_gcm::aead::consts::U12> {
    assert!(number != 0 && vouched.len() == SEALED_HEADER_BYTES);
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&number.to_le_bytes());
    // The base offset of the header.
    nonce[4..].copy_from_slice(&vouched[8..16]);
    nonce.into()
}

/// Opens the batches of one partition as they are read.
#[derive(Clone, Debug, Default)]
pub struct Opener {
    keys: Keyring,
    partition: PartitionKey,
}

impl Opener {
    /// For the batches of `partition`.
    #[must_use]
    pub fn new(keys: Keyring, partition: PartitionKey) -> Self {
        Self { keys, partition }
    }

    /// See [`Keyring::open`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&self, batch: &[u8]) -> Result<Bytes, OpenError> {
        self.keys.open(self.partition, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use borzoi_types::{Micros, Offset, PartitionId};
    use borzoi_wire::batch::{MessageId, NewMessage, encode_batch, stamp, verify_stored};

    const PARTITION: PartitionKey = PartitionKey(9);

    fn ring(active: Option<u32>) -> Keyring {
        Keyring::new(BTreeMap::from([(1, [1; 32]), (2, [2; 32])]), active)
    }

    fn stamped(payload: &[u8], offset: u64) -> BytesMut {
        let (id, origin_timestamp) = (MessageId(5), Micros(7));
        let message = NewMessage { id, origin_timestamp, payload, user_headers: b"" };
        let mut batch = Vec::new();
        encode_batch(&[message], &mut batch).unwrap();
        let mut batch = BytesMut::from(&batch[..]);
        stamp(&mut batch, PartitionId(3), Offset(offset), Micros(1_000)).unwrap();
        batch
    }

    #[test]
    fn what_is_sealed_opens_to_the_same_bytes_and_shows_nothing_of_its_messages() {
        let plain = stamped(b"attack at dawn", 41);
        let mut sealed = plain.clone();
        ring(Some(2)).seal(PARTITION, &mut sealed);
        assert_eq!(sealed.len(), plain.len());
        assert!(!sealed.windows(6).any(|window| window == b"attack"));
        assert_eq!(ring(None).open(PARTITION, &sealed).unwrap(), plain);
        assert!(verify_stored(&ring(Some(1)).open(PARTITION, &sealed).unwrap()).is_ok());
        let mut untouched = plain.clone();
        ring(None).seal(PARTITION, &mut untouched);
        Keyring::default().seal(PARTITION, &mut untouched);
        assert_eq!(untouched, plain);
    }

    #[test]
    fn a_missing_key_another_key_another_partition_and_every_changed_byte_are_noticed() {
        let mut sealed = stamped(b"attack at dawn", 41);
        ring(Some(2)).seal(PARTITION, &mut sealed);
        let missing = Keyring::default().open(PARTITION, &sealed);
        assert_eq!(missing, Err(OpenError::MissingKey { key: 2 }));
        let other = Keyring::new(BTreeMap::from([(2, [9; 32])]), None);
        assert_eq!(other.open(PARTITION, &sealed), Err(OpenError::Mismatch { key: 2 }));
        let moved = ring(None).open(PartitionKey(10), &sealed);
        assert_eq!(moved, Err(OpenError::Mismatch { key: 2 }));
        let stamped_bytes = 0..SEALED_HEADER_BYTES;
        for at in stamped_bytes.chain(56..72).chain(BATCH_HEADER_BYTES..sealed.len()) {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let opened = ring(None).open(PARTITION, &changed);
            assert_eq!(opened, Err(OpenError::Mismatch { key: 2 }), "byte {at}");
        }
    }

    #[test]
    fn an_offset_that_is_minted_again_for_other_messages_gets_another_key() {
        let seal = |payload: &[u8], offset| {
            let mut batch = stamped(payload, offset);
            ring(Some(1)).seal(PARTITION, &mut batch);
            batch.split_off(BATCH_HEADER_BYTES)
        };
        let (first, second) = (seal(b"aaaaaaaa", 5), seal(b"aaaaaaab", 5));
        let stream = |sealed: &[u8], payload: &[u8]| -> Vec<u8> {
            sealed[48..].iter().zip(payload).map(|(sealed, plain)| sealed ^ plain).collect()
        };
        assert_ne!(stream(&first, b"aaaaaaaa"), stream(&second, b"aaaaaaab"));
        assert_ne!(seal(b"aaaaaaaa", 6), first);
        assert_eq!(seal(b"aaaaaaaa", 5), first, "replicas that seal alike store alike");
    }

    /// The sealed form of one batch, written down when the format was made: it must never change.
    #[test]
    fn the_format_is_the_one_that_was_written_down() {
        let mut sealed = stamped(b"golden", 41);
        ring(Some(2)).seal(PARTITION, &mut sealed);
        let hex: String = sealed[52..].iter().map(|byte| format!("{byte:02x}")).collect();
        let frames = &hex[(BATCH_HEADER_BYTES - 52) * 2..];
        assert_eq!(&hex[..8], "02000000");
        assert_eq!((&hex[8..40], frames), GOLDEN);
        let check = ring(None).check_value(1).unwrap();
        assert_eq!(check, GOLDEN_CHECK);
    }

    const GOLDEN: (&str, &str) = (
        "1b7f2cd48539a28fd29f32eafcdc3392",
        "2f12e1a362a98fca01b35c105ac10e3f39ba9a6148a3d9d6c729e3e45a7b0ae46df9575a\
         014bc5862a027396467b38ccfdf46d95d14c",
    );
    const GOLDEN_CHECK: [u8; KEY_CHECK_BYTES] =
        [6, 177, 95, 3, 225, 162, 172, 221, 4, 5, 244, 97, 31, 124, 12, 24];
}

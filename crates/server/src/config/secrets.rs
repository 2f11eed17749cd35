//! Values that are secret. Nothing here shows them.

use std::collections::BTreeMap;
use std::fmt;

/// Bytes of an encryption key.
pub const ENCRYPTION_KEY_BYTES: usize = 32;

/// Encryption keys by number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EncryptionKeys(pub BTreeMap<u32, [u8; ENCRYPTION_KEY_BYTES]>);

impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl EncryptionKeys {
    /// Keys as `1:<base64>, 2:<base64>`, or one alone without a number. None if that is not what
    /// `text` says.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if !text.is_empty() && !text.contains([':', ',']) {
            return Some(Self(BTreeMap::from([(1, key(text)?)])));
        }
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Self::default().with(entries)
    }

    /// These and the keys of a file, one in a line; `#` begins a comment.
    #[must_use]
    pub fn with_file(&self, text: &str) -> Option<Self> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        self.clone().with(lines.filter(|line| !line.is_empty()))
    }

    fn with<'a>(mut self, entries: impl Iterator<Item = &'a str>) -> Option<Self> {
        for entry in entries {
            let (number, secret) = entry.split_once(':')?;
            let number: u32 = number.trim().parse().ok().filter(|number| *number > 0)?;
            if self.0.insert(number, key(secret.trim())?).is_some() {
                return None;
            }
        }
        Some(self)
    }
}

fn key(text: &str) -> Option<[u8; ENCRYPTION_KEY_BYTES]> {
    base64(text)?.try_into().ok()
}

/// Bytes from base64 with the usual alphabet, padded or not.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut pending) = (0_u32, 0_u32);
    for character in digits.bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        pending += 6;
        if pending >= 8 {
            pending -= 8;
            bytes.push((bits >> pending) as u8);
            bits &= (1 << pending) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEROS: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const ONES: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn keys_are_read_with_and_without_numbers_and_a_file_adds_to_them() {
        let keys = EncryptionKeys::parse(ZEROS).unwrap();
        assert_eq!(keys.0, BTreeMap::from([(1, [0; 32])]));
        let keys = EncryptionKeys::parse(&format!("7:{ZEROS}, 2:{ONES}")).unwrap();
        assert_eq!(keys.0, BTreeMap::from([(2, [1; 32]), (7, [0; 32])]));
        let more = keys.with_file(&format!("# old\n\n9:{ONES} # spare\n")).unwrap();
        assert_eq!(more.0.len(), 3);
        assert_eq!(EncryptionKeys::parse("").unwrap(), EncryptionKeys::default());
        assert!(keys.with_file(&format!("7:{ONES}")).is_none(), "a number stands once");
        let half = "AAAA";
        for bad in [half, "1:", &format!("0:{ONES}"), &format!("1:{ONES},1:{ONES}"), "1:*"] {
            assert!(EncryptionKeys::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{more:?}"), "{2, 7, 9}", "numbers only");
    }

    #[test]
    fn base64_gives_the_bytes_of_the_usual_examples() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8", "fo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(base64(text).unwrap(), bytes.as_bytes());
        }
        for bad in ["Z", "Zg===", "Zh==", "Z-g="] {
            assert!(base64(bad).is_none(), "{bad}");
        }
    }
}

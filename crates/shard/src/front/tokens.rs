//! Personal access tokens: made here, hashed before they go anywhere.

use super::login::token_hash;
use super::request::{Caller, Step};
use super::{Cx, Front};
use borzoi_metadata::Change;
use borzoi_types::Micros;
use borzoi_wire::Secret;
use borzoi_wire::body::CreatePersonalAccessToken;

/// Random bytes of a token: 50, as published clients and their users know them, far more than the
/// 256 bits that security asks for.
const TOKEN_BYTES: usize = 50;

/// Base64 with the standard alphabet and padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|place| chunk.get(place).copied().unwrap_or(0));
        let group = u32::from_be_bytes([0, a, b, c]);
        for place in 0..4 {
            if place > chunk.len() {
                text.push('=');
            } else {
                let index = (group >> (18 - 6 * place)) & 0x3f;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

impl Front {
    pub(super) fn create_token(
        &mut self,
        caller: &Caller,
        request: CreatePersonalAccessToken,
        cx: &mut Cx<'_>,
    ) -> Step {
        let mut bytes = [0; TOKEN_BYTES];
        self.random.fill(&mut bytes);
        let token = base64(&bytes);
        let expires =
            request.lifetime.micros().map(|span| Micros(cx.now.wall.0.saturating_add(span)));
        let change = Change::CreateToken {
            name: request.name,
            hash: token_hash(&token),
            expires,
            tokens_max: self.options.tokens_per_user_max,
        };
        let token = Secret::new(token).expect("68 characters are a secret");
        self.change_with_token(caller, change, Some(token), cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_published_vectors() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xff; TOKEN_BYTES]).len(), 68);
    }
}

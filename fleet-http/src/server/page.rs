//! Page tokens: which page of which listing comes next. Pure.
//!
//! A token is the URL-safe base64 of version 1's four bytes (page size and page number, 16 bits
//! each, little endian) and of sixteen more that version 1 passes over: the true page number and
//! the revision that the listing shows, 64 bits each. So old clients and servers understand the
//! front of it, no collection is too large, and all pages of a listing can show one revision. What
//! the next page begins with comes last: who knows it need not walk over all pages before.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use fleet_core::Revision;

/// A place in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// How many items a page has.
    pub(crate) limit: u16,
    /// Which page, counted from one.
    pub(crate) page: u64,
    /// What the listing shows; `None` in a token without the additional bytes.
    pub(crate) revision: Option<Revision>,
    /// What the page begins with, in the words of that listing, where it is known. Without a
    /// revision it is not told.
    pub(crate) first: Option<String>,
}

/// Why a text is not a token of this server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("invalid value of nextPageToken query parameter")]
    Encoding,
    #[error("invalid value of nextPageToken query parameter: it is cut off")]
    Short,
    #[error("token limit must be {expected}")]
    Limit { expected: u16 },
    #[error("token page must be greater than zero")]
    Page,
}

const OLD_BYTES: usize = 4;

impl Token {
    /// The token as clients see it.
    pub(crate) fn encode(self) -> String {
        let shown = u16::try_from(self.page).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(OLD_BYTES + 16);
        bytes.extend(self.limit.to_le_bytes());
        bytes.extend(shown.to_le_bytes());
        if let Some(revision) = self.revision {
            bytes.extend(self.page.to_le_bytes());
            bytes.extend(revision.0.to_le_bytes());
            bytes.extend(self.first.iter().flat_map(|first| first.bytes()));
        }
        URL_SAFE.encode(bytes)
    }

    /// Reads what [`encode`](Self::encode) wrote on a server whose pages have `limit` items.
    pub(crate) fn decode(text: &str, limit: u16) -> Result<Self, TokenError> {
        let bytes = URL_SAFE.decode(text).map_err(|_| TokenError::Encoding)?;
        let Some((&[l0, l1, p0, p1], added)) = bytes.split_first_chunk() else {
            return Err(TokenError::Short);
        };
        if u16::from_le_bytes([l0, l1]) != limit {
            return Err(TokenError::Limit { expected: limit });
        }
        let (page, rest) = match added.split_first_chunk() {
            Some((&page, rest)) => (u64::from_le_bytes(page), rest.split_first_chunk()),
            None => (u64::from(u16::from_le_bytes([p0, p1])), None),
        };
        if page == 0 {
            return Err(TokenError::Page);
        }
        let revision = rest.map(|(bytes, _)| Revision(u64::from_le_bytes(*bytes)));
        let first = rest.and_then(|(_, first)| str::from_utf8(first).ok());
        let first = first.filter(|first| !first.is_empty()).map(str::to_owned);
        Ok(Self { limit, page, revision, first })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_of_version_1_are_read_and_written() {
        for (text, limit, page) in
            [("ZAACAA==", 100, 2), ("AgACAA==", 2, 2), ("ZAD__w==", 100, 65535)]
        {
            let token = Token { limit, page, revision: None, first: None };
            assert_eq!(Token::decode(text, limit), Ok(token.clone()));
            assert_eq!(token.encode(), text);
        }
        // Bytes that were appended by someone else are passed over, as they always were.
        let token = Token { limit: 100, page: 2, revision: None, first: None };
        assert_eq!(Token::decode("ZAACAAcH", 100), Ok(token));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let cases = [
            ("", TokenError::Short),
            ("ZAAC", TokenError::Short),
            ("!", TokenError::Encoding),
            ("ZAACAA", TokenError::Encoding),
            ("AgACAA==", TokenError::Limit { expected: 100 }),
            ("ZAAAAA==", TokenError::Page),
        ];
        for (text, expected) in cases {
            assert_eq!(Token::decode(text, 100), Err(expected), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_token_comes_back_as_it_was(
            limit: u16,
            page in 1..=u64::MAX,
            revision: u64,
            first in proptest::option::of("[a-z]{1,20}\\.service"),
        ) {
            let token = Token { limit, page, revision: Some(Revision(revision)), first };
            let text = token.clone().encode();
            prop_assert_eq!(Token::decode(&text, limit), Ok(token));
            // What an old client would make of it is a page, never page zero.
            let old = URL_SAFE.decode(text).unwrap();
            prop_assert!(old[2] > 0 || old[3] > 0);
        }

        #[test]
        fn reading_never_panics(text in "\\PC*", limit: u16) {
            let _token = Token::decode(&text, limit);
        }
    }
}

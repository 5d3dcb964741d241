//! Tokens of list pages. Pure: no I/O, no clock.
//!
//! A token is URL-safe base64 of these fields, all little endian:
//! - four bytes as in version 1: page size and page number, 16 bits each
//! - sixteen bytes that version 1 ignores: the full page number and the list's revision, 64 bits
//!   each
//! - a reference to the page's first item, so that the server finds the page without iterating over
//!   the preceding pages
//!
//! Clients and servers of version 1 understand the first four bytes. The other fields allow more
//! pages than 16 bits can count, and let all pages of a list show one revision.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use fleet_core::Revision;

/// Position in a paginated list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageToken {
    /// Page size.
    pub(crate) limit: u16,
    /// Page number, counted from one.
    pub(crate) page: u64,
    /// Revision of the list; `None` in a token of version 1.
    pub(crate) revision: Option<Revision>,
    /// Reference to the page's first item, in a format that the list defines. Encoded only if
    /// `revision` is set.
    pub(crate) first: Option<String>,
}

/// Error of an invalid page token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageTokenError {
    #[error("invalid value of nextPageToken query parameter")]
    Encoding,
    #[error("invalid value of nextPageToken query parameter: it is incomplete")]
    Short,
    #[error("token limit must be {expected}")]
    Limit { expected: u16 },
    #[error("token page must be greater than zero")]
    Page,
}

const OLD_BYTES: usize = 4;

impl PageToken {
    /// Encodes the token.
    pub(crate) fn encode(self) -> String {
        let number = u16::try_from(self.page).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(OLD_BYTES + 16);
        bytes.extend(self.limit.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        if let Some(revision) = self.revision {
            bytes.extend(self.page.to_le_bytes());
            bytes.extend(revision.0.to_le_bytes());
            bytes.extend(self.first.iter().flat_map(|first| first.bytes()));
        }
        URL_SAFE.encode(bytes)
    }

    /// Decodes a token for a server with page size `limit`.
    pub(crate) fn decode(text: &str, limit: u16) -> Result<Self, PageTokenError> {
        let bytes = URL_SAFE.decode(text).map_err(|_| PageTokenError::Encoding)?;
        let Some((&[l0, l1, p0, p1], added)) = bytes.split_first_chunk() else {
            return Err(PageTokenError::Short);
        };
        if u16::from_le_bytes([l0, l1]) != limit {
            return Err(PageTokenError::Limit { expected: limit });
        }
        let (page, rest) = match added.split_first_chunk() {
            Some((&page, rest)) => (u64::from_le_bytes(page), rest.split_first_chunk()),
            None => (u64::from(u16::from_le_bytes([p0, p1])), None),
        };
        if page == 0 {
            return Err(PageTokenError::Page);
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
    fn version_1_tokens_round_trip() {
        for (text, limit, page) in
            [("ZAACAA==", 100, 2), ("AgACAA==", 2, 2), ("ZAD__w==", 100, 65535)]
        {
            let token = PageToken { limit, page, revision: None, first: None };
            assert_eq!(PageToken::decode(text, limit), Ok(token.clone()));
            assert_eq!(token.encode(), text);
        }
        // Unknown trailing bytes are ignored, like in version 1.
        let token = PageToken { limit: 100, page: 2, revision: None, first: None };
        assert_eq!(PageToken::decode("ZAACAAcH", 100), Ok(token));
    }

    #[test]
    fn invalid_tokens_are_refused() {
        let cases = [
            ("", PageTokenError::Short),
            ("ZAAC", PageTokenError::Short),
            ("!", PageTokenError::Encoding),
            ("ZAACAA", PageTokenError::Encoding),
            ("AgACAA==", PageTokenError::Limit { expected: 100 }),
            ("ZAAAAA==", PageTokenError::Page),
        ];
        for (text, expected) in cases {
            assert_eq!(PageToken::decode(text, 100), Err(expected), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_round_trip(
            limit: u16,
            page in 1..=u64::MAX,
            revision: u64,
            first in proptest::option::of("[a-z]{1,20}\\.service"),
        ) {
            let token = PageToken { limit, page, revision: Some(Revision(revision)), first };
            let text = token.clone().encode();
            prop_assert_eq!(PageToken::decode(&text, limit), Ok(token));
            // Version 1 must never read the token as page zero.
            let old = URL_SAFE.decode(text).unwrap();
            prop_assert!(old[2] > 0 || old[3] > 0);
        }

        #[test]
        fn decoding_never_panics(text in "\\PC*", limit: u16) {
            let _token = PageToken::decode(&text, limit);
        }
    }
}

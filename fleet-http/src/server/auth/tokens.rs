//! Bearer tokens accepted by a server.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::token::{self, Token};

/// Bearer tokens accepted by a server. Only their hashes are kept.
#[derive(Clone)]
pub struct Tokens(Vec<KnownToken>);

/// An accepted token.
#[derive(Clone)]
struct KnownToken {
    hash: [u8; 32],
    may_write: bool,
}

/// Rights of an authenticated client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    Read,
    Write,
}

/// Prefix of a read-only token.
const READ: &str = "read:";

/// Error of an invalid token file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The line is not a valid token.
    #[error("line {line} is not a valid token")]
    Token {
        /// Line number, counted from one.
        line: usize,
        /// The error.
        source: token::TokenError,
    },
    /// The line is not a valid token hash.
    #[error(
        "line {line} is not a valid hash: write sha256: and 64 hexadecimal digits, as sha256sum \
         prints them for the token without a newline"
    )]
    Hash {
        /// Line number, counted from one.
        line: usize,
    },
    /// The file contains no token.
    #[error("the file contains no token: write one per line")]
    Empty,
}

impl Tokens {
    /// Parses a token file with one token per line. A token is either plain text, or `sha256:`
    /// followed by its hash in hexadecimal digits. The prefix `read:` makes a token read-only.
    /// Empty lines and lines that begin with `#` are ignored.
    ///
    /// ```
    /// use fleet_http::Tokens;
    ///
    /// assert!(Tokens::parse("# of the build server\na-long-unguessable-secret\n").is_ok());
    /// assert!(Tokens::parse("# of the wall display\nread:read-only-unguessable-token\n").is_ok());
    /// assert!(Tokens::parse("short\n").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`TokensError`] for the first invalid line, or if the file contains no token.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let lines = text.lines().map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
        let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let known: Vec<_> =
            entries.map(|(line, text)| known(line, text)).collect::<Result<_, _>>()?;
        if known.is_empty() { Err(TokensError::Empty) } else { Ok(Self(known)) }
    }

    /// Returns the rights of a token, or `None` if the token is unknown. The comparison takes the
    /// same time for every token of a given length, so timing does not help to guess tokens.
    pub(crate) fn admit(&self, token: &[u8]) -> Option<Rights> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let (mut found, mut writes) = (Choice::from(0), Choice::from(0));
        for known in &self.0 {
            let is_it = known.hash[..].ct_eq(&hash[..]);
            found |= is_it;
            writes |= is_it & Choice::from(u8::from(known.may_write));
        }
        let rights = if writes.into() { Rights::Write } else { Rights::Read };
        bool::from(found).then_some(rights)
    }
}

fn known(line: usize, text: &str) -> Result<KnownToken, TokensError> {
    let read = text.strip_prefix(READ).map(str::trim_start);
    Ok(KnownToken { hash: hash_of(line, read.unwrap_or(text))?, may_write: read.is_none() })
}

fn hash_of(line: usize, text: &str) -> Result<[u8; 32], TokensError> {
    let Some(digits) = text.strip_prefix("sha256:") else {
        let token: Token = text.parse().map_err(|source| TokensError::Token { line, source })?;
        return Ok(Sha256::digest(token.as_str()).into());
    };
    let mut hash = [0; 32];
    let is_hash = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    for (at, byte) in hash.iter_mut().enumerate().filter(|_| is_hash) {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap_or_default();
    }
    if is_hash { Ok(hash) } else { Err(TokensError::Hash { line }) }
}

impl fmt::Debug for Tokens {
    /// Shows the number of tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::failure::error_chain;

    #[test]
    fn plain_and_hashed_tokens_are_accepted() {
        let hash = "9d8e46f69f01e0b6cd9a1ee69e4b7ab1ef2ebdb4d8e5eb3a2b4b58e7ac4dd4aa";
        let plain = "# of people\n\n  first-of-the-tokens \r\n";
        let hashed: [u8; 32] = Sha256::digest("second-of-the-tokens").into();
        let digits: String = hashed.iter().map(|byte| format!("{byte:02X}")).collect();
        let tokens = Tokens::parse(&format!("{plain}sha256:{digits}\nsha256:{hash}\n")).unwrap();
        let write = Some(Rights::Write);
        let cases = [
            ("first-of-the-tokens", write),
            ("second-of-the-tokens", write),
            ("second-of-the-token", None),
            (" first-of-the-tokens", None),
            (hash, None),
            ("", None),
        ];
        for (token, expected) in cases {
            assert_eq!(tokens.admit(token.as_bytes()), expected, "{token:?}");
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(3)");
    }

    #[test]
    fn read_prefix_limits_rights_unless_listed_without() {
        let hashed: [u8; 32] = Sha256::digest("third-of-the-tokens").into();
        let digits: String = hashed.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!(
            "read:first-of-the-tokens\nsecond-of-the-tokens\nread: sha256:{digits}\n\
             read:second-of-the-tokens\n"
        );
        let tokens = Tokens::parse(&text).unwrap();
        let cases = [
            ("first-of-the-tokens", Some(Rights::Read)),
            ("second-of-the-tokens", Some(Rights::Write)),
            ("third-of-the-tokens", Some(Rights::Read)),
            ("read:first-of-the-tokens", None),
        ];
        for (token, expected) in cases {
            assert_eq!(tokens.admit(token.as_bytes()), expected, "{token:?}");
        }
        assert!(Tokens::parse("read:\n").is_err());
    }

    #[test]
    fn invalid_lines_are_reported() {
        let cases = [
            ("", "the file contains no token: write one per line"),
            ("# nothing\n", "the file contains no token: write one per line"),
            ("\nshort\n", "line 2 is not a valid token: a token has 16 to 512 characters, not 5: "),
            (
                "a-token with a space\n",
                "line 1 is not a valid token: a token consists of letters, digits and \"-._~+/=\", \
                 not ' '",
            ),
            ("sha256:12\n", "line 1 is not a valid hash: write sha256: and 64 hexadecimal digits"),
        ];
        for (text, beginning) in cases {
            // The causes are included, and must not repeat a message.
            let error = error_chain(&Tokens::parse(text).unwrap_err());
            assert!(error.starts_with(beginning), "{text:?}: {error}");
            assert!(error.matches("16 to 512").count() < 2, "{error}");
        }
    }
}

//! Bearer tokens that a server lets in.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::token::{self, Token};

/// The bearer tokens that a server lets in, of which it keeps the hashes alone.
#[derive(Clone)]
pub struct Tokens(Vec<[u8; 32]>);

/// A line of a file of tokens that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// It is not a token.
    #[error("line {line} is no token")]
    Token {
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        source: token::TokenError,
    },
    /// It is to be the hash of a token, and is none.
    #[error(
        "line {line}: a hash is sha256: and 64 hexadecimal digits, as sha256sum prints them of a \
         token without the end of its line"
    )]
    Hash {
        /// The line, counted from one.
        line: usize,
    },
    /// There is no token at all.
    #[error("there is no token in it: write one on a line")]
    Empty,
}

impl Tokens {
    /// Reads a file of tokens, one on a line: as it is, or as `sha256:` with the hash of it in
    /// hexadecimal digits. Empty lines, and those that begin with `#`, say nothing.
    ///
    /// ```
    /// use fleet_http::Tokens;
    ///
    /// assert!(Tokens::parse("# of the build server\nnothing-anybody-could-guess\n").is_ok());
    /// assert!(Tokens::parse("short\n").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`TokensError`] names the first line that is none, or says that there is no token at all.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let lines = text.lines().map(str::trim).enumerate().map(|(at, line)| (at + 1, line));
        let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let hashes: Vec<_> =
            said.map(|(line, text)| hash_of(line, text)).collect::<Result<_, _>>()?;
        if hashes.is_empty() { Err(TokensError::Empty) } else { Ok(Self(hashes)) }
    }

    /// Whether it is one of them. How long that takes tells nothing of them but their number.
    pub(super) fn admit(&self, token: &[u8]) -> bool {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let none = Choice::from(0);
        self.0.iter().fold(none, |found, known| found | known[..].ct_eq(&hash[..])).into()
    }
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
    /// How many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::failure::chain;
    use super::*;

    #[test]
    fn tokens_are_let_in_plain_or_hashed() {
        let hash = "9d8e46f69f01e0b6cd9a1ee69e4b7ab1ef2ebdb4d8e5eb3a2b4b58e7ac4dd4aa";
        let plain = "# of people\n\n  first-of-the-tokens \r\n";
        let hashed: [u8; 32] = Sha256::digest("second-of-the-tokens").into();
        let digits: String = hashed.iter().map(|byte| format!("{byte:02X}")).collect();
        let tokens = Tokens::parse(&format!("{plain}sha256:{digits}\nsha256:{hash}\n")).unwrap();
        let cases = [
            ("first-of-the-tokens", true),
            ("second-of-the-tokens", true),
            ("second-of-the-token", false),
            (" first-of-the-tokens", false),
            (hash, false),
            ("", false),
        ];
        for (token, expected) in cases {
            assert_eq!(tokens.admit(token.as_bytes()), expected, "{token:?}");
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(3)");
    }

    #[test]
    fn lines_that_are_no_tokens_are_named() {
        let cases = [
            ("", "there is no token in it: write one on a line"),
            ("# nothing\n", "there is no token in it: write one on a line"),
            ("\nshort\n", "line 2 is no token: a token has 16 to 512 characters, not 5: \"openssl"),
            (
                "a-token with a space\n",
                "line 1 is no token: a token is of letters, digits and \"-._~+/=\", without ' '",
            ),
            ("sha256:12\n", "line 1: a hash is sha256: and 64 hexadecimal digits"),
        ];
        for (text, beginning) in cases {
            // As it is told to people, with its causes: nothing is said twice.
            let error = chain(&Tokens::parse(text).unwrap_err());
            assert!(error.starts_with(beginning), "{text:?}: {error}");
            assert!(error.matches("16 to 512").count() < 2, "{error}");
        }
    }
}

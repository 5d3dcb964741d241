//! A bearer token, for client and server.

use std::fmt;
use std::str::FromStr;

/// A bearer token: a secret shared by a client and a server.
///
/// ```
/// use fleet_http::Token;
///
/// let token: Token = "a-long-unguessable-secret".parse()?;
/// assert_eq!(format!("{token:?}"), "Token");
/// # Ok::<(), fleet_http::token::TokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Error of a text that is not a valid token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token is too short to be secure or too long to be sent.
    #[error(
        "a token has {MIN_LEN} to {MAX_LEN} characters, not {0}: create one with \
         \"openssl rand -hex 32\""
    )]
    Length(usize),
    /// The token contains a character that cannot be sent.
    #[error("a token consists of letters, digits and \"-._~+/=\", not {0:?}")]
    Character(char),
}

/// Shorter tokens can be guessed by trying.
const MIN_LEN: usize = 16;

/// A longer token might make a request head larger than a server accepts.
const MAX_LEN: usize = 512;

impl Token {
    /// Returns the secret.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let is_forbidden = |it: &char| !it.is_ascii_alphanumeric() && !"-._~+/=".contains(*it);
        if let Some(forbidden) = text.chars().find(is_forbidden) {
            return Err(TokenError::Character(forbidden));
        }
        if !(MIN_LEN..=MAX_LEN).contains(&text.len()) {
            return Err(TokenError::Length(text.len()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

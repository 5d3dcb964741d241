//! A bearer token, as either end has it.

use std::fmt;
use std::str::FromStr;

/// What a client shows to a server to be let in: a secret that both know.
///
/// ```
/// use fleet_http::Token;
///
/// let token: Token = "nothing-anybody-could-guess".parse()?;
/// assert_eq!(format!("{token:?}"), "Token");
/// # Ok::<(), fleet_http::TokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A text that is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Too short to be a secret, or too long to be sent.
    #[error(
        "a token has {LEAST} to {MOST} characters, not {0}: \"openssl rand -hex 32\" makes one"
    )]
    Length(usize),
    /// It has a character in it that cannot be sent.
    #[error("a token is of letters, digits and \"-._~+/=\", without {0:?}")]
    Character(char),
}

/// Fewer can be found by trying.
const LEAST: usize = 16;

/// More would not fit into the head of a request everywhere.
const MOST: usize = 512;

impl Token {
    /// The token itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let is_odd = |it: &char| !it.is_ascii_alphanumeric() && !"-._~+/=".contains(*it);
        if let Some(odd) = text.chars().find(is_odd) {
            return Err(TokenError::Character(odd));
        }
        if !(LEAST..=MOST).contains(&text.len()) {
            return Err(TokenError::Length(text.len()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

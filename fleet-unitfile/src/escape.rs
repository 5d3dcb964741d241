//! Paths and other texts as parts of unit names.

use std::fmt::Write as _;

/// Writes any text as a part of a unit name, as `systemd-escape` does.
///
/// `/` becomes `-`; a byte that a name must not have, and `-` and `\` themselves, become `\x`
/// and two hexadecimal digits; so does a dot at the start.
///
/// ```
/// use fleet_unitfile::{escape, unescape};
///
/// assert_eq!(escape("srv/my-data"), r"srv-my\x2ddata");
/// assert_eq!(unescape(r"srv-my\x2ddata")?, "srv/my-data");
/// # Ok::<(), fleet_unitfile::EscapeError>(())
/// ```
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'/' => escaped.push('-'),
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b':' | b'_' => escaped.push(byte.into()),
            b'.' if index > 0 => escaped.push('.'),
            _ => write!(escaped, "\\x{byte:02x}").expect("writing to a String cannot fail"),
        }
    }
    escaped
}

/// Reads a part of a unit name back: `-` is `/`, and `\x` with two hexadecimal digits is a byte.
///
/// # Errors
///
/// A backslash that does not begin such an escape, or bytes that are not UTF-8 together.
pub fn unescape(text: &str) -> Result<String, EscapeError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match byte {
            b'-' => b'/',
            b'\\' => {
                let at = text.len() - tail.len() - 1;
                let (escaped, tail) = hex_escape(tail).ok_or(EscapeError::Malformed { at })?;
                rest = tail;
                escaped
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| EscapeError::NotUtf8)
}

/// Why a part of a unit name cannot be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EscapeError {
    /// A backslash that begins no escape.
    #[error("backslash at byte {at} begins no escape: write \\x and two hexadecimal digits")]
    Malformed {
        /// The offset of the backslash, in bytes.
        at: usize,
    },
    /// The escapes stand for bytes that are not UTF-8.
    #[error("escapes stand for bytes that are not UTF-8: escape UTF-8 text byte by byte")]
    NotUtf8,
}

/// The byte that `xHH` stands for, and what follows it.
fn hex_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'x', high, low, rest @ ..] = text else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digit(high)? * 16 + digit(low)?;
    Some((u8::try_from(value).expect("two hexadecimal digits are at most 255"), rest))
}

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

/// Writes a path as a part of a unit name, as `systemd-escape --path` does.
///
/// Slashes at both ends do not count, several in a row are one, and components that are a single
/// dot are left out. The root is `-`.
///
/// # Errors
///
/// The path has a component `..`, which means another path on each machine.
///
/// ```
/// use fleet_unitfile::{escape_path, unescape_path};
///
/// assert_eq!(escape_path("/srv//my-data/")?, r"srv-my\x2ddata");
/// assert_eq!(unescape_path(r"srv-my\x2ddata")?, "/srv/my-data");
/// assert_eq!(escape_path("/")?, "-");
/// # Ok::<(), fleet_unitfile::EscapeError>(())
/// ```
pub fn escape_path(path: &str) -> Result<String, EscapeError> {
    let parts: Vec<&str> = components(path).collect();
    if parts.contains(&"..") {
        return Err(EscapeError::NotNormal);
    }
    Ok(match &parts[..] {
        [] => "-".to_owned(),
        parts => escape(&parts.join("/")),
    })
}

/// Reads a part of a unit name back as an absolute path.
///
/// # Errors
///
/// What [`unescape`] refuses; a text that stands for no path in its plain form, as one with a
/// slash at an end, two in a row, or a component `.` or `..`.
pub fn unescape_path(text: &str) -> Result<String, EscapeError> {
    if text == "-" {
        return Ok("/".to_owned());
    }
    let path = unescape(text)?;
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    if !path.split('/').all(is_plain) {
        return Err(EscapeError::NotNormal);
    }
    Ok(format!("/{path}"))
}

/// The parts of a path that say where it leads.
fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
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
    /// A path that has more than one way of writing it.
    #[error("path with \"..\", or not in its plain form: write /one/component/after/another")]
    NotNormal,
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

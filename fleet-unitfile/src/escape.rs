//! Escaping of paths and other strings as parts of unit names.

use std::fmt::Write as _;

/// Escapes any string for use as a part of a unit name, like `systemd-escape`.
///
/// `/` becomes `-`. ASCII letters, digits, `:`, `_` and `.` are unchanged. Every other byte, and a
/// leading dot, becomes `\x` and two hexadecimal digits.
///
/// ```
/// use fleet_unitfile::escape::{escape, unescape};
///
/// assert_eq!(escape("srv/my-data"), r"srv-my\x2ddata");
/// assert_eq!(unescape(r"srv-my\x2ddata")?, "srv/my-data");
/// # Ok::<(), fleet_unitfile::escape::EscapeError>(())
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

/// Unescapes a part of a unit name: `-` becomes `/`, and `\x` with two hexadecimal digits becomes
/// the byte with that value.
///
/// # Errors
///
/// Returns an error if a backslash does not begin an escape, or if the result is not UTF-8.
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

/// Escapes a path for use as a part of a unit name, like `systemd-escape --path`.
///
/// Slashes at both ends and `.` components are dropped, and repeated slashes are treated as one
/// slash. The root directory becomes `-`.
///
/// # Errors
///
/// Returns an error if the path has a `..` component, because symbolic links can make it lead to a
/// different place on each machine. Also returns an error for a relative path without a name, such
/// as `.`.
///
/// ```
/// use fleet_unitfile::escape::{escape_path, unescape_path};
///
/// assert_eq!(escape_path("/srv//my-data/")?, r"srv-my\x2ddata");
/// assert_eq!(unescape_path(r"srv-my\x2ddata")?, "/srv/my-data");
/// assert_eq!(escape_path("/")?, "-");
/// # Ok::<(), fleet_unitfile::escape::EscapeError>(())
/// ```
pub fn escape_path(path: &str) -> Result<String, EscapeError> {
    let parts: Vec<&str> = components(path).collect();
    if parts.contains(&"..") {
        return Err(EscapeError::NotNormal);
    }
    Ok(match &parts[..] {
        // A relative path such as "." has no name.
        [] if !path.is_empty() && !path.starts_with('/') => return Err(EscapeError::NotNormal),
        [] => "-".to_owned(),
        parts => escape(&parts.join("/")),
    })
}

/// Unescapes a part of a unit name to an absolute path.
///
/// # Errors
///
/// Returns the errors of [`unescape`]. Also returns an error if the path is not normalized, for
/// example because it has a repeated slash or a `..` component.
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

/// Returns the components of a path, without empty ones and `.`.
fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// Error for a part of a unit name that cannot be unescaped, or for a path that cannot be escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EscapeError {
    /// A backslash that does not begin an escape.
    #[error("backslash at byte {at} begins no escape: write \\x and two hexadecimal digits")]
    Malformed {
        /// Byte offset of the backslash.
        at: usize,
    },
    /// The escapes produce bytes that are not UTF-8.
    #[error("the escapes decode to invalid UTF-8: write each byte of a character as \\xNN")]
    NotUtf8,
    /// A path that is not normalized.
    #[error(
        "the path contains \"..\", \".\" or an empty component: write a path such as /srv/data"
    )]
    NotNormal,
}

/// Parses `xHH` at the start of `text`. Returns the byte with the value `HH`, and the text after
/// it.
fn hex_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'x', high, low, rest @ ..] = text else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digit(high)? * 16 + digit(low)?;
    Some((u8::try_from(value).expect("two hexadecimal digits are at most 255"), rest))
}

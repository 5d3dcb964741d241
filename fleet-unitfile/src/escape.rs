//! Escaping of paths and other texts as parts of unit names.

use std::fmt::Write as _;

/// Escapes any text as a part of a unit name, like `systemd-escape`.
///
/// `/` becomes `-`. A byte that is not allowed in a name becomes `\x` and two hexadecimal digits.
/// The same applies to `-` and `\` themselves, and to a leading dot.
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

/// Unescapes a part of a unit name. `-` becomes `/`, and `\x` with two hexadecimal digits becomes a
/// byte.
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

/// Escapes a path as a part of a unit name, like `systemd-escape --path`.
///
/// Slashes at both ends are dropped, repeated slashes are treated as one slash, and `.` components
/// are left out. The root directory is written as `-`.
///
/// # Errors
///
/// Returns an error if the path has a `..` component, which can lead to a different place on each
/// machine.
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

/// Unescapes a part of a unit name as an absolute path.
///
/// # Errors
///
/// Returns the errors of [`unescape`]. Also returns an error for a path that is not normalized: it
/// has a slash at an end, a repeated slash, or a component `.` or `..`.
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

/// Error for a part of a unit name that cannot be unescaped, or a path that cannot be escaped.
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
        "the path contains \"..\" or is not normalized: write it as /one/component/after/another"
    )]
    NotNormal,
}

/// Parses `xHH` at the start of a text. Returns the byte and the text after it.
fn hex_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'x', high, low, rest @ ..] = text else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digit(high)? * 16 + digit(low)?;
    Some((u8::try_from(value).expect("two hexadecimal digits are at most 255"), rest))
}

//! Query string of a request URL.

use std::fmt::{self, Write as _};

/// The query string of a request. `Display` writes it with a leading `?`, or writes nothing if
/// there are no parameters.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter, if it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.extend([name, "=", &escape(value)]);
        }
        self
    }

    /// Adds a parameter once for each value.
    pub(super) fn with_all(self, name: &str, values: &[String]) -> Self {
        values.iter().fold(self, |query, value| query.with(name, Some(value)))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Percent-encodes all bytes with a special meaning in URLs.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'@' | b':' => {
                escaped.push(char::from(byte));
            }
            _ => write!(escaped, "%{byte:02X}").expect("a string takes all that is written"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bytes_are_escaped() {
        let query = Query::new().with("a", Some("b c&d=e")).with("f", None).with("g", Some("é%/"));
        assert_eq!(query.to_string(), "?a=b%20c%26d%3De&g=%C3%A9%25%2F");
        assert_eq!(Query::new().to_string(), "");
        assert_eq!(escape(r"a\x2d@1:2_3.service"), "a%5Cx2d@1:2_3.service");
    }
}

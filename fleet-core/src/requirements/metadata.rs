//! Parsing of a `MachineMetadata=` condition: one key and one value.

use std::fmt;

/// The problem with a `MachineMetadata=` condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataProblem {
    /// The condition has no `=`.
    NoEquals,
    /// The condition has more than one `=`.
    SeveralEquals,
    /// The key is empty.
    NoKey,
    /// The value is empty.
    NoValue,
    /// The key contains a blank, or the `=` has one beside it.
    Blank,
    /// The condition contains a control character, such as a tab.
    Control,
    /// The condition starts with a quotation mark, but the line does not end with a quotation mark.
    OpenQuote,
}

impl fmt::Display for MetadataProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEquals => "it has no \"=\"",
            Self::SeveralEquals => "it has more than one \"=\"",
            Self::NoKey => "nothing stands before the \"=\"",
            Self::NoValue => "nothing stands after the \"=\"",
            Self::Blank => "a blank stands in the key or beside the \"=\"",
            Self::Control => "it holds a control character",
            Self::OpenQuote => "its quotation mark is not closed",
        })
    }
}

/// Splits a condition into key and value.
pub(super) fn split_pair(text: &str) -> Result<(&str, &str), MetadataProblem> {
    let (key, value) = text.split_once('=').ok_or(MetadataProblem::NoEquals)?;
    let blank = |c: char| c == ' ';
    match (key, value) {
        _ if value.contains('=') => Err(MetadataProblem::SeveralEquals),
        _ if text.contains(char::is_control) => Err(MetadataProblem::Control),
        _ if key.starts_with('"') => Err(MetadataProblem::OpenQuote),
        ("", _) => Err(MetadataProblem::NoKey),
        (_, "") => Err(MetadataProblem::NoValue),
        _ if key.contains(blank) || value.starts_with(blank) || value.ends_with(blank) => {
            Err(MetadataProblem::Blank)
        }
        pair => Ok(pair),
    }
}

/// Returns the condition that was probably intended by an invalid one.
pub(super) fn suggestion(text: &str, problem: MetadataProblem) -> Option<String> {
    let bare = text.replace('"', " ");
    if matches!(problem, MetadataProblem::Blank | MetadataProblem::OpenQuote) {
        let (key, value) = bare.split_once('=')?;
        let pair = format!("{}={}", key.trim(), value.trim());
        if split_pair(&pair).is_ok() {
            return Some(pair);
        }
    }
    let pairs: Vec<&str> = bare.split_whitespace().collect();
    let several = pairs.len() > 1 && pairs.iter().all(|pair| split_pair(pair).is_ok());
    several.then(|| pairs.iter().map(|p| format!("\"{p}\"")).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_has_one_key_and_one_value() {
        let cases = [
            ("a=b", Ok(("a", "b"))),
            ("a=b c", Ok(("a", "b c"))),
            ("a", Err(MetadataProblem::NoEquals)),
            ("a=b=c", Err(MetadataProblem::SeveralEquals)),
            ("=b", Err(MetadataProblem::NoKey)),
            ("a=", Err(MetadataProblem::NoValue)),
            ("a = b", Err(MetadataProblem::Blank)),
            ("a=b ", Err(MetadataProblem::Blank)),
            ("a=b\tc", Err(MetadataProblem::Control)),
            ("\"a=b", Err(MetadataProblem::OpenQuote)),
            ("a=5\"", Ok(("a", "5\""))),
        ];
        for (text, expected) in cases {
            assert_eq!(split_pair(text), expected, "{text:?}");
        }
    }

    #[test]
    fn suggestion_is_always_valid() {
        let cases = [
            ("a=b c=d", Some("\"a=b\" \"c=d\"")),
            ("\"a=b\" \"c=d", Some("\"a=b\" \"c=d\"")),
            ("a=b\tc=d", Some("\"a=b\" \"c=d\"")),
            ("a = b", Some("a=b")),
            ("\"a=b", Some("a=b")),
            ("a b = c", None),
            ("a=b=c", None),
            ("a=b c", None),
        ];
        for (text, expected) in cases {
            let problem = split_pair(text).err().unwrap_or(MetadataProblem::NoEquals);
            assert_eq!(suggestion(text, problem).as_deref(), expected, "{text:?}");
        }
    }
}

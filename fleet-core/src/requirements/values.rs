//! Splitting of an option's line into values.

use std::fmt;

use super::FleetOption;

/// Returns the values of a line; none for an empty assignment.
pub(super) fn split(option: FleetOption, line: &str) -> Vec<String> {
    if option.takes_expressions() {
        let lines = (!line.is_empty()).then(|| line.to_owned());
        return lines.into_iter().collect();
    }
    let values = if is_quoted(line) { unquote(line) } else { vec![line.to_owned()] };
    if option.takes_units() {
        return values.iter().flat_map(|v| v.split_whitespace()).map(str::to_owned).collect();
    }
    values.into_iter().filter(|value| !value.is_empty()).collect()
}

/// Returns `true` if the line starts and ends with a quotation mark, so that it may hold several
/// values.
fn is_quoted(line: &str) -> bool {
    line.starts_with('"') && line.ends_with('"')
}

/// Splits a line at blanks outside quotes, and removes the quotes. Backslashes and tabs are
/// ordinary characters, because fleet v1 splits only at spaces.
fn unquote(line: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut inside = false;
    for c in line.chars() {
        match c {
            '"' => inside = !inside,
            ' ' if !inside => values.push(String::new()),
            _ => values.last_mut().expect("there is always a value being read").push(c),
        }
    }
    values
}

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
    fn quoted_line_has_several_values() {
        let cases: [(&str, &[&str]); 14] = [
            ("", &[]),
            ("\"\"", &[]),
            ("\"", &[]),
            ("a=b", &["a=b"]),
            ("\"a=b\" \"c=d\"", &["a=b", "c=d"]),
            ("\"a b\"", &["a b"]),
            ("a=b c=d", &["a=b c=d"]),
            ("\"a=b\"  \"c=d\"", &["a=b", "c=d"]),
            ("\"a=b\"\"c=d\"", &["a=bc=d"]),
            ("\"a\" b \"c\"", &["a", "b", "c"]),
            ("\"a\" \"", &["a"]),
            ("'a' 'b'", &["'a' 'b'"]),
            ("\"a=b\" \"c=d", &["\"a=b\" \"c=d"]),
            ("\"a\\\"\t\"b\"", &["a\\\tb"]),
        ];
        for (line, expected) in cases {
            assert_eq!(split(FleetOption::MachineMetadata, line), expected, "{line}");
        }
    }

    #[test]
    fn expression_keeps_quotation_marks() {
        for option in [FleetOption::MachineMetadataExpr, FleetOption::Prefer] {
            let line = "\"disk type\" = \"solid state\"";
            assert_eq!(split(option, line), [line], "{option}");
            assert!(split(option, "").is_empty(), "{option}");
        }
    }

    #[test]
    fn unit_names_are_always_split_at_blanks() {
        for option in [FleetOption::MachineOf, FleetOption::Conflicts, FleetOption::Replaces] {
            for line in ["a b\tc", "\"a\" \"b\" \"c\"", "\"a b\" \"c\"", "a  b   c"] {
                assert_eq!(split(option, line), ["a", "b", "c"], "{option}={line}");
            }
        }
    }

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

//! Glob patterns over unit names, for `Conflicts=`, `Replaces=` and `MachineOf=`; and peers, which
//! are units or patterns.

use std::fmt;
use std::sync::Arc;

use fleet_unitfile::{NameError, UnitName};

/// A glob pattern. `*` matches any text, `?` one character, `[a-z]` one character of a class, and
/// `[!a-z]` one character outside the class.
///
/// The pattern must match the whole name. Two spellings of fleet v1 are accepted: `[^a]` means
/// `[!a]`, and several `*` in a row mean one `*`. A backslash is an ordinary character, because
/// unit names may contain it. Cloning is cheap.
///
/// ```
/// use fleet_core::Pattern;
///
/// let pattern: Pattern = "web@*.service".parse()?;
/// assert!(pattern.matches(&"web@1.service".parse().unwrap()));
/// assert!(!pattern.matches(&"db.service".parse().unwrap()));
/// # Ok::<(), fleet_core::pattern::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<Inner>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Inner {
    text: String,
    glob: glob::Pattern,
}

impl Pattern {
    /// Returns the pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns `true` if the pattern matches the whole of `name`.
    #[must_use]
    pub fn matches(&self, name: &UnitName) -> bool {
        self.0.glob.matches(name.as_str())
    }

    /// Returns `true` if the pattern has no wildcard, so that it matches only its own text.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        !self.0.text.contains(['*', '?', '['])
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
    }
}

/// Error for a text that is not a pattern over unit names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a pattern: character {column} {message}")]
#[non_exhaustive]
pub struct PatternError {
    /// The text.
    pub pattern: String,
    /// The error at that character.
    pub message: &'static str,
    /// Position of the invalid character, counted from one.
    pub column: usize,
}

impl std::str::FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = |message, column| PatternError { pattern: text.to_owned(), message, column };
        let modern = translate(text).map_err(|(message, at)| refusal(message, at + 1))?;
        let glob = glob::Pattern::new(&modern)
            .map_err(|error| refusal("is not understood", error.pos + 1))?;
        Ok(Self(Arc::new(Inner { text: text.to_owned(), glob })))
    }
}

/// Translates spellings of fleet v1 to those of the `glob` crate. Refuses a pattern that can match
/// no unit name: an empty one, or one with a character that unit names cannot contain. The error
/// contains a message and the position in characters, counted from zero.
fn translate(text: &str) -> Result<String, (&'static str, usize)> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let end = if c == '[' { class_end(&chars, at)? } else { at + 1 };
        match c {
            '[' => push_class(&chars[at..end], &mut out),
            '*' if out.ends_with('*') => {}
            '*' | '?' => out.push(c),
            _ if is_name_character(c) => out.push(c),
            _ => return Err(("is not allowed in unit names", at)),
        }
        at = end;
    }
    if out.is_empty() { Err(("is missing", 0)) } else { Ok(out) }
}

/// Returns the exclusive end of the character class that opens at `open`. A `]` that is the first
/// character of the class belongs to it and does not close it.
fn class_end(chars: &[char], open: usize) -> Result<usize, (&'static str, usize)> {
    let negated = matches!(chars.get(open + 1), Some('!' | '^'));
    let first = open + 1 + usize::from(negated);
    let rest = chars.get(first + 1..).unwrap_or_default();
    let close = rest.iter().position(|c| *c == ']');
    close.map(|i| first + i + 2).ok_or(("is a \"[\" that is never closed", open))
}

fn push_class(class: &[char], out: &mut String) {
    let negated = class[1] == '^';
    out.extend(class.iter().enumerate().map(|(i, c)| if i == 1 && negated { '!' } else { *c }));
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || ":-_.\\@".contains(c)
}

/// A peer that must be on the same machine.
///
/// ```
/// use fleet_core::pattern::Peer;
///
/// let db: Peer = "db.service".parse()?;
/// assert!(db.name().is_some());
///
/// let any_db: Peer = "db@*.service".parse()?;
/// assert!(any_db.matches(&"db@1.service".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// This unit.
    Named(UnitName),
    /// At least one other unit that the pattern matches.
    Matching(Pattern),
}

/// Error for a text that is neither a unit name nor a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum PeerError {
    /// The text has no wildcard and is not a unit name.
    Name(NameError),
    /// The text has a wildcard and is not a pattern.
    Pattern(PatternError),
}

impl Peer {
    /// Returns the unit name, unless the peer is a pattern.
    #[must_use]
    pub fn name(&self) -> Option<&UnitName> {
        match self {
            Self::Named(name) => Some(name),
            Self::Matching(_) => None,
        }
    }

    /// Returns `true` if the peer is this unit or a pattern that matches this unit.
    #[must_use]
    pub fn matches(&self, unit: &UnitName) -> bool {
        match self {
            Self::Named(name) => name == unit,
            Self::Matching(pattern) => pattern.matches(unit),
        }
    }

    /// Returns the name or the pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Named(name) => name.as_str(),
            Self::Matching(pattern) => pattern.as_str(),
        }
    }
}

impl std::str::FromStr for Peer {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        if text.contains(['*', '?', '[']) {
            return text.parse().map(Self::Matching).map_err(PeerError::Pattern);
        }
        UnitName::parse(text).map(Self::Named).map_err(PeerError::Name)
    }
}

impl From<UnitName> for Peer {
    fn from(name: UnitName) -> Self {
        Self::Named(name)
    }
}

impl PartialEq<&str> for Peer {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_whole_names() {
        let cases = [
            ("*", "a.service", true),
            ("a**e", "a.service", true),
            ("a***e", "a.service", true),
            ("[^a].service", "b.service", true),
            ("[^a].service", "a.service", false),
            ("[!a].service", "b.service", true),
            ("[]^a].service", "a.service", true),
            ("[a^].service", "a.service", true),
            ("foo", "foo.service", false),
            ("fo?.service", "foo.service", true),
            ("FOO.service", "foo.service", false),
            ("web@[0-9].service", "web@7.service", true),
            ("web@[0-9].service", "web@77.service", false),
            ("a\\x2db.service", "a\\x2db.service", true),
            (".*", ".a.service", true),
        ];
        for (pattern, name, expected) in cases {
            let pattern: Pattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(&name.parse().unwrap()), expected, "{pattern} on {name}");
        }
    }

    /// Matches by exhaustive search. Supports `*`, `?` and classes of single characters.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        let Some((first, rest)) = pattern.split_first() else {
            return name.is_empty();
        };
        if *first == '*' {
            return (0..=name.len()).any(|taken| naive(rest, &name[taken..]));
        }
        let Some((c, others)) = name.split_first() else {
            return false;
        };
        match first {
            '?' => naive(rest, others),
            '[' => {
                let end = rest.iter().position(|c| *c == ']').expect("the class is closed");
                let negated = matches!(rest[0], '^' | '!');
                let class = &rest[usize::from(negated)..end];
                class.contains(c) != negated && naive(&rest[end + 1..], others)
            }
            _ => first == c && naive(rest, others),
        }
    }

    proptest::proptest! {
        #[test]
        fn matching_agrees_with_the_naive_matcher(
            pattern in "([ab.*?]|\\[[\\^!]?[ab.]{1,2}\\]){1,6}",
            stem in "[ab.]{1,6}",
        ) {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let name: UnitName = format!("{stem}.path").parse().unwrap();
            let pattern = format!("{pattern}.path");
            let found = pattern.parse::<Pattern>().unwrap().matches(&name);
            let expected = naive(&chars(&pattern), &chars(name.as_str()));
            proptest::prop_assert_eq!(found, expected, "{} on {}", pattern, name);
        }

        #[test]
        fn pattern_error_is_within_the_text(text in ".{0,12}|[a*?!^\\[\\]]{0,8}") {
            if let Err(error) = text.parse::<Pattern>() {
                proptest::prop_assert!(error.column <= text.chars().count().max(1));
                proptest::prop_assert_ne!(error.message, "is not understood");
            }
        }
    }

    #[test]
    fn impossible_patterns_are_refused_with_a_column() {
        let cases = [
            ("web[", 4),
            ("a**[", 4),
            ("web[]", 4),
            ("web[!]", 4),
            ("web[^", 4),
            ("a,b", 2),
            ("{a,b}", 1),
            ("a]b", 2),
            ("\"a\"", 1),
            ("ü*", 1),
            ("", 1),
        ];
        for (pattern, column) in cases {
            assert_eq!(pattern.parse::<Pattern>().unwrap_err().column, column, "{pattern}");
        }
    }
}

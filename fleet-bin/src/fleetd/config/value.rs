//! Raw configuration values with their origins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    /// A position in a file; line and column count from one.
    File { path: PathBuf, line: usize, column: usize },
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(String),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())
            }
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
        }
    }
}

/// An uninterpreted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RawValue {
    /// A text, or a number or boolean as text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// A table of texts.
    Table(BTreeMap<String, String>),
}

impl RawValue {
    /// Returns the value as a list of texts. A single text is split at commas, and each part loses
    /// its brackets, quotes and blanks. The pairs of a table become `key=value`.
    pub(crate) fn items(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.clone(),
            Self::Table(pairs) => pairs.iter().map(|(k, v)| format!("{k}={v}")).collect(),
            Self::Text(text) => {
                let bare = |item: &str| item.trim_matches(|c| " \t[]\"'".contains(c)).to_owned();
                text.split(',').map(bare).filter(|item| !item.is_empty()).collect()
            }
        }
    }
}

/// A raw value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawEntry {
    pub(crate) raw: RawValue,
    pub(crate) origin: ValueOrigin,
}

/// Raw values by key name.
pub(crate) type RawConfig = BTreeMap<&'static str, RawEntry>;

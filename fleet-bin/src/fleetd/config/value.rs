//! A value as it was found, with where it was found.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of a file; line and column count from one.
    File { path: PathBuf, line: usize, column: usize },
    /// An environment variable.
    Variable(String),
    /// A flag on the command line.
    Flag(String),
}

impl fmt::Display for Origin {
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

/// A value before it is known what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A text, or a number or boolean in its plain spelling.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
    /// Texts under names.
    Table(BTreeMap<String, String>),
}

impl Raw {
    /// The texts of a list; a text is split at its commas, without brackets, quotes and blanks.
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

/// A value and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) raw: Raw,
    pub(crate) origin: Origin,
}

/// What was found for each key, by the key's name.
pub(crate) type Low = BTreeMap<&'static str, Found>;

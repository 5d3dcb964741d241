//! What can be wrong with a configuration.

use std::path::PathBuf;

use super::value::Origin;

/// Why a configuration cannot be used. Each message names the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is neither TOML nor a file of fleet v1.
    #[error("{origin}: {problem}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What is wrong there.
        problem: String,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key {key:?}{}", suggestion(*nearest))]
    UnknownKey {
        /// Where.
        origin: Origin,
        /// The key.
        key: String,
        /// A key of a similar name.
        nearest: Option<&'static str>,
    },
    /// A value that its key does not take.
    #[error("{origin}: {key} cannot be {found:?}: write {expected}")]
    BadValue {
        /// Where.
        origin: Origin,
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// A choice that this build does not offer.
    #[error("{origin}: {problem}")]
    Unsupported {
        /// Where.
        origin: Origin,
        /// What is missing, and what to choose instead.
        problem: String,
    },
    /// Values that do not go together.
    #[error("{origin}: {problem}")]
    Contradiction {
        /// Where one of them is.
        origin: Origin,
        /// What is wrong, and what to write instead.
        problem: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |key| format!(": did you mean {key:?}?"))
}

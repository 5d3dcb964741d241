//! Configuration errors.

use std::path::PathBuf;

use super::value::ValueOrigin;

/// A configuration error. Each message names the position and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is neither TOML nor in the format of fleet v1.
    #[error("{origin}: {problem}")]
    Syntax {
        /// Position.
        origin: ValueOrigin,
        /// Description.
        problem: String,
    },
    /// The key does not exist.
    #[error("{origin}: unknown key {key:?}{}", suggestion(*nearest))]
    UnknownKey {
        /// Position.
        origin: ValueOrigin,
        /// The key.
        key: String,
        /// The most similar key.
        nearest: Option<&'static str>,
    },
    /// The value is not valid for its key.
    #[error("{origin}: {key} cannot be {found:?}: write {expected}")]
    BadValue {
        /// Position.
        origin: ValueOrigin,
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// Description of valid values.
        expected: &'static str,
    },
    /// The value requires a feature that this build lacks.
    #[error("{origin}: {problem}")]
    Unsupported {
        /// Position.
        origin: ValueOrigin,
        /// Missing feature and remedy.
        problem: String,
    },
    /// Other users can read a secret in the file.
    #[error("{origin}: {key}: {}: {problem}", path.display())]
    Exposed {
        /// Position of the secret.
        origin: ValueOrigin,
        /// Key of the secret.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Description and remedy.
        problem: String,
    },
    /// Values contradict each other.
    #[error("{origin}: {problem}")]
    Contradiction {
        /// Position of one of them.
        origin: ValueOrigin,
        /// Description and remedy.
        problem: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |key| format!(": did you mean {key:?}?"))
}

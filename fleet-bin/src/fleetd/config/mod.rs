//! Configuration of the daemon, from a file, the environment and flags.

mod auth;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod keys;
pub(crate) mod native;
mod resolve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fleet_core::graph::systemd::UnknownOption;

use crate::ui::secret;

pub(crate) use self::native::SystemdSettings;
pub(crate) use auth::{AuthSettings, FileSetting};
#[cfg(feature = "etcd")]
pub(crate) use etcd::{EtcdSettings, Password};
pub(crate) use keys::{KEYS, Key, KeyStatus, RELOADABLE};
pub(crate) use native::{DEV_KEYS, NativeSettings, default_runtime_dir};
pub(crate) use resolve::{Config, ServiceManagerKind, StoreKind};

/// Default configuration file, used if it exists.
const DEFAULT_FILE: &str = "/etc/fleet/fleet.conf";

/// Reads the configuration. Flags override the environment, which overrides the file.
pub(crate) fn find(
    file: Option<&Path>,
    environment: &dyn Fn(&str) -> Option<String>,
    flags: RawConfig,
) -> Result<RawConfig, ConfigError> {
    let mut raw = match file_to_read(file) {
        Some(path) => read_file(&path)?,
        None => RawConfig::new(),
    };
    raw.extend(from_environment(environment));
    raw.extend(flags);
    Ok(raw)
}

fn file_to_read(file: Option<&Path>) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
    file.map(Path::to_owned).or_else(default)
}

fn read_file(path: &Path) -> Result<RawConfig, ConfigError> {
    let mut text = String::new();
    let mode = File::open(path).and_then(|mut file| {
        file.read_to_string(&mut text)?;
        file.metadata().map(|metadata| metadata.permissions().mode() & 0o777)
    });
    let mode = mode.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let raw = file::read(path, &text)?;
    refuse_exposed_password(&raw, path, mode)?;
    Ok(raw)
}

/// Refuses a file with a password that users other than its owner and group can access.
fn refuse_exposed_password(raw: &RawConfig, path: &Path, mode: u32) -> Result<(), ConfigError> {
    let found = raw.get_key_value("etcd_password");
    let Some((&key, entry)) = found.filter(|(_, entry)| !entry.raw.items().is_empty()) else {
        return Ok(());
    };
    secret::check_mode(path, mode, secret::OWNER_AND_GROUP).map_err(|problem| {
        ConfigError::Exposed { origin: entry.origin.clone(), key, path: path.to_owned(), problem }
    })
}

/// An environment variable counts if it is set, even if it is empty.
fn from_environment(environment: &dyn Fn(&str) -> Option<String>) -> RawConfig {
    let found = |key: &'static Key| {
        let variable = key.variable();
        let raw = RawValue::Text(environment(&variable)?);
        Some((key.name, RawEntry { raw, origin: ValueOrigin::Variable(variable) }))
    };
    KEYS.iter().filter_map(found).collect()
}

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
    /// The list of accepted options has an unknown name.
    #[error("{origin}: native_accept: {error}")]
    UnknownOption {
        /// Position.
        origin: ValueOrigin,
        /// Description and remedy.
        error: UnknownOption,
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

//! The keys of the systemd service manager. Two keep their names and meanings from fleet v1.

use std::path::PathBuf;

use fleet_unitfile::parse_bool;

use super::error::ConfigError;
use super::resolve::{Values, bad};

/// Which systemd runs units, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SystemdSettings {
    /// Whether it is a user's; nothing to take the machine's for root, and the user's otherwise.
    pub(crate) user: Option<bool>,
    /// Whether it is reached over its own socket, without a bus.
    pub(crate) private: bool,
    /// Where unit files are kept, if not where they usually are.
    pub(crate) directory: Option<PathBuf>,
}

impl SystemdSettings {
    pub(super) fn resolve(values: &Values<'_>) -> Result<Self, ConfigError> {
        let truth = "true or false";
        Ok(Self {
            user: values.parsed("systemd_user", truth, parse_bool)?,
            private: values.parsed("systemd_private", truth, parse_bool)?.unwrap_or(false),
            directory: directory(values)?,
        })
    }
}

/// systemd is told paths, which mean nothing to it unless they begin at the root.
fn directory(values: &Values<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let key = "units_directory";
    let text = values.text(key).map(str::trim).filter(|text| !text.is_empty());
    match (text.map(PathBuf::from), values.low.get(key)) {
        (Some(path), Some(found)) if !path.is_absolute() => {
            Err(bad(key, found, "an absolute path such as /run/fleet/units", path.display()))
        }
        // As fleet v1 wrote it by default, with a slash at its end that would be part of names.
        (Some(path), _) => Ok(Some(path.components().collect())),
        (None, _) => Ok(None),
    }
}

//! Configuration keys of the systemd service manager. `systemd_user` and `units_directory` mean the
//! same as in fleet v1.

use std::path::PathBuf;

use fleet_unitfile::values::parse_bool;

use super::error::ConfigError;
use super::resolve::{Values, bad_value};

/// Settings of the systemd service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SystemdSettings {
    /// Whether to use a user's systemd instead of the system's. If this is `None`, root uses the
    /// system's systemd, and any other user uses its own.
    pub(crate) user: Option<bool>,
    /// Directory for unit files, if not the default.
    pub(crate) directory: Option<PathBuf>,
}

impl SystemdSettings {
    pub(super) fn resolve(values: &Values<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            user: values.parsed("systemd_user", "true or false", parse_bool)?,
            directory: directory(values)?,
        })
    }
}

/// Returns the unit directory. systemd accepts only absolute paths.
fn directory(values: &Values<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let key = "units_directory";
    let text = values.text(key).map(str::trim).filter(|text| !text.is_empty());
    match (text.map(PathBuf::from), values.raw.get(key)) {
        (Some(path), Some(found)) if !path.is_absolute() => {
            Err(bad_value(key, found, "an absolute path such as /run/fleet/units", path.display()))
        }
        // Drops the trailing slash of fleet v1's default, which would become part of file names.
        (Some(path), _) => Ok(Some(path.components().collect())),
        (None, _) => Ok(None),
    }
}

//! Configuration of the daemon, from a file, the environment and flags.

mod auth;
mod capacity;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod keys;
pub(crate) mod native;
mod resolve;
mod systemd;
#[cfg(test)]
mod tests;
mod v1;
mod value;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub(crate) use auth::{AuthSettings, FileSetting};
pub(crate) use error::ConfigError;
#[cfg(feature = "etcd")]
pub(crate) use etcd::{EtcdSettings, Password};
pub(crate) use keys::{KEYS, Key, KeyStatus, RELOADABLE};
pub(crate) use native::{NativeSettings, default_runtime_dir};
pub(crate) use resolve::{Config, ServiceManagerKind, StoreKind};
pub(crate) use systemd::SystemdSettings;
pub(crate) use value::{RawConfig, RawEntry, RawValue, ValueOrigin};

use crate::ui::secret;

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

//! The daemon's configuration: found in a file, the environment and flags, then resolved once.

mod doors;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod keys;
pub(crate) mod native;
mod offers;
mod resolve;
mod systemd;
#[cfg(test)]
mod tests;
mod v1;
mod value;

use std::path::{Path, PathBuf};

pub(crate) use doors::{DoorSettings, Named};
pub(crate) use error::ConfigError;
#[cfg(feature = "etcd")]
pub(crate) use etcd::{EtcdSettings, Password};
pub(crate) use keys::{KEYS, Key, LIVE, Standing};
pub(crate) use native::NativeSettings;
pub(crate) use resolve::{Config, ServiceManagerKind, StoreKind};
pub(crate) use systemd::SystemdSettings;
pub(crate) use value::{Found, Low, Origin, Raw};

/// The file that is read when none is named, if it exists.
const DEFAULT_FILE: &str = "/etc/fleet/fleet.conf";

/// Finds the configuration: flags win over the environment, that over the file.
pub(crate) fn find(
    file: Option<&Path>,
    environment: &dyn Fn(&str) -> Option<String>,
    flags: Low,
) -> Result<Low, ConfigError> {
    let mut low = match file_to_read(file) {
        Some(path) => read_file(&path)?,
        None => Low::new(),
    };
    low.extend(from_environment(environment));
    low.extend(flags);
    Ok(low)
}

fn file_to_read(file: Option<&Path>) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
    file.map(Path::to_owned).or_else(default)
}

fn read_file(path: &Path) -> Result<Low, ConfigError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    file::read(path, &text)
}

/// A variable that exists counts, even if it is empty.
fn from_environment(environment: &dyn Fn(&str) -> Option<String>) -> Low {
    let found = |key: &'static Key| {
        let variable = key.variable();
        let raw = Raw::Text(environment(&variable)?);
        Some((key.name, Found { raw, origin: Origin::Variable(variable) }))
    };
    KEYS.iter().filter_map(found).collect()
}

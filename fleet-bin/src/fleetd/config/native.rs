//! Keys of both service managers: native and systemd. `systemd_user` and `units_directory` mean the
//! same as in fleet v1.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use fleet_agent::NativeConfig;
use fleet_agent::native::{Executor, External};
use fleet_core::graph::systemd::AcceptedOptions;
use fleet_unitfile::UnitName;
use fleet_unitfile::values::parse_bool;

use super::resolve::{Values, bad_value};
use super::{ConfigError, RawConfig, from_environment};

/// Settings of the native service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NativeSettings {
    /// Maximum number of units that start at the same time; `None` for no limit.
    pub(crate) max_starting: Option<NonZeroU32>,
    /// Directory in memory for records and notification sockets; without one they are in the
    /// state directory.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Unsupported options to ignore instead of refusing the unit.
    pub(crate) accept: AcceptedOptions,
    /// External units, run by other supervisors on this machine.
    pub(crate) external: BTreeMap<UnitName, External>,
}

/// Configuration keys that `fleetd dev` has too.
pub(crate) const DEV_KEYS: [&str; 4] =
    ["native_accept", "native_external", "native_max_starting", "native_unsupported"];

/// Description of valid limits of starting units.
pub(crate) const STARTING: &str = "a number from 1 on, or none for no limit";

/// Description of valid external units.
pub(crate) const EXTERNAL: &str = "pairs such as network-online.target=up, \
                                   docker.service=path:/run/docker.sock or \
                                   db.service=tcp:localhost:5432";

impl Default for NativeSettings {
    fn default() -> Self {
        Self {
            max_starting: Some(NativeConfig::DEFAULT_MAX_STARTING),
            runtime_dir: None,
            accept: default_accept(),
            external: BTreeMap::new(),
        }
    }
}

impl NativeSettings {
    /// Resolves the settings of a daemon.
    pub(super) fn resolve(values: &Values<'_>) -> Result<Self, ConfigError> {
        Self::resolve_with(values, default_accept())
    }

    /// Resolves the settings of `fleetd dev`, which by default accepts all unsupported options, and
    /// keeps the records of units in its data directory.
    pub(crate) fn for_dev(flags: RawConfig) -> Result<Self, ConfigError> {
        let mut raw = from_environment(&|name| std::env::var(name).ok());
        raw.extend(flags);
        raw.retain(|key, _| DEV_KEYS.contains(key));
        let settings = Self::resolve_with(&Values { raw: &raw }, AcceptedOptions::all())?;
        Ok(Self { runtime_dir: None, ..settings })
    }

    /// Resolves the settings. By default the loss of the options in `accepted` is accepted.
    fn resolve_with(values: &Values<'_>, accepted: AcceptedOptions) -> Result<Self, ConfigError> {
        let usual = Self::default().max_starting;
        Ok(Self {
            max_starting: values
                .parsed("native_max_starting", STARTING, starting)?
                .unwrap_or(usual),
            runtime_dir: values
                .parsed("native_runtime_dir", "an absolute path", absolute)?
                .or_else(default_runtime_dir),
            accept: accept(values, accepted)?,
            external: all(values, "native_external", EXTERNAL, external)?,
        })
    }

    /// Returns the configuration of a service manager with this directory.
    pub(crate) fn config(&self, directory: &Path) -> NativeConfig {
        let mut config = NativeConfig::new(directory);
        config.max_starting = self.max_starting;
        config.runtime_directory.clone_from(&self.runtime_dir);
        config.accept.clone_from(&self.accept);
        config.executor = Some(Executor::current_program());
        config.external.clone_from(&self.external);
        config
    }
}

/// Returns the default runtime directory of native units: one that a reboot clears, and that
/// processes of other users can reach. `None` for other users than root: systemd removes their
/// `$XDG_RUNTIME_DIR` when they log out, although units may keep running.
pub(crate) fn default_runtime_dir() -> Option<PathBuf> {
    rustix::process::geteuid().is_root().then(|| PathBuf::from("/run/fleet-init"))
}

/// Returns the unsupported options that are ignored by default: none if root runs the daemon, and
/// all otherwise, because few units could run without privileges.
pub(crate) fn default_accept() -> AcceptedOptions {
    match rustix::process::geteuid().is_root() {
        true => AcceptedOptions::default(),
        false => AcceptedOptions::all(),
    }
}

fn absolute(text: &str) -> Option<PathBuf> {
    Some(PathBuf::from(text)).filter(|path| path.is_absolute())
}

/// Parses the maximum number of units that start at the same time.
pub(crate) fn starting(text: &str) -> Option<Option<NonZeroU32>> {
    match text {
        "none" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Returns the unsupported options to ignore. Without a configured policy, these are `default`.
fn accept(values: &Values<'_>, default: AcceptedOptions) -> Result<AcceptedOptions, ConfigError> {
    let policy = values.parsed("native_unsupported", "\"refuse\" or \"warn\"", |text| match text {
        "refuse" => Some(AcceptedOptions::default()),
        "warn" => Some(AcceptedOptions::all()),
        _ => None,
    });
    let mut accepted = policy?.unwrap_or(default);
    let Some(found) = values.raw.get("native_accept") else { return Ok(accepted) };
    for item in found.raw.items() {
        let origin = || found.origin.clone();
        accepted
            .add(item.trim())
            .map_err(|error| ConfigError::UnknownOption { origin: origin(), error })?;
    }
    Ok(accepted)
}

/// Parses an external unit and the check of its state.
pub(crate) fn external(text: &str) -> Option<(UnitName, External)> {
    let (unit, how) = text.split_once('=')?;
    Some((UnitName::parse(unit.trim()).ok()?, how.trim().parse().ok()?))
}

/// Parses all items of a list.
fn all<T, A: Default + FromIterator<T>>(
    values: &Values<'_>,
    key: &'static str,
    expected: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<A, ConfigError> {
    let Some(found) = values.raw.get(key) else { return Ok(A::default()) };
    let read =
        |item: String| read(item.trim()).ok_or_else(|| bad_value(key, found, expected, item));
    found.raw.items().into_iter().map(read).collect()
}

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

//! Reloads the configuration, certificates and tokens, as far as possible without a restart.
//! `RELOADABLE` in `config/keys.rs` lists the keys whose changes take effect.

use std::path::PathBuf;

use fleet_store::registry::MachineRecord;
use rustix::process::geteuid;

use super::auth_reload::AuthReloader;
use super::config::{self, Config, RELOADABLE, RawConfig};
use super::error::StartError;
use super::machine;
use super::run::config_error;
use super::wire_up::RunningDaemon;
use crate::ui::logging::Level;

/// Sources of the configuration, and the values last read.
pub(crate) struct ConfigSource {
    file: Option<PathBuf>,
    flags: RawConfig,
    found: RawConfig,
}

impl ConfigSource {
    /// Reads and checks the configuration.
    pub(crate) fn read(
        file: Option<PathBuf>,
        flags: RawConfig,
    ) -> Result<(Self, Config), StartError> {
        let mut source = Self { file, flags, found: RawConfig::new() };
        let config;
        (source.found, config) = source.load()?;
        Ok((source, config))
    }

    fn load(&self) -> Result<(RawConfig, Config), StartError> {
        let environment = |name: &str| std::env::var(name).ok();
        let found = config::find(self.file.as_deref(), &environment, self.flags.clone());
        let found = found.map_err(config_error)?;
        let config = Config::resolve(&found).map_err(config_error)?;
        config.check_user(&found, geteuid().is_root()).map_err(config_error)?;
        Ok((found, config))
    }

    /// Reads the configuration and the authentication files again, and applies the changes that
    /// need no restart. If anything is invalid, nothing changes.
    ///
    /// Returns a text for the daemon's status, which is empty if there is nothing to report.
    /// `machine` is the record that the machine had at startup.
    pub(crate) fn reload(
        &mut self,
        machine: &MachineRecord,
        running: &RunningDaemon,
        auth: &AuthReloader,
        level: &Level,
    ) -> String {
        let (found, config) = match self.load() {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(
                    "cannot reload the configuration, so the previous one stays in effect: {error}"
                );
                return format!("the configuration was not reloaded: {error}");
            }
        };
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        if let Err(error) = auth.reload() {
            tracing::error!(
                "cannot reload certificates and tokens, so the previous ones and the previous \
                 configuration stay in effect: {error}"
            );
            return format!("nothing was reloaded: {error}");
        }
        level.set(config.verbosity);
        let now = machine::record(&config, machine.id.clone(), &[]);
        let (started, api) = (machine.started, machine.api.clone());
        running.describe(&MachineRecord { started, api, ..now });
        let pending = self.restart_required(&found);
        for key in &pending {
            tracing::warn!("the new value of {key} takes effect only after a restart of fleetd");
        }
        // Keys that require a restart keep their old values, so that the next reload reports them
        // again.
        self.found.retain(|key, _| !RELOADABLE.contains(key));
        self.found.extend(found.into_iter().filter(|(key, _)| RELOADABLE.contains(key)));
        tracing::info!("reloaded the configuration");
        if pending.is_empty() {
            return String::new();
        }
        format!("reloaded; restart required: {}", pending.join(", "))
    }

    /// Returns the changed keys that require a restart.
    fn restart_required(&self, found: &RawConfig) -> Vec<&'static str> {
        let raw = |low: &RawConfig, key: &str| low.get(key).map(|found| found.raw.clone());
        let keys = config::KEYS.iter().map(|key| key.name);
        let other = keys.filter(|key| raw(found, key) != raw(&self.found, key));
        other.filter(|key| !RELOADABLE.contains(key)).collect()
    }
}

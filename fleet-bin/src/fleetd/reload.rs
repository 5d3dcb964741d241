//! Reads the configuration again while the daemon runs, and does what needs no restart.

use std::path::PathBuf;

use fleet_store::MachineRecord;

use super::config::{self, Config, LIVE, Low};
use super::doors::Doors;
use super::error::StartError;
use super::logging::Level;
use super::machine;
use super::run::explain;
use super::wire_up::Running;

/// Where a configuration comes from, and what it was when it was last read.
pub(crate) struct Source {
    file: Option<PathBuf>,
    flags: Low,
    found: Low,
}

impl Source {
    /// Reads and checks the configuration.
    pub(crate) fn read(file: Option<PathBuf>, flags: Low) -> Result<(Self, Config), StartError> {
        let mut source = Self { file, flags, found: Low::new() };
        let config;
        (source.found, config) = source.look()?;
        Ok((source, config))
    }

    fn look(&self) -> Result<(Low, Config), StartError> {
        let environment = |name: &str| std::env::var(name).ok();
        let found = config::find(self.file.as_deref(), &environment, self.flags.clone());
        let found = found.map_err(explain)?;
        let config = Config::resolve(&found).map_err(explain)?;
        Ok((found, config))
    }

    /// Reads it again. What is wrong leaves everything as it is. Returns what to tell people.
    ///
    /// `machine` is what the machine said of itself when the daemon was started.
    pub(crate) fn reload(
        &mut self,
        machine: &MachineRecord,
        running: &Running,
        doors: &Doors,
        level: &Level,
    ) -> String {
        let (found, config) = match self.look() {
            Ok(read) => read,
            Err(error) => {
                tracing::error!("the configuration stays as it was: {error}");
                return format!("the configuration was not reloaded: {error}");
            }
        };
        for remark in &config.remarks {
            tracing::warn!("{remark}");
        }
        if let Err(error) = doors.reload() {
            tracing::error!("the configuration, and who is let in, stay as they were: {error}");
            return format!("nothing was reloaded, nor certificates and tokens: {error}");
        }
        level.set(config.verbosity);
        let now = machine::record(&config, machine.id.clone(), &[]);
        let (started, api) = (machine.started, machine.api.clone());
        running.describe(&MachineRecord { started, api, ..now });
        let late = self.late(&found);
        for key in &late {
            tracing::warn!("a change of {key} needs a restart of fleetd");
        }
        // What needs a restart stays as it was, so that the next reload tells of it again.
        self.found.retain(|key, _| !LIVE.contains(key));
        self.found.extend(found.into_iter().filter(|(key, _)| LIVE.contains(key)));
        tracing::info!("the configuration was read again");
        if late.is_empty() {
            return String::new();
        }
        format!("reloaded; needs a restart: {}", late.join(", "))
    }

    /// The keys that are other than they were and that only a restart changes.
    fn late(&self, found: &Low) -> Vec<&'static str> {
        let raw = |low: &Low, key: &str| low.get(key).map(|found| found.raw.clone());
        let keys = config::KEYS.iter().map(|key| key.name);
        let other = keys.filter(|key| raw(found, key) != raw(&self.found, key));
        other.filter(|key| !LIVE.contains(key)).collect()
    }
}

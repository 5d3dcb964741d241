//! `fleetd accept-store`: a person decides that this machine follows another store.
//!
//! The daemon itself changes its saved state, when it starts. So the command may run beside a
//! daemon, and needs neither the store nor the API.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fleet_agent::{AgentState, accept_any_store, protected_lineage, write_atomic};
use fleet_core::MachineId;
use fleet_store::registry::Lineage;

use super::config::{Config, StoreKind};
use super::error::{Context as _, StartError};
use super::machine;

/// Stores that may change the units of a machine.
#[derive(Debug, Clone)]
pub(crate) enum StorePolicy {
    /// Any store: a store in memory is new at each start.
    Any,
    /// The store that the machine has followed, or any if this file exists.
    Known {
        /// File by which a person accepts any store once.
        accepted: PathBuf,
    },
}

impl StorePolicy {
    pub(crate) fn of(config: &Config) -> Self {
        match config.store {
            StoreKind::Memory => Self::Any,
            _ => Self::Known { accepted: marker(&machine::directory(config)) },
        }
    }

    /// Returns the lineage that the store must continue. If a person has accepted any store, first
    /// records that in the machine's saved state.
    pub(crate) async fn protected_lineage(
        &self,
        state: &dyn AgentState,
        machine: &MachineId,
    ) -> Result<Option<Lineage>, StartError> {
        let Self::Known { accepted } = self else { return Ok(None) };
        let what =
            || format!("cannot accept another store, as requested by {}", accepted.display());
        if accepted.try_exists().context(what)? {
            accept_any_store(state, machine).await.context(what)?;
            fs::remove_file(accepted).context(what)?;
            tracing::info!("following the present store, because \"fleetd accept-store\" was run");
        }
        Ok(protected_lineage(state, machine).await)
    }
}

/// Lets the next daemon of this configuration follow any store.
pub(crate) fn run(config: &Config) -> Result<(), StartError> {
    let directory = machine::directory(config);
    let marker = marker(&directory);
    write_atomic(&marker, b"", true).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StartError::new(format!(
            "{} does not exist, so no fleetd has run here, and the next one follows any store",
            directory.display()
        )),
        _ => StartError::because(format!("cannot write {}", marker.display()), error),
    })
}

fn marker(directory: &Path) -> PathBuf {
    directory.join("accept-store")
}

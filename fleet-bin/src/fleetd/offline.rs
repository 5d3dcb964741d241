//! The store that a daemon's configuration names, opened without the daemon.

use std::path::Path;

use fleet_core::Strictness;
use fleet_store::Registry;

use super::config::{Config, Low, StoreKind};
use super::error::{Context as _, StartError};
use super::reload::Source;
use super::{identity, wire_up};

/// The cluster of a configuration.
pub(crate) struct Offline {
    /// The cluster.
    pub(crate) registry: Registry,
    /// What its daemon does about what the old program passed over in silence.
    pub(crate) strictness: Strictness,
    /// What a person should know of the configuration.
    pub(crate) remarks: Vec<String>,
}

/// What is to be done with a store that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is nothing to be had of it.
    Refuse,
    /// It is made.
    Make,
    /// It is taken for an empty one, and not made.
    Pretend,
}

/// Opens the store that a configuration names. No daemon may have it open, unless it is etcd.
pub(crate) async fn open(file: &Path, missing: Missing) -> Result<Offline, StartError> {
    let (_, config) = Source::read(Some(file.to_owned()), Low::new())?;
    let kind = match &config.store {
        StoreKind::Memory => return Err(in_memory(file)),
        StoreKind::Embedded => embedded(&config, missing)?,
        #[cfg(feature = "etcd")]
        etcd @ StoreKind::Etcd(_) => etcd.clone(),
    };
    let registry = wire_up::open_registry(&kind, &config.data_dir).await?;
    if missing == Missing::Make {
        identity::settle_lineage(&registry).await?;
    }
    Ok(Offline { registry, strictness: config.strictness, remarks: config.remarks })
}

fn in_memory(file: &Path) -> StartError {
    StartError::usage(format!(
        "{} keeps the cluster in the memory of the daemon: ask the daemon, without --config",
        file.display()
    ))
}

/// What to open in place of an embedded store that may be missing.
fn embedded(config: &Config, missing: Missing) -> Result<StoreKind, StartError> {
    let path = Config::store_file(&config.data_dir);
    if path.exists() {
        return Ok(StoreKind::Embedded);
    }
    match missing {
        Missing::Refuse => Err(StartError::new(format!("there is no store {}", path.display()))),
        Missing::Pretend => Ok(StoreKind::Memory),
        Missing::Make => {
            let what = || format!("cannot make {}", config.data_dir.display());
            std::fs::create_dir_all(&config.data_dir).context(what)?;
            Ok(StoreKind::Embedded)
        }
    }
}

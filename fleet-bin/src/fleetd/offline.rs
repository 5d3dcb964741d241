//! Access to a configured store without its daemon, and `fleetd accept-store`: a person decides
//! that this machine follows another store. The daemon changes its saved state when it starts. So
//! the command may run beside a daemon, and needs neither the store nor the API.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fs, io};

use fleet_agent::AgentState;
use fleet_agent::agent::{accept_any_store, protected_lineage};
use fleet_agent::files::{create_dir_with_mode, write_atomic};
use fleet_core::{MachineId, Strictness};
use fleet_store::Registry;
use fleet_store::registry::Lineage;
use tempfile::TempDir;

use super::config::{Config, RawConfig, StoreKind};
use super::reload::ConfigSource;
use super::{Context as _, StartError, directories, identity, machine, wire_up};

/// The store of a configuration.
pub(crate) struct OfflineCluster {
    /// Registry of the store.
    pub(crate) registry: Registry,
    /// Handling of unit files that fleet v1 silently accepted.
    pub(crate) strictness: Strictness,
    /// Warnings about the configuration.
    pub(crate) warnings: Vec<String>,
    new_store: Option<NewStore>,
}

/// A new store in a temporary directory, which is deleted on drop.
struct NewStore {
    folder: TempDir,
    /// Lock that marks the directory as used.
    _lock: File,
    data_dir: PathBuf,
}

/// Prefix of temporary directories for new stores.
const TEMP_PREFIX: &str = ".fleet-import-";

/// Handling of a missing store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingStore {
    /// Fail.
    Refuse,
    /// Create it; it takes effect with [`keep`](OfflineCluster::keep).
    Create,
    /// Treat it as empty, without creating it.
    AssumeEmpty,
}

/// Opens the store that a configuration file names. A daemon may use an etcd store at the same
/// time, but not an embedded store.
pub(crate) async fn open(file: &Path, missing: MissingStore) -> Result<OfflineCluster, StartError> {
    let (_, config) = ConfigSource::read(Some(file.to_owned()), RawConfig::new())?;
    let (kind, new_store) = match &config.store {
        StoreKind::Memory => return Err(memory_store_error(file)),
        StoreKind::Embedded => embedded(&config, missing)?,
        #[cfg(feature = "etcd")]
        etcd @ StoreKind::Etcd(_) => (etcd.clone(), None),
    };
    let data_dir =
        new_store.as_ref().map_or(config.data_dir.as_path(), |new_store| new_store.folder.path());
    let registry = wire_up::open_registry(&kind, data_dir).await?;
    if missing == MissingStore::Create {
        identity::ensure_lineage(&registry).await?;
    }
    Ok(OfflineCluster {
        registry,
        strictness: config.strictness,
        warnings: config.warnings,
        new_store,
    })
}

impl OfflineCluster {
    /// Moves a new store from its temporary directory to its final path, and syncs the directory. A
    /// new store is deleted on drop unless this is called.
    pub(crate) fn keep(self) -> Result<(), StartError> {
        let Some(NewStore { folder, data_dir, .. }) = self.new_store else { return Ok(()) };
        let (from, to) = (Config::store_file(folder.path()), Config::store_file(&data_dir));
        let what = || format!("cannot create the store {}", to.display());
        create_dir_with_mode(&data_dir, directories::DATA_DIR_MODE).context(what)?;
        // Unlike a rename, a hard link never replaces a store that was created in the meantime.
        fs::hard_link(from, &to).context(what)?;
        File::open(&data_dir).and_then(|folder| folder.sync_all()).context(what)
    }
}

fn memory_store_error(file: &Path) -> StartError {
    StartError::usage(format!(
        "{} selects the memory store, which only the running daemon can read: omit --config to \
         use that daemon",
        file.display()
    ))
}

/// Returns the store to open for an embedded store that may be missing.
fn embedded(
    config: &Config,
    missing: MissingStore,
) -> Result<(StoreKind, Option<NewStore>), StartError> {
    let path = Config::store_file(&config.data_dir);
    if path.exists() {
        return Ok((StoreKind::Embedded, None));
    }
    match missing {
        MissingStore::Refuse => {
            Err(StartError::new(format!("the store {} does not exist", path.display())))
        }
        MissingStore::AssumeEmpty => Ok((StoreKind::Memory, None)),
        MissingStore::Create => {
            // On the same file system as the store's final place.
            let beside = nearest_existing(&config.data_dir);
            let what = || format!("cannot create a store in {}", beside.display());
            let (folder, lock) = temp_folder_in(beside).context(what)?;
            let new_store = NewStore { folder, _lock: lock, data_dir: config.data_dir.clone() };
            Ok((StoreKind::Embedded, Some(new_store)))
        }
    }
}

/// Creates and locks a temporary directory for a new store. Also removes the temporary directories
/// of killed imports, which have the same name prefix but are no longer locked.
fn temp_folder_in(beside: &Path) -> io::Result<(TempDir, File)> {
    // Prevents concurrent calls from removing a directory that is not locked yet.
    let all = File::open(beside)?;
    all.lock()?;
    for entry in beside.read_dir()?.filter_map(Result::ok) {
        let is_stale = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if is_stale && let Err(error) = fs::remove_dir_all(entry.path()) {
            let folder = entry.path();
            tracing::warn!(
                folder = %folder.display(), %error,
                "cannot remove the temporary directory of an earlier import: remove it by hand"
            );
        }
    }
    let folder = tempfile::Builder::new().prefix(TEMP_PREFIX).tempdir_in(beside)?;
    let lock = File::open(folder.path())?;
    lock.lock()?;
    Ok((folder, lock))
}

/// Returns the directory itself, or its nearest existing ancestor.
fn nearest_existing(folder: &Path) -> &Path {
    let mut above = folder.ancestors().filter(|it| *it != Path::new(""));
    above.find(|it| it.is_dir()).unwrap_or(Path::new("."))
}

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
pub(crate) fn accept_store(config: &Config) -> Result<(), StartError> {
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

//! The store that a daemon's configuration names, opened without the daemon.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fleet_core::Strictness;
use fleet_store::Registry;
use tempfile::TempDir;

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
    made: Option<Made>,
}

/// A store in the making, in a folder that goes when it is dropped.
struct Made {
    folder: TempDir,
    /// Held for as long as somebody works in the folder.
    _lock: File,
    data_dir: PathBuf,
}

/// How the names of folders begin in which a store is made.
const MAKING: &str = ".fleet-import-";

/// What is to be done with a store that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There is nothing to be had of it.
    Refuse,
    /// It is made, and is there once it is [kept](Offline::keep).
    Make,
    /// It is taken for an empty one, and not made.
    Pretend,
}

/// Opens the store that a configuration names. No daemon may have it open, unless it is etcd.
pub(crate) async fn open(file: &Path, missing: Missing) -> Result<Offline, StartError> {
    let (_, config) = Source::read(Some(file.to_owned()), Low::new())?;
    let (kind, made) = match &config.store {
        StoreKind::Memory => return Err(in_memory(file)),
        StoreKind::Embedded => embedded(&config, missing)?,
        #[cfg(feature = "etcd")]
        etcd @ StoreKind::Etcd(_) => (etcd.clone(), None),
    };
    let data_dir = made.as_ref().map_or(config.data_dir.as_path(), |made| made.folder.path());
    let registry = wire_up::open_registry(&kind, data_dir).await?;
    if missing == Missing::Make {
        identity::settle_lineage(&registry).await?;
    }
    Ok(Offline { registry, strictness: config.strictness, remarks: config.remarks, made })
}

impl Offline {
    /// Gives a store that was made its place; what it holds is on the disk. Without this nothing is
    /// left of it.
    pub(crate) fn keep(self) -> Result<(), StartError> {
        let Some(Made { folder, data_dir, .. }) = self.made else { return Ok(()) };
        let (from, to) = (Config::store_file(folder.path()), Config::store_file(&data_dir));
        let what = || format!("cannot make the store {}", to.display());
        std::fs::create_dir_all(&data_dir).context(what)?;
        // Unlike a renaming, a link takes the place of no store that came there meanwhile.
        std::fs::hard_link(from, &to).context(what)?;
        File::open(&data_dir).and_then(|folder| folder.sync_all()).context(what)
    }
}

fn in_memory(file: &Path) -> StartError {
    StartError::usage(format!(
        "{} keeps the cluster in the memory of the daemon: ask the daemon, without --config",
        file.display()
    ))
}

/// What to open in place of an embedded store that may be missing.
fn embedded(config: &Config, missing: Missing) -> Result<(StoreKind, Option<Made>), StartError> {
    let path = Config::store_file(&config.data_dir);
    if path.exists() {
        return Ok((StoreKind::Embedded, None));
    }
    match missing {
        Missing::Refuse => Err(StartError::new(format!("there is no store {}", path.display()))),
        Missing::Pretend => Ok((StoreKind::Memory, None)),
        Missing::Make => {
            // On the same file system as the place that it is to get.
            let beside = nearest_folder(&config.data_dir);
            let what = || format!("cannot make a store in {}", beside.display());
            let (folder, lock) = folder_in(beside).context(what)?;
            let made = Made { folder, _lock: lock, data_dir: config.data_dir.clone() };
            Ok((StoreKind::Embedded, Some(made)))
        }
    }
}

/// A folder to make a store in, and its lock. What an import has left that was killed is cleared
/// away: it is known by its name, and by that nobody has its lock.
fn folder_in(beside: &Path) -> io::Result<(TempDir, File)> {
    // Nobody else takes a folder for a left one before it is locked.
    let all = File::open(beside)?;
    all.lock()?;
    for entry in beside.read_dir()?.filter_map(Result::ok) {
        let is_left = entry.file_name().to_string_lossy().starts_with(MAKING)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if is_left && let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!(folder = %entry.path().display(), %error, "a left folder stays");
        }
    }
    let folder = tempfile::Builder::new().prefix(MAKING).tempdir_in(beside)?;
    let lock = File::open(folder.path())?;
    lock.lock()?;
    Ok((folder, lock))
}

/// The folder itself, or the first one above it that is there.
fn nearest_folder(folder: &Path) -> &Path {
    let mut above = folder.ancestors().filter(|it| *it != Path::new(""));
    above.find(|it| it.is_dir()).unwrap_or(Path::new("."))
}

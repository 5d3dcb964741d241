//! The daemon's directories: their creation, and the access of other users.
//!
//! Unit files, logs and the store may contain secrets. The mode of each directory and file is set
//! explicitly, so it does not depend on the umask.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use fleet_agent::files::{create_dir_with_mode, create_private_dir};
use rustix::process::geteuid;

use super::{Context as _, StartError};

/// Mode of a data directory.
pub(crate) const DATA_DIR_MODE: u32 = 0o750;

/// Mode of the data directory of `fleetd dev`.
pub(crate) const DEV_DATA_DIR_MODE: u32 = 0o700;

/// Mode of a runtime directory.
const RUNTIME_DIR_MODE: u32 = 0o750;

/// Entries of a data directory that fleetd creates.
const DATA_ENTRIES: [&str; 3] = ["store.redb", "machine", "machines"];

/// Entries of a runtime directory that fleetd creates.
const RUNTIME_ENTRIES: [&str; 2] = ["token", "fence.json"];

/// Mode bits that are removed from existing entries: writing by the group, and all access of
/// others.
const REMOVED: u32 = 0o027;

/// Creates the data directory with this mode, if it is missing.
///
/// Otherwise removes the access of other users from the directory and from the entries that fleetd
/// created. Returns an error if another user may have written them, because the stored units would
/// run with the rights of the daemon.
pub(crate) fn prepare_data_dir(path: &Path, mode: u32) -> Result<(), StartError> {
    let made = create_dir_with_mode(path, mode);
    made.context(|| format!("cannot create the data directory {}", path.display()))?;
    // The data directory itself may be a symbolic link.
    let path = &path.canonicalize().context(|| format!("cannot use {}", path.display()))?;
    refuse_foreign(path, &DATA_ENTRIES)?;
    let mut restricted = Restricted::default();
    restricted.add(path, !mode & 0o777);
    restricted.add_entries(path, &DATA_ENTRIES);
    restricted.log(path);
    Ok(())
}

/// Creates the runtime directory, if it is missing. Otherwise removes the access of other users
/// from the files that fleetd created. Returns an error if another user may have written them.
pub(crate) fn prepare_runtime_dir(path: &Path) -> Result<(), StartError> {
    let made = create_dir_with_mode(path, RUNTIME_DIR_MODE);
    made.context(|| format!("cannot create {} (choose another runtime_dir)", path.display()))?;
    refuse_foreign(path, &RUNTIME_ENTRIES)?;
    let mut restricted = Restricted::default();
    restricted.add_entries(path, &RUNTIME_ENTRIES);
    restricted.log(path);
    Ok(())
}

/// Creates a directory that only the daemon's user can access.
pub(crate) fn create_private(path: &Path) -> Result<(), StartError> {
    create_private_dir(path).context(|| format!("cannot create {}", path.display()))
}

/// Returns an error if another user may have written a directory or one of these entries.
fn refuse_foreign(directory: &Path, names: &[&str]) -> Result<(), StartError> {
    let entries = names.iter().map(|name| directory.join(name));
    for path in [directory.to_owned()].into_iter().chain(entries) {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let (owner, mode) = (metadata.uid(), metadata.permissions().mode() & 0o777);
        if let Some(problem) = foreign_problem(owner, mode, geteuid().as_raw()) {
            return Err(StartError::usage(format!(
                "cannot use {path}: {problem}; choose another directory, or, if you trust the \
                 content of this one, run \"chown -R {user} {directory}\" and \"chmod -R o-w \
                 {directory}\"",
                path = path.display(),
                user = geteuid().as_raw(),
                directory = directory.display()
            )));
        }
    }
    Ok(())
}

/// Returns why a file may contain the data of another user than `user`.
fn foreign_problem(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!(
            "it belongs to user {owner}, and fleetd runs its units as user {user}"
        ));
    }
    let is_open = mode & 0o002 != 0;
    is_open.then(|| format!("every user can write to it (mode {mode:04o})"))
}

/// Removes the access of other users from existing files and directories.
#[derive(Default)]
struct Restricted {
    /// Number of files and directories with a changed mode.
    changed: usize,
    /// First failure, with its path.
    failed: Option<(PathBuf, io::Error)>,
}

impl Restricted {
    /// Restricts these entries of a directory, and everything below them.
    fn add_entries(&mut self, directory: &Path, names: &[&str]) {
        let mut pending: Vec<PathBuf> = names.iter().map(|name| directory.join(name)).collect();
        while let Some(path) = pending.pop() {
            // Symbolic links are not followed.
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
            self.add(&path, REMOVED);
            if is_dir && let Ok(entries) = fs::read_dir(&path) {
                pending.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
            }
        }
    }

    /// Removes mode bits from a file or directory.
    fn add(&mut self, path: &Path, removed: u32) {
        match remove_mode_bits(path, removed) {
            Ok(is_changed) => self.changed += usize::from(is_changed),
            // A fleet-init may replace its files meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if self.failed.is_none() => self.failed = Some((path.to_owned(), error)),
            Err(_) => {}
        }
    }

    fn log(self, directory: &Path) {
        let directory = directory.display();
        if self.changed > 0 {
            let files = self.changed;
            tracing::info!(%directory, files, "removed the access of other users to own files");
        }
        if let Some((path, error)) = self.failed {
            tracing::warn!(
                path = %path.display(), %error,
                "cannot remove the access of other users: remove it with chmod"
            );
        }
    }
}

/// Removes mode bits from a file or directory of the daemon's user. Returns whether the mode has
/// changed.
fn remove_mode_bits(path: &Path, removed: u32) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    let mode = metadata.permissions().mode() & 0o7777;
    let is_own = metadata.uid() == geteuid().as_raw();
    let has_mode = metadata.is_dir() || metadata.is_file();
    if !is_own || !has_mode || mode & removed == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !removed))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_another_user_is_refused() {
        let cases = [
            (0, 0o750, 0, None),
            (1000, 0o700, 1000, None),
            (0, 0o755, 1000, None),
            (1000, 0o770, 1000, None),
            (1000, 0o700, 0, Some("it belongs to user 1000, and fleetd runs its units as user 0")),
            (1001, 0o755, 1000, Some("it belongs to user 1001")),
            (0, 0o777, 0, Some("every user can write to it (mode 0777)")),
        ];
        for (owner, mode, user, expected) in cases {
            let problem = foreign_problem(owner, mode, user);
            let is_expected = match (&problem, expected) {
                (Some(problem), Some(expected)) => problem.starts_with(expected),
                (problem, expected) => problem.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{owner} {mode:o} {user}: {problem:?}");
        }
    }

    #[test]
    fn writable_store_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.redb");
        fs::write(&store, "").unwrap();
        fs::set_permissions(&store, Permissions::from_mode(0o666)).unwrap();
        let error = prepare_data_dir(folder.path(), DATA_DIR_MODE).unwrap_err().to_string();
        assert!(error.contains("store.redb: every user can write"), "{error}");
        fs::set_permissions(&store, Permissions::from_mode(0o664)).unwrap();
        prepare_data_dir(folder.path(), DATA_DIR_MODE).unwrap();
        assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o640);
    }
}

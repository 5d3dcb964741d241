//! The directory for the state of a supervisor that is meaningless after a reboot: the records of
//! runs, the choices of operators, and the notification sockets.
//!
//! It is usually in memory (`/run`). So a full disk keeps no unit from starting, and units of other
//! users can reach the sockets, which they could not in the private directory of the supervisor.
//! Logs stay on disk, because they are large.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::manager_context::was_used_this_boot;
use crate::private_file::create_dir_with_mode;

/// Mode of the directories: other users can reach a socket whose name they know, but list nothing.
const MODE: u32 = 0o711;

/// Name of the directory with the sockets.
const SOCKETS: &str = "notify";

/// Directories of a supervisor.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    /// Directory for logs. It also identifies the supervisor.
    pub(crate) state: PathBuf,
    /// Directory for everything else; may be `state`.
    pub(crate) runtime: PathBuf,
    /// Directory for sockets, if other users can reach it.
    pub(crate) sockets: Option<PathBuf>,
}

impl Directories {
    /// Returns the directories of a supervisor that keeps everything in one directory.
    pub(crate) fn one(state: PathBuf) -> Self {
        Self { runtime: state.clone(), state, sockets: None }
    }

    /// Prepares a runtime directory below `base` for the supervisor with this state directory,
    /// which must be locked. Uses the state directory instead if
    ///
    /// - there is no `base`, or no directory can be created there, or
    /// - a supervisor has already kept the records of this boot in the state directory.
    pub(crate) fn prepare(state: PathBuf, base: Option<&Path>) -> Self {
        let Some(base) = base else { return Self::one(state) };
        let (runtime, sockets) = match create(&state, base) {
            Ok(created) => created,
            Err(error) => {
                tracing::warn!(
                    %error,
                    base = %base.display(),
                    directory = %state.display(),
                    "cannot use the runtime directory: keeping records of units in the state \
                     directory, where a full disk prevents starts"
                );
                return Self::one(state);
            }
        };
        let is_used = |directory| was_used_this_boot(directory).unwrap_or_default();
        if is_used(&state) && !is_used(&runtime) {
            return Self::one(state);
        }
        Self { state, runtime, sockets: Some(sockets) }
    }
}

/// Creates the runtime directory of a supervisor, and an empty directory for sockets in it.
fn create(state: &Path, base: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let runtime = base.join(identity(state)?);
    let sockets = runtime.join(SOCKETS);
    match std::fs::remove_dir_all(&sockets) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create_dir_with_mode(&sockets, MODE)?;
    // A umask may have removed the access of other users.
    let permissions = || std::fs::Permissions::from_mode(MODE);
    std::fs::set_permissions(&runtime, permissions())?;
    std::fs::set_permissions(&sockets, permissions())?;
    Ok((runtime, sockets))
}

/// Returns a name that identifies a directory. The creation time distinguishes a directory from an
/// earlier one with the same inode number.
fn identity(directory: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(directory)?;
    let created =
        metadata.created().ok().and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok());
    let created = created.unwrap_or_default().as_nanos();
    Ok(format!("{:x}-{:x}-{created:x}", metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::manager_context::forget_old_boot;

    #[test]
    fn runtime_directory_belongs_to_one_state_directory() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (state, base) = (home.path().join("state"), home.path().join("run"));
        let prepare = || {
            std::fs::create_dir_all(&state).expect("it can be created");
            Directories::prepare(state.clone(), Some(&base))
        };
        let first = prepare();
        let sockets = first.sockets.expect("they have a directory");
        std::fs::write(sockets.join("stale"), "").expect("it can be written");
        assert_eq!(prepare().runtime, first.runtime);
        assert!(!sockets.join("stale").exists(), "an earlier socket is left");
        std::fs::rename(&state, home.path().join("other")).expect("it can be renamed");
        assert_ne!(prepare().runtime, first.runtime);
    }

    #[test]
    fn records_of_this_boot_in_the_state_directory_are_used() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let base = home.path().join("run");
        let state = home.path().join("state");
        std::fs::create_dir(&state).expect("it can be created");
        let earlier = Directories::one(state.clone());
        forget_old_boot(&earlier).expect("it can be prepared");
        let next = Directories::prepare(state.clone(), Some(&base));
        assert_eq!(next.runtime, state);
        // It cannot be created.
        let next = Directories::prepare(state.clone(), Some(&state.join("boot")));
        assert_eq!((next.runtime, next.sockets), (state, None));
    }
}

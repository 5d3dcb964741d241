//! The directory for the state of a supervisor that is meaningless after a reboot: the records of
//! runs, the choices of operators, and the notification sockets.
//!
//! It is usually in memory (`/run`). So a full disk keeps no unit from starting, and units of other
//! users can reach the sockets, which they could not in the private directory of the supervisor.
//! Logs stay on disk, because they are large.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::manager_context::was_used_this_boot;
use crate::atomic_file::write_atomic;
use crate::private_file::create_dir_with_mode;

/// Mode of the directories: other users can reach a socket whose name they know, but list nothing.
const MODE: u32 = 0o711;

/// Name of the directory with the sockets.
const SOCKETS: &str = "notify";

/// Name of the file of a state directory that names the runtime directory.
const REMEMBERED: &str = "runtime";

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
    /// which must be locked.
    ///
    /// A supervisor that has run since boot may have left running units, so the directory with
    /// their records is used again, whatever `base` is now. The state directory is used if there is
    /// no `base`, or no directory can be created there.
    pub(crate) fn prepare(state: PathBuf, base: Option<&Path>) -> Self {
        let is_used = |directory: &Path| was_used_this_boot(directory).unwrap_or_default();
        let earlier = Some(&state).filter(|state| is_used(state)).map(|state| remembered(state));
        let runtime = match (earlier, base) {
            (Some(Some(earlier)), _) if is_used(&earlier) => Ok(earlier),
            (Some(None), _) | (_, None) => return Self::one(state),
            (_, Some(base)) => identity(&state).map(|name| base.join(name)),
        };
        match runtime.and_then(|runtime| Ok((create(&runtime)?, runtime))) {
            Ok((sockets, runtime)) => Self { state, runtime, sockets: Some(sockets) },
            Err(error) => {
                tracing::warn!(
                    %error,
                    directory = %state.display(),
                    "cannot use the runtime directory: keeping records of units in the state \
                     directory, where a full disk prevents starts"
                );
                Self::one(state)
            }
        }
    }

    /// Stores the runtime directory in the state directory, for the next supervisor of this boot.
    pub(crate) fn remember(&self) -> io::Result<()> {
        if self.state == self.runtime {
            return match std::fs::remove_file(self.state.join(REMEMBERED)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        if remembered(&self.state).as_ref() == Some(&self.runtime) {
            return Ok(());
        }
        let text = self.runtime.as_os_str().as_bytes();
        write_atomic(&self.state.join(REMEMBERED), text, true)
    }
}

/// Returns the runtime directory that was stored in a state directory, if there is one.
fn remembered(state: &Path) -> Option<PathBuf> {
    let text = std::fs::read(state.join(REMEMBERED)).ok()?;
    Some(PathBuf::from(OsString::from_vec(text)))
}

/// Creates a runtime directory, and an empty directory for sockets in it. Returns the latter.
///
/// # Errors
///
/// Fails if the directory belongs to another user, whose records would start programs.
fn create(runtime: &Path) -> io::Result<PathBuf> {
    match std::fs::symlink_metadata(runtime) {
        Ok(found) if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() => {
            let path = runtime.display();
            return Err(io::Error::other(format!("{path} is no directory of this user")));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let sockets = runtime.join(SOCKETS);
    match std::fs::remove_dir_all(&sockets) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    create_dir_with_mode(&sockets, MODE)?;
    // A umask may have removed the access of other users.
    let permissions = || std::fs::Permissions::from_mode(MODE);
    std::fs::set_permissions(runtime, permissions())?;
    std::fs::set_permissions(&sockets, permissions())?;
    Ok(sockets)
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

    /// Regression: a supervisor with another base started all running units a second time.
    #[test]
    fn records_of_this_boot_are_used_whatever_the_base_is() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let state = home.path().join("state");
        std::fs::create_dir(&state).expect("it can be created");
        let (base, other) = (home.path().join("run"), home.path().join("other"));
        let first = Directories::prepare(state.clone(), Some(&base));
        forget_old_boot(&first).expect("it can be prepared");
        for next in [Some(&*other), None, Some(&*base)] {
            let next = Directories::prepare(state.clone(), next);
            assert_eq!(next.runtime, first.runtime);
            forget_old_boot(&next).expect("it can be prepared");
        }
        std::fs::remove_dir_all(&base).expect("it can be removed");
        let next = Directories::prepare(state, Some(&other));
        assert!(next.runtime.starts_with(&other), "{next:?}");
    }

    #[test]
    fn directory_of_another_file_is_not_followed() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (state, base) = (home.path().join("state"), home.path().join("run"));
        let planted = home.path().join("planted");
        for directory in [&state, &base, &planted] {
            std::fs::create_dir(directory).expect("it can be created");
        }
        let link = base.join(identity(&state).expect("it exists"));
        std::os::unix::fs::symlink(&planted, link).expect("it can be created");
        assert_eq!(Directories::prepare(state.clone(), Some(&base)).runtime, state);
    }
}

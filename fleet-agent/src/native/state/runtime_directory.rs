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
use crate::files::{create_dir_with_mode, write_atomic};

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

    /// Returns the directory with the records of this boot for a state directory; `None` if no
    /// supervisor has used it since boot. Does not change anything.
    pub(crate) fn of_this_boot(state: &Path) -> io::Result<Option<PathBuf>> {
        let directory = remembered(state)?.unwrap_or_else(|| state.to_owned());
        Ok(was_used_this_boot(&directory)?.then_some(directory))
    }

    /// Prepares a runtime directory below `base` for the supervisor with this state directory,
    /// which must be locked.
    ///
    /// A supervisor that has run since boot may have left running units, so the directory with
    /// their records is used again, whatever `base` is now. If it was deleted, another one is
    /// created. If no supervisor has run since boot, the state directory is used if there is no
    /// `base`, or no directory can be created there.
    ///
    /// # Errors
    ///
    /// Fails if a directory of this boot cannot be used: without its records, all running units
    /// would start a second time.
    pub(crate) fn prepare(state: PathBuf, base: Option<&Path>) -> io::Result<Self> {
        let was_used = was_used_this_boot(&state).map_err(|error| unusable(&state, &error))?;
        let earlier = if was_used { remembered(&state)? } else { None };
        let has_earlier_records = match &earlier {
            Some(earlier) => has_records(earlier).map_err(|error| unusable(earlier, &error))?,
            None => false,
        };
        let runtime = match (&earlier, base) {
            (Some(earlier), _) if has_earlier_records => earlier.clone(),
            (None, _) if was_used => return Ok(Self::one(state)),
            (_, None) => return Ok(Self::one(state)),
            (_, Some(base)) => base.join(identity(&state)?),
        };
        // A full disk may have prevented the state directory from naming it.
        let is_of_this_boot = earlier.is_some() || has_records(&runtime).unwrap_or_default();
        match create(&runtime) {
            Ok(sockets) => Ok(Self { state, runtime, sockets: Some(sockets) }),
            Err(error) if is_of_this_boot => Err(unusable(&runtime, &error)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    runtime = %runtime.display(),
                    directory = %state.display(),
                    "cannot use the runtime directory: keeping records of units in the state \
                     directory, where a full disk prevents starts"
                );
                Ok(Self::one(state))
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
        if remembered(&self.state)?.as_ref() == Some(&self.runtime) {
            return Ok(());
        }
        let text = self.runtime.as_os_str().as_bytes();
        write_atomic(&self.state.join(REMEMBERED), text, true)
    }
}

/// Returns the runtime directory that was stored in a state directory, if there is one.
fn remembered(state: &Path) -> io::Result<Option<PathBuf>> {
    match std::fs::read(state.join(REMEMBERED)) {
        Ok(text) => Ok(Some(PathBuf::from(OsString::from_vec(text)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(state, &error)),
    }
}

/// Returns whether a directory has records of this boot.
fn has_records(runtime: &Path) -> io::Result<bool> {
    Ok(check_owner(runtime)? && was_used_this_boot(runtime)?)
}

/// Returns the error for a directory of this boot that cannot be used.
fn unusable(directory: &Path, error: &io::Error) -> io::Error {
    let message = format!(
        "{}: {error}; it has the records of units that may be running: make it accessible to this \
         user again, or end these units and remove it",
        directory.display()
    );
    io::Error::new(error.kind(), message)
}

/// Returns whether a runtime directory exists.
///
/// # Errors
///
/// Fails if it belongs to another user, whose records would start programs.
fn check_owner(runtime: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(runtime) {
        Ok(found) if !found.is_dir() => Err(io::Error::other("it is not a directory")),
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            Err(io::Error::other("it belongs to another user"))
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a runtime directory of this user, and an empty directory for sockets in it. Returns the
/// latter.
fn create(runtime: &Path) -> io::Result<PathBuf> {
    check_owner(runtime)?;
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
    use crate::native::state::manager_context::forget_old_boot;

    #[test]
    fn runtime_directory_belongs_to_one_state_directory() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (state, base) = (home.path().join("state"), home.path().join("run"));
        let prepare = || {
            std::fs::create_dir_all(&state).expect("it can be created");
            Directories::prepare(state.clone(), Some(&base)).expect("it can be prepared")
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
        let prepare = |base: &Path| Directories::prepare(state.clone(), Some(base));
        let next = prepare(&base).expect("it can be prepared");
        assert_eq!(next.runtime, state);
        // It cannot be created.
        let next = prepare(&state.join("boot")).expect("it can be prepared");
        assert_eq!((&next.runtime, next.sockets), (&state, None));
    }

    /// Regression: a supervisor with another base started all running units a second time.
    #[test]
    fn records_of_this_boot_are_used_whatever_the_base_is() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let state = home.path().join("state");
        std::fs::create_dir(&state).expect("it can be created");
        let (base, other) = (home.path().join("run"), home.path().join("other"));
        let prepare = |base| Directories::prepare(state.clone(), base).expect("it can be prepared");
        let first = prepare(Some(&*base));
        forget_old_boot(&first).expect("it can be prepared");
        for next in [Some(&*other), None, Some(&*base)] {
            let next = prepare(next);
            assert_eq!(next.runtime, first.runtime);
            forget_old_boot(&next).expect("it can be prepared");
        }
        std::fs::remove_dir_all(&base).expect("it can be removed");
        let next = prepare(Some(&other));
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
        let prepared = Directories::prepare(state.clone(), Some(&base));
        assert_eq!(prepared.expect("it can be prepared").runtime, state);
    }

    /// Regression: a supervisor without these records started all running units a second time.
    #[test]
    fn unusable_records_of_this_boot_are_an_error() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (state, base) = (home.path().join("state"), home.path().join("run"));
        std::fs::create_dir(&state).expect("it can be created");
        let prepare = |base| Directories::prepare(state.clone(), base);
        let first = prepare(Some(&*base)).expect("it can be prepared");
        forget_old_boot(&first).expect("it can be prepared");
        let aside = home.path().join("aside");
        let refused = |base| {
            let message = prepare(base).expect_err("the records are out of reach").to_string();
            assert!(message.starts_with(&first.runtime.display().to_string()), "{message}");
            assert!(message.ends_with("end these units and remove it"), "{message}");
        };
        let other = home.path().join("other");
        let all = [Some(&*base), Some(&*other), None];
        // It is not a directory of this user.
        std::fs::rename(&first.runtime, &aside).expect("it can be renamed");
        std::os::unix::fs::symlink(&aside, &first.runtime).expect("it can be created");
        all.into_iter().for_each(refused);
        std::fs::remove_file(&first.runtime).expect("it is there");
        // The records cannot be read.
        std::fs::create_dir_all(first.runtime.join("boot")).expect("it can be created");
        all.into_iter().for_each(refused);
        std::fs::remove_dir_all(&first.runtime).expect("it is there");
        // The directory was deleted, and cannot be created.
        std::fs::remove_dir_all(&base).expect("it is there");
        std::fs::write(&base, "").expect("it can be written");
        refused(Some(&*base));
        std::fs::remove_file(&base).expect("it is there");
        prepare(Some(&*base)).expect("it can be created again");
    }

    /// A full disk may keep the state directory from naming the directory.
    #[test]
    fn unusable_records_without_a_name_are_an_error() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (state, base) = (home.path().join("state"), home.path().join("run"));
        std::fs::create_dir(&state).expect("it can be created");
        let first = Directories::prepare(state.clone(), Some(&base)).expect("it can be prepared");
        forget_old_boot(&first).expect("it can be prepared");
        for file in [REMEMBERED, "boot"] {
            std::fs::remove_file(state.join(file)).expect("it is there");
        }
        std::fs::remove_dir(first.runtime.join(SOCKETS)).expect("it is there");
        std::fs::write(first.runtime.join(SOCKETS), "").expect("it can be written");
        Directories::prepare(state, Some(&base)).expect_err("no sockets can be created");
    }
}

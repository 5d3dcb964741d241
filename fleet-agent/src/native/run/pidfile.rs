//! The pid file, into which a forking service writes the process ID of its main process.

use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use fleet_core::graph::{InitUnit, ServiceType};
use rustix::fs::inotify::WatchFlags;

use crate::native::linux::files::FileWatch;
use crate::native::linux::proc::started;
use crate::native::linux::process_info::ProcessId;

/// Maximum number of bytes read.
const MAX_LENGTH: u64 = 64;

/// Watch for changes of a pid file. If the directory of the file does not exist, its nearest
/// existing ancestor is watched.
#[derive(Debug)]
pub(crate) struct PidFileWatch {
    path: PathBuf,
    changes: FileWatch,
}

impl PidFileWatch {
    /// Starts to watch this path.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let watch = Self { path: path.to_owned(), changes: FileWatch::new()? };
        watch.watch()?;
        Ok(watch)
    }

    /// Polls for a reason to read the file again.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.changes.poll_next(cx)?.map(|()| self.watch())
    }

    fn watch(&self) -> io::Result<()> {
        // A daemon may keep its pid file open, and write it long after its creation.
        let events = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DELETE_SELF;
        Ok(watch_nearest(&self.path, |directory| self.changes.watch(directory, events))?)
    }
}

/// Watches the nearest existing ancestor directory of a path.
///
/// A directory between this ancestor and the path may be created just before the watch is set. The
/// watch does not report that. So after each watch the nearer directories are tried again, until
/// none of them exists.
fn watch_nearest(
    path: &Path,
    mut watch: impl FnMut(&Path) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let directories: Vec<&Path> = path.ancestors().skip(1).collect();
    let mut nearer = directories.as_slice();
    while let Some(found) = watch_first(nearer, &mut watch)? {
        nearer = &nearer[..found];
    }
    Ok(())
}

/// Watches the first of these directories that exists, and returns its index.
fn watch_first(
    directories: &[&Path],
    watch: &mut impl FnMut(&Path) -> rustix::io::Result<()>,
) -> rustix::io::Result<Option<usize>> {
    for (place, directory) in directories.iter().enumerate() {
        match watch(directory) {
            Ok(()) => return Ok(Some(place)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Reason why a pid file does not name a main process. The message starts with the path of the
/// file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PidFileError {
    /// The file names no process of the unit, but may do so shortly.
    #[error("{0}")]
    Wrong(String),
    /// The file, or the process, cannot be examined.
    #[error("{0}")]
    Unknown(io::Error),
}

/// Returns the process that the pid file of a unit names. Returns `None` if the unit has no pid
/// file, or if the file names no process of the unit.
///
/// # Errors
///
/// The file or the process cannot be examined. The caller then has to assume that the file names a
/// process of the unit.
pub(crate) fn named(
    unit: &InitUnit,
    owner: Option<u32>,
    is_own: impl FnOnce(ProcessId) -> io::Result<bool>,
) -> io::Result<Option<ProcessId>> {
    let ServiceType::BackgroundPidfile { path } = &unit.kind else { return Ok(None) };
    match read(Path::new(path), owner, is_own) {
        Ok(process) => Ok(Some(process)),
        Err(PidFileError::Wrong(_)) => Ok(None),
        Err(PidFileError::Unknown(error)) => Err(error),
    }
}

/// Returns the process that the first line of the file names, if this process runs and `is_own`
/// confirms that it belongs to the unit. `owner` is the user of the unit, if known.
///
/// # Errors
///
/// [`PidFileError::Wrong`] if the file names no such process, and [`PidFileError::Unknown`] if the
/// file or the process cannot be examined.
pub(crate) fn read(
    path: &Path,
    owner: Option<u32>,
    is_own: impl FnOnce(ProcessId) -> io::Result<bool>,
) -> Result<ProcessId, PidFileError> {
    let wrong = |what: &str| wrong(path, what);
    let text = first_line(path, owner)?;
    let text = text.trim();
    let pid = match text.parse::<u32>() {
        Ok(1) => return Err(wrong("names process 1, which never belongs to a service")),
        Ok(pid) if pid == std::process::id() => {
            return Err(wrong("names the service manager itself"));
        }
        Ok(pid) if pid > 0 => pid,
        _ => return Err(wrong(&format!("holds {text:?}, which is not a process ID"))),
    };
    let unexamined = |error| unknown(path, "names a process that cannot be examined", &error);
    let Some(process) = started(pid).map_err(unexamined)? else {
        return Err(wrong(&format!("names process {pid}, which does not run")));
    };
    match is_own(process).map_err(unexamined)? {
        true => Ok(process),
        false => Err(wrong(&format!("names process {pid}, which is not one of the unit's"))),
    }
}

fn wrong(path: &Path, what: &str) -> PidFileError {
    PidFileError::Wrong(format!("{} {what}", path.display()))
}

fn unknown(path: &Path, what: &str, why: &io::Error) -> PidFileError {
    PidFileError::Unknown(io::Error::new(why.kind(), format!("{} {what}: {why}", path.display())))
}

/// Reads the first line of the file. A file that belongs to a foreign user is rejected.
fn first_line(path: &Path, owner: Option<u32>) -> Result<String, PidFileError> {
    use io::ErrorKind::{InvalidData, NotADirectory, NotFound};
    let open_error = |error: io::Error| match error.kind() {
        NotFound => wrong(path, "does not exist"),
        // These errors mean that the file holds no process ID, not that it is unreadable.
        InvalidData | NotADirectory => wrong(path, &format!("cannot be read: {error}")),
        _ => unknown(path, "cannot be read", &error),
    };
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let flags = i32::try_from(nonblocking).unwrap_or(0);
    // Opening a FIFO would block otherwise.
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(open_error)?;
    let metadata = file.metadata().map_err(open_error)?;
    if !metadata.is_file() {
        return Err(wrong(path, "is no file"));
    }
    let (user, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if ![0, own, owner.unwrap_or(own)].contains(&user) {
        let Some(_) = owner else {
            let unknown_owner = io::Error::other("cannot look up the unit's account");
            return Err(unknown(path, &format!("belongs to user {user}"), &unknown_owner));
        };
        return Err(wrong(path, &format!("belongs to user {user}, not to the unit's user")));
    }
    let mut text = Vec::new();
    file.take(MAX_LENGTH).read_to_end(&mut text).map_err(open_error)?;
    let line = text.split(|byte| b"\n\r\0".contains(byte)).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    fn result_for(text: &str, is_own: bool) -> String {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("pid");
        std::fs::write(&path, text).expect("it can be written");
        let own = rustix::process::geteuid().as_raw();
        match read(&path, Some(own), |_| Ok(is_own)) {
            Ok(process) => format!("process {}", process.pid),
            Err(problem) => problem.to_string().replace(&path.display().to_string(), "x"),
        }
    }

    #[test]
    fn pid_file_may_name_a_process_of_the_unit_only() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(result_for(&format!("{parent}\n"), true), format!("process {parent}"));
        let stranger = format!("x names process {parent}, which is not one of the unit's");
        assert_eq!(result_for(&parent.to_string(), false), stranger);
        assert_eq!(result_for("1\n", true), "x names process 1, which never belongs to a service");
        let own = std::process::id().to_string();
        assert_eq!(result_for(&own, true), "x names the service manager itself");
        let dead = "x names process 4194305, which does not run";
        assert_eq!(result_for("4194305", true), dead);
        let later_line = format!("\n{parent}");
        for text in ["", "0", "-7", "x", "7 8", &"7".repeat(100), &later_line] {
            assert!(result_for(text, true).ends_with("which is not a process ID"), "{text:?}");
        }
    }

    /// Regression: a pid file with several lines, such as that of PostgreSQL, was refused.
    #[test]
    fn first_line_of_pid_file_counts() {
        let parent = std::os::unix::process::parent_id();
        let long = format!("/var/lib/{}", "\u{e9}".repeat(40));
        for text in [
            format!("{parent}"),
            format!("{parent}\n\n"),
            format!("{parent}\r\n5432\r\n"),
            format!("{parent}\n{long}\n1764114000\n5432\n"),
        ] {
            assert_eq!(result_for(&text, true), format!("process {parent}"), "{text:?}");
        }
    }

    #[test]
    fn missing_or_foreign_pid_file_is_wrong() {
        let read = |path: &str| read(Path::new(path), Some(0), |_| Ok(true)).unwrap_err();
        for (path, problem) in [
            ("/no/such/file", "/no/such/file does not exist"),
            ("/proc", "/proc is no file"),
            ("/proc/version/x", "/proc/version/x cannot be read: Not a directory (os error 20)"),
        ] {
            assert!(
                matches!(read(path), PidFileError::Wrong(message) if message == problem),
                "{path}"
            );
        }
    }

    /// Regression: a pid file that could not be examined counted as naming no process. So the
    /// process that it named was killed.
    #[test]
    fn unreadable_pid_file_does_not_count_as_empty() {
        let open_error = read(Path::new("/proc/self/mem"), Some(0), |_| Ok(true));
        assert!(matches!(open_error, Err(PidFileError::Unknown(_))), "{open_error:?}");
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("pid");
        let parent = std::os::unix::process::parent_id().to_string();
        std::fs::write(&path, parent).expect("it can be written");
        let unseen = read(&path, Some(0), |_| Err(io::Error::other("all files are open")));
        assert!(matches!(unseen, Err(PidFileError::Unknown(_))), "{unseen:?}");
        if std::os::unix::fs::chown(&path, Some(4_000_000), None).is_ok() {
            for (owner, is_wrong) in [(Some(0), true), (None, false)] {
                let read = read(&path, owner, |_| Ok(true));
                assert_eq!(matches!(read, Err(PidFileError::Wrong(_))), is_wrong, "{read:?}");
            }
            assert!(read(&path, Some(4_000_000), |_| Ok(true)).is_ok());
        }
    }

    #[tokio::test]
    async fn pid_file_is_noticed_in_a_new_directory() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("run/pid");
        let watch = PidFileWatch::of(&path).expect("it can be watched");
        std::fs::create_dir(directory.path().join("run")).expect("it can be created");
        poll_fn(|cx| watch.poll_next(cx)).await.expect("it is seen");
        std::fs::write(&path, "7").expect("it can be written");
        poll_fn(|cx| watch.poll_next(cx)).await.expect("it is seen");
    }

    /// Regression: a daemon that keeps its pid file open, and writes it late, was never active.
    #[tokio::test]
    async fn write_to_open_pid_file_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = directory.path().join("pid");
        let mut file = std::fs::File::create(&path).expect("it can be created");
        let watch = PidFileWatch::of(&path).expect("it can be watched");
        for part in ["12", "34\n"] {
            io::Write::write_all(&mut file, part.as_bytes()).expect("it can be written");
            let seen =
                tokio::time::timeout(Duration::from_secs(30), poll_fn(|cx| watch.poll_next(cx)));
            seen.await.expect("in time").expect("it is seen");
        }
    }

    #[test]
    fn directory_created_during_the_search_is_watched() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let (run, path) = (directory.path().join("run"), directory.path().join("run/unit/pid"));
        let mut watched = Vec::new();
        let watch = |place: &Path| {
            if !place.exists() {
                // All directories are created right after the check of the topmost missing one.
                if place == run {
                    std::fs::create_dir_all(run.join("unit")).expect("they can be made");
                }
                return Err(rustix::io::Errno::NOENT);
            }
            watched.push(place.to_owned());
            Ok(())
        };
        watch_nearest(&path, watch).expect("it can be watched");
        assert_eq!(watched, [directory.path().to_owned(), run.join("unit")]);
    }
}

//! Watches the paths of a path unit with inotify, as systemd does.
//!
//! Each existing component of a path is watched for moves, and the deepest one for new entries. So
//! a path is noticed even if its parent directories appear later. After each event that is not
//! conclusive, everything is checked and watched again.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::{Path, PathTrigger, PathTriggerKind};
use fleet_unitfile::UnitName;
use rustix::fs::inotify;
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::entry::WatchReason;
use crate::async_fd::{read_next, register_readable};
use crate::lock::lock;
use crate::native::linux::sockets::create_directories as create_all;
use crate::native::run::exec_context::block_in_place_if;

/// For each trigger, whether its path existed at the last look. Empty before the first look.
pub(super) type Existing = Arc<Mutex<Vec<bool>>>;

/// Events of a directory above a watched path, or of the deepest one that exists.
const ANCESTOR: WatchFlags = WatchFlags::ATTRIB
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::MOVED_TO);

/// Events of a watched path itself.
const SELF: WatchFlags =
    WatchFlags::ATTRIB.union(WatchFlags::DELETE_SELF).union(WatchFlags::MOVE_SELF);

/// Events of a watched path that count as a change.
const CHANGE: WatchFlags = SELF
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO);

/// Creates the missing directories of a path unit with `MakeDirectory=`. As in systemd, a failure
/// is only logged.
pub(super) fn create_directories(unit: &UnitName, path: &Path) {
    if !path.make_directory {
        return;
    }
    let is_directory = |trigger: &&PathTrigger| {
        !matches!(trigger.kind, PathTriggerKind::Exists | PathTriggerKind::ExistsGlob)
    };
    for trigger in path.triggers.iter().filter(is_directory) {
        if let Err(error) = create_all(FilePath::new(&trigger.path), path.directory_mode) {
            let path = &trigger.path;
            tracing::warn!(%unit, %error, path, "cannot create the directory of a path unit");
        }
    }
}

/// Waits until one of the triggers applies.
pub(super) async fn wait_for_event(
    path: &Path,
    existing: &Existing,
    reason: WatchReason,
) -> io::Result<()> {
    let mut first = true;
    loop {
        // The state at the start is no change, and neither is a change by the unit itself.
        let look = |counts: bool| block_in_place_if(true, || applies(path, existing, counts));
        if look(!first) {
            return Ok(());
        }
        let watch = block_in_place_if(true, || PathWatch::new(&path.triggers))?;
        // The path may have appeared before it was watched.
        if look(reason != WatchReason::UnitEnded || !first) {
            return Ok(());
        }
        first = false;
        if watch.next().await? {
            return Ok(());
        }
    }
}

/// Returns whether a trigger applies. Whether a path appeared or disappeared since the last look
/// is noted, but applies only if `changes_count`.
fn applies(path: &Path, existing: &Existing, changes_count: bool) -> bool {
    let mut existing = lock(existing);
    existing.resize(path.triggers.len(), false);
    let mut found = false;
    for (trigger, existed) in path.triggers.iter().zip(&mut *existing) {
        let file = FilePath::new(&trigger.path);
        found |= match trigger.kind {
            PathTriggerKind::Exists => file.exists(),
            PathTriggerKind::ExistsGlob => has_match(&trigger.path),
            PathTriggerKind::DirectoryNotEmpty => is_filled_directory(file),
            PathTriggerKind::Changed | PathTriggerKind::Modified => {
                let exists = file.exists();
                let has_changed = exists != std::mem::replace(existed, exists);
                has_changed && changes_count
            }
        };
    }
    found
}

fn has_match(pattern: &str) -> bool {
    glob::glob(pattern).is_ok_and(|mut paths| paths.any(|path| path.is_ok()))
}

/// Returns whether a directory has an entry, other than hidden files and backups.
fn is_filled_directory(path: &FilePath) -> bool {
    let Ok(mut entries) = std::fs::read_dir(path) else { return false };
    entries.any(|entry| {
        entry.is_ok_and(|entry| !is_hidden_or_backup(&entry.file_name().to_string_lossy()))
    })
}

/// Extensions of the backups that package managers and editors leave.
const BACKUPS: [&str; 17] = [
    "rpmnew",
    "rpmsave",
    "rpmorig",
    "dpkg-old",
    "dpkg-new",
    "dpkg-tmp",
    "dpkg-dist",
    "dpkg-bak",
    "dpkg-backup",
    "dpkg-remove",
    "ucf-new",
    "ucf-old",
    "ucf-dist",
    "swp",
    "bak",
    "old",
    "new",
];

fn is_hidden_or_backup(name: &str) -> bool {
    let is_special = ["lost+found", "aquota.user", "aquota.group"].contains(&name);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_backup = extension.is_some_and(|it| BACKUPS.contains(&it));
    name.starts_with('.') || name.ends_with('~') || is_special || is_backup
}

/// An inotify instance that watches all paths of a unit.
struct PathWatch {
    descriptor: AsyncFd<OwnedFd>,
    /// Watches whose events are changes of a path.
    changes: BTreeSet<i32>,
}

impl PathWatch {
    fn new(triggers: &[PathTrigger]) -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut changes = BTreeSet::new();
        for trigger in triggers {
            watch(&descriptor, trigger, &mut changes)?;
        }
        Ok(Self { descriptor: register_readable(descriptor)?, changes })
    }

    /// Waits for events, and returns whether one of them is a change of a path.
    async fn next(&self) -> io::Result<bool> {
        let events = read_next(&self.descriptor, read_events).await?;
        // After an overflow, events are lost.
        Ok(events.iter().any(|watch| self.changes.contains(watch)))
    }
}

fn read_events(descriptor: &OwnedFd) -> io::Result<Vec<i32>> {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(descriptor, &mut buffer);
    let mut watches = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => watches.push(event.wd()),
            Err(Errno::WOULDBLOCK) if !watches.is_empty() => return Ok(watches),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Watches the path of a trigger and the directories above it.
fn watch(
    descriptor: &OwnedFd,
    trigger: &PathTrigger,
    changes: &mut BTreeSet<i32>,
) -> io::Result<()> {
    let own = match trigger.kind {
        PathTriggerKind::Exists | PathTriggerKind::ExistsGlob => SELF,
        PathTriggerKind::Changed => CHANGE,
        PathTriggerKind::Modified => CHANGE | WatchFlags::MODIFY,
        PathTriggerKind::DirectoryNotEmpty => SELF | WatchFlags::CREATE | WatchFlags::MOVED_TO,
    };
    let parts = prefixes(&trigger.path);
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        let flags = if is_last { own } else { ANCESTOR };
        let exists = add(descriptor, part, flags)?;
        let Some(watch) = exists else {
            if index == 0 {
                return Err(io::Error::from(io::ErrorKind::NotFound));
            }
            return Ok(());
        };
        if is_last && matches!(trigger.kind, PathTriggerKind::Changed | PathTriggerKind::Modified) {
            changes.insert(watch);
        }
        if index > 0 {
            // Its parent matters only if it moves.
            let parent = &parts[index - 1];
            let _ = inotify::add_watch(descriptor, parent.as_path(), WatchFlags::MOVE_SELF);
        }
    }
    Ok(())
}

/// Returns the root, each directory below it, and the path itself.
fn prefixes(path: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        FilePath::new(path).ancestors().map(FilePath::to_path_buf).collect();
    all.reverse();
    all
}

/// Watches a path: its inode, and the one to which it links. Returns the watch of the latter;
/// `None` if the path does not exist or is not accessible.
fn add(descriptor: &OwnedFd, path: &FilePath, flags: WatchFlags) -> io::Result<Option<i32>> {
    let mut watch = None;
    for flags in [flags | WatchFlags::DONT_FOLLOW, flags] {
        match inotify::add_watch(descriptor, path, flags) {
            Ok(added) => watch = Some(added),
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(watch)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(kind: PathTriggerKind, path: &FilePath) -> Path {
        let trigger = PathTrigger { kind, path: path.display().to_string() };
        Path { triggers: vec![trigger], make_directory: false, directory_mode: 0o755 }
    }

    /// Begins to wait, and returns once the paths are watched.
    async fn begin(path: Path, reason: WatchReason) -> tokio::task::JoinHandle<io::Result<()>> {
        let existing = Existing::default();
        let seen = Arc::clone(&existing);
        let task = tokio::spawn(async move { wait_for_event(&path, &existing, reason).await });
        while lock(&seen).is_empty() && !task.is_finished() {
            tokio::task::yield_now().await;
        }
        task
    }

    async fn ends(task: tokio::task::JoinHandle<io::Result<()>>) {
        let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
        ended.expect("it ends in time").expect("it does not panic").expect("it can be watched");
    }

    /// Ignores events of the directories above, which other programs cause too.
    async fn wait_for_change(watch: &PathWatch) {
        while !watch.next().await.expect("it can be read") {}
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn existing_path_applies_at_once() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let file = home.path().join("a.b");
        std::fs::write(&file, "").expect("it can be written");
        let pattern = home.path().join("*.b");
        for path in [
            of(PathTriggerKind::Exists, &file),
            of(PathTriggerKind::ExistsGlob, &pattern),
            of(PathTriggerKind::DirectoryNotEmpty, home.path()),
        ] {
            ends(begin(path.clone(), WatchReason::Start).await).await;
            ends(begin(path, WatchReason::UnitEnded).await).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn path_below_missing_directories_is_noticed() {
        let home = tempfile::tempdir().expect("a directory can be made");
        for (index, kind) in [
            PathTriggerKind::Exists,
            PathTriggerKind::Changed,
            PathTriggerKind::Modified,
            PathTriggerKind::DirectoryNotEmpty,
            PathTriggerKind::ExistsGlob,
        ]
        .into_iter()
        .enumerate()
        {
            let directory = home.path().join(format!("{index}/b"));
            let watched = match kind {
                PathTriggerKind::DirectoryNotEmpty => directory.clone(),
                PathTriggerKind::ExistsGlob => directory.join("?"),
                _ => directory.join("c"),
            };
            let task = begin(of(kind, &watched), WatchReason::Start).await;
            std::fs::create_dir_all(&directory).expect("it can be created");
            std::fs::write(directory.join("c"), "").expect("it can be written");
            ends(task).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_changes_after_the_start_count() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let file = home.path().join("a");
        std::fs::write(&file, "").expect("it can be written");
        let existing = Existing::default();
        let path = of(PathTriggerKind::Changed, &file);
        assert!(!applies(&path, &existing, false));
        assert!(!applies(&path, &existing, true), "nothing has changed since");
        let watch = PathWatch::new(&path.triggers).expect("it can be watched");
        std::fs::write(&file, "text").expect("it can be written");
        wait_for_change(&watch).await;
        std::fs::remove_file(&file).expect("it can be removed");
        assert!(applies(&path, &existing, true), "so is a removal");
    }

    /// An open file that is written to is modified, but changed only when it is closed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn write_without_close_is_only_a_modification() {
        use std::io::Write as _;
        let home = tempfile::tempdir().expect("a directory can be made");
        let file = home.path().join("a");
        let mut open = std::fs::File::create(&file).expect("it can be created");
        let modified = of(PathTriggerKind::Modified, &file);
        let changed = of(PathTriggerKind::Changed, &file);
        let [modified, changed] = [modified, changed]
            .map(|path| PathWatch::new(&path.triggers).expect("it can be watched"));
        open.write_all(b"text").expect("it can be written");
        wait_for_change(&modified).await;
        let events = read_events(changed.descriptor.get_ref()).unwrap_or_default();
        assert!(!events.iter().any(|watch| changed.changes.contains(watch)));
        drop(open);
        wait_for_change(&changed).await;
    }

    #[test]
    fn hidden_files_and_backups_leave_a_directory_empty() {
        let home = tempfile::tempdir().expect("a directory can be made");
        assert!(!is_filled_directory(home.path()) && !is_filled_directory(FilePath::new("/none")));
        for name in [".hidden", "a~", "lost+found", "a.dpkg-new", "a.bak"] {
            std::fs::write(home.path().join(name), "").expect("it can be written");
        }
        assert!(!is_filled_directory(home.path()));
        std::fs::write(home.path().join("a.txt"), "").expect("it can be written");
        assert!(is_filled_directory(home.path()));
    }
}

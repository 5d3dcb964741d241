//! Makes followers of the machine's journal read new lines at once.
//!
//! journald notifies its readers of a write only after a quarter of a second. journalctl may read
//! the journal just before it can see the write, and then waits for the next notification. So
//! single lines may arrive half a second late.
//!
//! The remedy is to set the mode of the journal file to its current value, periodically while the
//! journal is followed. This notifies inotify watchers, and has no other effect.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::Clock;

/// Interval of the nudges. journalctl reads a followed journal about as often, which takes less
/// than a hundredth of a processor's time.
const PACE: Duration = Duration::from_millis(40);

/// Directories of journals, each with a subdirectory named by the machine's ID.
const DIRECTORIES: [&str; 2] = ["/run/log/journal", "/var/log/journal"];

/// The file in each subdirectory that journald writes. Followers watch the whole subdirectory.
const FILE: &str = "system.journal";

/// Nudges all followers, while there is at least one.
#[derive(Debug, Default)]
pub(crate) struct Nudges(Mutex<Weak<JournalFollower>>);

/// A follower, until this is dropped.
#[derive(Debug)]
pub(crate) struct JournalFollower;

impl Nudges {
    /// Nudges until the returned value is dropped.
    pub(crate) fn follow(&self, clock: &Arc<dyn Clock>) -> Arc<JournalFollower> {
        // A panic while it is locked cannot leave the pointer half changed.
        let mut others = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(following) = others.upgrade() {
            return following;
        }
        let first = Arc::new(JournalFollower);
        *others = Arc::downgrade(&first);
        tokio::spawn(nudge_periodically(Arc::downgrade(&first), clock.clone()));
        first
    }
}

async fn nudge_periodically(following: Weak<JournalFollower>, clock: Arc<dyn Clock>) {
    while following.strong_count() > 0 {
        clock.sleep(PACE).await;
        let nudged = tokio::task::spawn_blocking(|| {
            DIRECTORIES.iter().for_each(|directory| nudge_all(directory));
        });
        if nudged.await.is_err() {
            return; // the runtime is shutting down
        }
    }
}

/// Nudges the watchers of all journals in a directory. Without the permission to do so, the
/// watchers simply see new lines later.
fn nudge_all(directory: &str) {
    let Ok(folders) = fs::read_dir(directory) else { return };
    for folder in folders.flatten() {
        let _missing = nudge(&folder.path().join(FILE));
    }
}

fn nudge(file: &Path) -> std::io::Result<()> {
    let mode = fs::metadata(file)?.permissions().mode();
    fs::set_permissions(file, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::*;

    #[test]
    fn nudge_notifies_watchers_and_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        fs::write(&file, "lines").expect("it can be written");
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(&file, mode.clone()).expect("the owner may change it");
        let before = fs::metadata(&file).expect("it is there");
        let watch = inotify::init(CreateFlags::NONBLOCK).expect("files can be watched");
        inotify::add_watch(&watch, folder.path(), WatchFlags::ATTRIB).expect("it is there");
        nudge(&file).expect("the owner may change it");
        assert!(rustix::io::read(&watch, &mut [0; 4096]).is_ok(), "the watch reports it at once");
        let after = fs::metadata(&file).expect("it is there");
        assert_eq!(after.permissions().mode() & 0o7777, mode.mode());
        assert_eq!(after.modified().ok(), before.modified().ok());
    }

    #[tokio::test]
    async fn nudging_continues_while_one_follower_remains() {
        let (nudges, clock) = (Nudges::default(), crate::SystemClock::start());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let (one, other) = (nudges.follow(&clock), nudges.follow(&clock));
        assert!(Arc::ptr_eq(&one, &other), "one is enough for all");
        drop(one);
        assert!(nudges.0.lock().expect("not poisoned").strong_count() > 0);
        drop(other);
        assert_eq!(nudges.0.lock().expect("not poisoned").strong_count(), 0);
    }
}

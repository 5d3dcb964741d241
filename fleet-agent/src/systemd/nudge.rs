//! Has those who follow the context's journal look at it as soon as something is there.
//!
//! journald lets a quarter of a second pass before it says that it wrote something, and journalctl
//! may come too early for what it says, and then waits for its next word: lines that come one by
//! one are up to half a second late. A file whose mode is set to what it is has changed for those
//! who watch it, and for nobody else. So that is done, for as long as somebody follows.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::Clock;

/// How often. journalctl looks about as often into a journal that is followed, which takes it less
/// than a hundredth of a processor.
const PACE: Duration = Duration::from_millis(40);

/// Where journals are kept, each in a folder that is named by the context's ID.
const PLACES: [&str; 2] = ["/run/log/journal", "/var/log/journal"];

/// In each folder, the file that is written to. Who follows watches the whole folder.
const FILE: &str = "system.journal";

/// Nudges all that follow, while at least one does.
#[derive(Debug, Default)]
pub(crate) struct Nudges(Mutex<Weak<JournalFollower>>);

/// Somebody follows, until it is dropped.
#[derive(Debug)]
pub(crate) struct JournalFollower;

impl Nudges {
    /// Nudges until what is returned is dropped.
    pub(crate) fn follow(&self, clock: &Arc<dyn Clock>) -> Arc<JournalFollower> {
        // A panic while it is locked cannot leave a pointer half changed.
        let mut others = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(following) = others.upgrade() {
            return following;
        }
        let first = Arc::new(JournalFollower);
        *others = Arc::downgrade(&first);
        tokio::spawn(keep_on(Arc::downgrade(&first), clock.clone()));
        first
    }
}

async fn keep_on(following: Weak<JournalFollower>, clock: Arc<dyn Clock>) {
    while following.strong_count() > 0 {
        clock.sleep(PACE).await;
        let nudged = tokio::task::spawn_blocking(|| PLACES.iter().for_each(|place| all_in(place)));
        if nudged.await.is_err() {
            return; // the runtime ends
        }
    }
}

/// Nudges those who watch the journals of a place. Where it may not, they hear of a line later.
fn all_in(place: &str) {
    let Ok(folders) = fs::read_dir(place) else { return };
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
    fn who_watches_a_folder_is_told_and_nothing_is_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        fs::write(&file, "lines").expect("it can be written");
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(&file, mode.clone()).expect("it is its owner's");
        let before = fs::metadata(&file).expect("it is there");
        let watch = inotify::init(CreateFlags::NONBLOCK).expect("files can be watched");
        inotify::add_watch(&watch, folder.path(), WatchFlags::ATTRIB).expect("it is there");
        nudge(&file).expect("it is its owner's");
        assert!(rustix::io::read(&watch, &mut [0; 4096]).is_ok(), "it is told at once");
        let after = fs::metadata(&file).expect("it is there");
        assert_eq!(after.permissions().mode() & 0o7777, mode.mode());
        assert_eq!(after.modified().ok(), before.modified().ok());
    }

    #[tokio::test]
    async fn it_goes_on_while_one_of_several_follows() {
        let (nudges, clock) = (Nudges::default(), crate::SystemClock::start());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let (one, other) = (nudges.follow(&clock), nudges.follow(&clock));
        assert!(Arc::ptr_eq(&one, &other), "one is enough for all");
        drop(one);
        assert!(nudges.0.lock().expect("nobody panics").strong_count() > 0);
        drop(other);
        assert_eq!(nudges.0.lock().expect("nobody panics").strong_count(), 0);
    }
}

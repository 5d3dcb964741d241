//! Listings that clients are in the middle of, so that all pages of one show the same revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fleet_core::{Revision, Snapshot};

use super::pause::pause;

/// How many revisions are kept. Clients that list at the same revision share one. When there is no
/// room, the one that was not used for longest goes; whoever was reading it has to list again.
const MOST: usize = 64;

/// How many of these may be of listings that all who began them have read to the end. Some, for
/// whoever asks for the last page twice, because the answer did not come, is counted as two; few,
/// for each may be as large as the cluster.
const MOST_READ: usize = 4;

/// A revision is forgotten when it was not used for one to two of these.
const AGE: Duration = Duration::from_secs(60);

/// The snapshots that the next pages of begun listings are cut from.
#[derive(Debug, Clone, Default)]
pub(super) struct Listings(Arc<Mutex<Kept>>);

impl Listings {
    /// Keeps what a listing shows, for its next pages; `begins` with its first one.
    pub(super) fn keep(&self, snapshot: &Arc<Snapshot>, begins: bool) {
        let mut kept = self.lock();
        kept.keep(Arc::clone(snapshot), begins);
        if !kept.ages {
            kept.ages = true;
            tokio::spawn(age(Arc::downgrade(&self.0)));
        }
    }

    /// What the listing of that revision shows, if it is still kept.
    pub(super) fn find(&self, revision: Revision) -> Option<Arc<Snapshot>> {
        self.lock().find(revision)
    }

    /// Notes that somebody has come to the last page of a listing that has several.
    pub(super) fn end(&self, revision: Revision) {
        self.lock().end(revision);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }
}

/// A panic while the lock was held cannot have left a map of snapshots half changed.
fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets unused snapshots, until there are none or the server is gone.
async fn age(kept: Weak<Mutex<Kept>>) {
    loop {
        pause(AGE).await;
        let Some(kept) = kept.upgrade() else { return };
        if !lock(&kept).age() {
            return;
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    snapshots: BTreeMap<Revision, Shown>,
    uses: u64,
    /// Uses up to this one were in the last but one interval.
    old: u64,
    /// Whether a task is there that ages them.
    ages: bool,
}

/// What the listings of a revision show.
#[derive(Debug)]
struct Shown {
    snapshot: Arc<Snapshot>,
    used: Use,
    /// How many have begun to read and are not at the end. Who gives up is counted until it ages.
    readers: usize,
}

/// The number of the last use, counted over all snapshots.
type Use = u64;

impl Kept {
    fn keep(&mut self, snapshot: Arc<Snapshot>, begins: bool) {
        let used = self.next_use();
        let new = || Shown { snapshot: Arc::clone(&snapshot), used, readers: 0 };
        let shown = self.snapshots.entry(snapshot.revision).or_insert_with(new);
        shown.used = used;
        shown.readers += usize::from(begins);
        self.forget_beyond(MOST, |_| true);
    }

    fn find(&mut self, revision: Revision) -> Option<Arc<Snapshot>> {
        let used = self.next_use();
        let shown = self.snapshots.get_mut(&revision)?;
        shown.used = used;
        Some(Arc::clone(&shown.snapshot))
    }

    fn end(&mut self, revision: Revision) {
        if let Some(shown) = self.snapshots.get_mut(&revision) {
            shown.readers = shown.readers.saturating_sub(1);
        }
        self.forget_beyond(MOST_READ, |shown| shown.readers == 0);
    }

    fn next_use(&mut self) -> Use {
        self.uses += 1;
        self.uses
    }

    /// Forgets the one that was not used for longest, where more than so many are of that kind.
    fn forget_beyond(&mut self, most: usize, is_meant: impl Fn(&Shown) -> bool) {
        let meant = || self.snapshots.iter().filter(|(_, shown)| is_meant(shown));
        if meant().count() > most
            && let Some((revision, _)) = meant().min_by_key(|(_, shown)| shown.used)
        {
            let revision = *revision;
            self.snapshots.remove(&revision);
        }
    }

    /// Forgets what was not used since the last call, and says whether anything is left.
    fn age(&mut self) -> bool {
        let old = std::mem::replace(&mut self.old, self.uses);
        self.snapshots.retain(|_, shown| shown.used > old);
        self.ages = !self.snapshots.is_empty();
        self.ages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: u64) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::default();
        snapshot.revision = Revision(revision);
        Arc::new(snapshot)
    }

    #[test]
    fn there_is_a_bound_and_what_is_in_use_stays() {
        let mut kept = Kept::default();
        kept.keep(at(0), true);
        for revision in 1..=2 * MOST as u64 {
            kept.keep(at(revision), true);
            assert!(kept.find(Revision(0)).is_some(), "{revision}");
        }
        assert_eq!(kept.snapshots.len(), MOST);
        assert!(kept.find(Revision(1)).is_none());
        assert!(kept.find(Revision(2 * MOST as u64)).is_some());
    }

    #[test]
    fn of_what_was_read_to_the_end_little_is_kept() {
        let mut kept = Kept::default();
        for revision in 0..10 {
            kept.keep(at(revision), true);
            kept.keep(at(revision), false);
            kept.end(Revision(revision));
        }
        let there: Vec<_> = kept.snapshots.keys().map(|revision| revision.0).collect();
        assert_eq!(there, [6, 7, 8, 9]);
    }

    #[test]
    fn what_others_still_read_stays() {
        let mut kept = Kept::default();
        kept.keep(at(0), true);
        kept.keep(at(0), true);
        for revision in 0..10 {
            kept.keep(at(revision), true);
            kept.end(Revision(revision));
        }
        kept.end(Revision(0));
        assert!(kept.find(Revision(0)).is_some(), "one of three has not come to its end");
        kept.end(Revision(0));
        kept.end(Revision(9));
        let there: Vec<_> = kept.snapshots.keys().map(|revision| revision.0).collect();
        assert_eq!(there, [0, 7, 8, 9], "the one that was used before the others goes");
    }

    #[test]
    fn what_is_unused_is_forgotten() {
        let mut kept = Kept::default();
        kept.keep(at(1), true);
        kept.keep(at(2), true);
        assert!(kept.age(), "both were used since the beginning");
        assert!(kept.find(Revision(2)).is_some());
        assert!(kept.age());
        assert!(kept.find(Revision(1)).is_none(), "it was unused for an interval");
        assert!(!kept.age(), "nothing is left in the end");
    }
}

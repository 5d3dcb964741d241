//! Listings that clients are in the middle of, so that all pages of one show the same revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use fleet_core::{Revision, Snapshot};

use super::pause::pause;

/// How many revisions are kept. Clients that list at the same revision share one. When there is no
/// room, the one that was not used for longest goes; whoever was reading it has to list again.
const MOST: usize = 64;

/// A revision is forgotten when it was not used for one to two of these.
const AGE: Duration = Duration::from_secs(60);

/// The snapshots that the next pages of begun listings are cut from.
#[derive(Debug, Clone, Default)]
pub(super) struct Listings(Arc<Mutex<Kept>>);

impl Listings {
    /// Keeps what a listing shows, for its next pages.
    pub(super) fn keep(&self, snapshot: &Arc<Snapshot>) {
        let mut kept = self.lock();
        kept.keep(Arc::clone(snapshot));
        if !kept.ages {
            kept.ages = true;
            tokio::spawn(age(Arc::downgrade(&self.0)));
        }
    }

    /// What the listing of that revision shows, if it is still kept.
    pub(super) fn find(&self, revision: Revision) -> Option<Arc<Snapshot>> {
        self.lock().find(revision)
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
    snapshots: BTreeMap<Revision, (Use, Arc<Snapshot>)>,
    uses: u64,
    /// Uses up to this one were in the last but one interval.
    old: u64,
    /// Whether a task is there that ages them.
    ages: bool,
}

/// The number of the last use, counted over all snapshots.
type Use = u64;

impl Kept {
    fn keep(&mut self, snapshot: Arc<Snapshot>) {
        self.uses += 1;
        self.snapshots.insert(snapshot.revision, (self.uses, snapshot));
        if self.snapshots.len() > MOST {
            let oldest = self.snapshots.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(revision) = oldest.map(|(revision, _)| *revision) {
                self.snapshots.remove(&revision);
            }
        }
    }

    fn find(&mut self, revision: Revision) -> Option<Arc<Snapshot>> {
        self.uses += 1;
        let (used, snapshot) = self.snapshots.get_mut(&revision)?;
        *used = self.uses;
        Some(Arc::clone(snapshot))
    }

    /// Forgets what was not used since the last call, and says whether anything is left.
    fn age(&mut self) -> bool {
        let old = std::mem::replace(&mut self.old, self.uses);
        self.snapshots.retain(|_, (used, _)| *used > old);
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
        kept.keep(at(0));
        for revision in 1..=2 * MOST as u64 {
            kept.keep(at(revision));
            assert!(kept.find(Revision(0)).is_some(), "{revision}");
        }
        assert_eq!(kept.snapshots.len(), MOST);
        assert!(kept.find(Revision(1)).is_none());
        assert!(kept.find(Revision(2 * MOST as u64)).is_some());
    }

    #[test]
    fn what_is_unused_is_forgotten() {
        let mut kept = Kept::default();
        kept.keep(at(1));
        kept.keep(at(2));
        assert!(kept.age(), "both were used since the beginning");
        assert!(kept.find(Revision(2)).is_some());
        assert!(kept.age());
        assert!(kept.find(Revision(1)).is_none(), "it was unused for an interval");
        assert!(!kept.age(), "nothing is left in the end");
    }
}

//! Who is told which units have changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fleet_unitfile::UnitName;
use tokio::sync::Notify;

/// Collects the names of units that changed, for one reader.
///
/// It holds each name at most once, so it is bounded by the number of units.
#[derive(Debug)]
pub struct StateChanges {
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<UnitName>>,
    wake: Notify,
}

impl StateChanges {
    /// Waits until a unit has changed, and returns all that changed since the last call.
    pub async fn next(&mut self) -> BTreeSet<UnitName> {
        loop {
            let changed = std::mem::take(
                &mut *self.inbox.changed.lock().unwrap_or_else(PoisonError::into_inner),
            );
            if !changed.is_empty() {
                return changed;
            }
            self.inbox.wake.notified().await;
        }
    }
}

/// The sending side of [`StateChanges`], for those who implement a service manager.
#[derive(Debug, Default)]
pub struct StateFeed {
    inboxes: Mutex<Vec<Weak<Inbox>>>,
}

impl StateFeed {
    /// A new reader.
    #[must_use]
    pub fn subscribe(&self) -> StateChanges {
        let inbox = Arc::new(Inbox::default());
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        StateChanges { inbox }
    }

    /// Tells every reader that a unit has changed.
    pub fn report(&self, unit: &UnitName) {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        for inbox in inboxes.iter().filter_map(Weak::upgrade) {
            inbox.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(unit.clone());
            inbox.wake.notify_one();
        }
    }
}

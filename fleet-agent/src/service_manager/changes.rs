//! Notifications of changed units.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fleet_unitfile::UnitName;
use tokio::sync::Notify;

/// Collects the names of changed units for one subscriber.
///
/// The receiver holds each name at most once, so its size is bounded by the number of units.
#[derive(Debug)]
pub struct ChangeReceiver {
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Inbox {
    changed: Mutex<BTreeSet<UnitName>>,
    wake: Notify,
}

impl ChangeReceiver {
    /// Waits until a unit has changed, and returns all units that changed since the last call.
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

/// Sending side of [`ChangeReceiver`], for implementations of a service manager.
#[derive(Debug, Default)]
pub struct ChangeSender {
    inboxes: Mutex<Vec<Weak<Inbox>>>,
}

impl ChangeSender {
    /// Creates a new subscriber.
    #[must_use]
    pub fn subscribe(&self) -> ChangeReceiver {
        let inbox = Arc::new(Inbox::default());
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        ChangeReceiver { inbox }
    }

    /// Notifies every subscriber that a unit has changed.
    pub fn report(&self, unit: &UnitName) {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        for inbox in inboxes.iter().filter_map(Weak::upgrade) {
            inbox.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(unit.clone());
            inbox.wake.notify_one();
        }
    }
}

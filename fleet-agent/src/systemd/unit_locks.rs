//! Serialises calls for one unit, without delaying calls for other units.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_unitfile::UnitName;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// A lock for each unit with calls in progress.
#[derive(Debug, Default)]
pub(crate) struct UnitLocks {
    locks: Mutex<BTreeMap<UnitName, Lock>>,
}

/// The lock that a call holds on a unit. Once it is dropped, the next call for the unit proceeds.
#[derive(Debug)]
pub(crate) struct UnitLock<'a> {
    locks: &'a UnitLocks,
    unit: UnitName,
    held: Option<OwnedMutexGuard<()>>,
}

impl UnitLocks {
    /// Waits until all earlier calls for the unit are done.
    pub(crate) async fn lock_unit(&self, unit: &UnitName) -> UnitLock<'_> {
        let lock = Arc::clone(self.lock().entry(unit.clone()).or_default());
        let mut turn = UnitLock { locks: self, unit: unit.clone(), held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    /// Locks the unit if no call for it is in progress.
    pub(crate) fn try_lock_unit(&self, unit: &UnitName) -> Option<UnitLock<'_>> {
        let lock = Arc::clone(self.lock().entry(unit.clone()).or_default());
        let held = lock.try_lock_owned().ok();
        let turn = UnitLock { locks: self, unit: unit.clone(), held };
        turn.held.is_some().then_some(turn)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnitLock<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut locks = self.locks.lock();
        // Each further reference is a waiting call.
        if locks.get(&self.unit).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.unit);
        }
    }
}

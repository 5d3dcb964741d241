//! Keeps the calls about one unit in their order, and those about different units apart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_unitfile::UnitName;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// A gate for each unit that somebody is calling about.
#[derive(Debug, Default)]
pub(crate) struct UnitLocks {
    locks: Mutex<BTreeMap<UnitName, Lock>>,
}

/// The call whose turn it is. The next one's begins when this is dropped.
#[derive(Debug)]
pub(crate) struct UnitLock<'a> {
    locks: &'a UnitLocks,
    unit: UnitName,
    held: Option<OwnedMutexGuard<()>>,
}

impl UnitLocks {
    /// Waits until all calls about the unit that came before have had their turn.
    pub(crate) async fn lock_unit(&self, unit: &UnitName) -> UnitLock<'_> {
        let lock = Arc::clone(self.lock().entry(unit.clone()).or_default());
        let mut turn = UnitLock { locks: self, unit: unit.clone(), held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnitLock<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut locks = self.locks.lock();
        // Each further holder is a call that waits.
        if locks.get(&self.unit).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.unit);
        }
    }
}

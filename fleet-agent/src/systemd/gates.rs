//! Keeps the calls about one unit in their order, and those about different units apart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet_unitfile::UnitName;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// A gate for each unit that somebody is calling about.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    gates: Mutex<BTreeMap<UnitName, Lock>>,
}

/// The call whose turn it is. The next one's begins when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gates: &'a Gates,
    unit: UnitName,
    held: Option<OwnedMutexGuard<()>>,
}

impl Gates {
    /// Waits until all calls about the unit that came before have had their turn.
    pub(crate) async fn turn(&self, unit: &UnitName) -> Turn<'_> {
        let lock = Arc::clone(self.lock().entry(unit.clone()).or_default());
        let mut turn = Turn { gates: self, unit: unit.clone(), held: None };
        turn.held = Some(lock.lock_owned().await);
        turn
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitName, Lock>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut gates = self.gates.lock();
        // Each further holder is a call that waits.
        if gates.get(&self.unit).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            gates.remove(&self.unit);
        }
    }
}

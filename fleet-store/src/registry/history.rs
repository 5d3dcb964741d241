//! Histories of units: the leader writes them, and daemons read one when a client asks for it.
//!
//! One key per unit has its last events. So the mirror does not have to know about them.

use std::collections::BTreeMap;

use fleet_core::history::UnitHistory;
use fleet_unitfile::UnitName;

use super::leadership::LEADER_CONDITION;
use super::{Leadership, Registry, RegistryError};
use crate::codec::{CodecError, decode_history, encode_history};
use crate::registry::Key;
use crate::{Commit, Condition, Transaction};

/// Maximum size of the histories in one transaction, in bytes.
const MAX_BYTES: usize = Transaction::MAX_BYTES / 2;

/// Maximum number of histories in one transaction.
const MAX_HISTORIES: usize = Transaction::MAX_OPERATIONS / 2;

impl Registry {
    /// Returns the history of a unit. It is empty if no leader has observed the unit yet, or if the
    /// stored history is damaged.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Value`] when a newer version of fleet wrote the history.
    pub async fn history(&self, unit: &UnitName) -> Result<UnitHistory, RegistryError> {
        let (entry, _) = self.get(&Key::History(unit.clone())).await?;
        let Some(entry) = entry else { return Ok(UnitHistory::default()) };
        match decode_history(&entry.value) {
            Err(source @ CodecError::Newer { .. }) => {
                Err(RegistryError::Value { key: entry.key, source })
            }
            history => Ok(history.unwrap_or_default()),
        }
    }
}

impl Leadership {
    /// Returns the histories of all units. Those of a newer version of fleet are left out.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails.
    pub async fn histories(&self) -> Result<BTreeMap<UnitName, UnitHistory>, RegistryError> {
        let registry = self.registry();
        let listing = registry.store.read(&registry.layout.histories()).await?;
        let histories = listing.entries.into_iter().filter_map(|entry| {
            let Some(Key::History(unit)) = registry.layout.parse(&entry.key) else { return None };
            match decode_history(&entry.value) {
                Err(CodecError::Newer { .. }) => None,
                history => Some((unit, history.unwrap_or_default())),
            }
        });
        Ok(histories.collect())
    }

    /// Writes histories. Skips those of units that no longer exist.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended. Some histories may be written.
    pub async fn write_histories(
        &self,
        histories: &[(UnitName, UnitHistory)],
    ) -> Result<(), RegistryError> {
        let encoded = histories.iter().map(|(unit, history)| (unit, encode_history(history)));
        let (mut batch, mut size) = (Vec::new(), 0);
        for (unit, value) in encoded {
            if size + value.len() > MAX_BYTES || batch.len() == MAX_HISTORIES {
                self.write_batch(std::mem::take(&mut batch)).await?;
                size = 0;
            }
            size += value.len();
            batch.push((unit, value));
        }
        self.write_batch(batch).await
    }

    async fn write_batch(&self, mut batch: Vec<(&UnitName, Vec<u8>)>) -> Result<(), RegistryError> {
        let registry = self.registry();
        while !batch.is_empty() {
            let mut transaction = Transaction::new().when(self.leads());
            for (unit, value) in &batch {
                let exists = Condition::present(registry.key(&Key::Unit((*unit).clone())));
                let key = registry.key(&Key::History((*unit).clone()));
                transaction = transaction.when(exists).put(key, value.clone());
            }
            match registry.store.commit(transaction).await? {
                Commit::Applied(_) => return Ok(()),
                Commit::Refused { condition: LEADER_CONDITION, .. } => {
                    return Err(RegistryError::Deposed { term: self.term() });
                }
                // The unit was destroyed meanwhile.
                Commit::Refused { condition, .. } => drop(batch.remove(condition - 1)),
            }
        }
        Ok(())
    }

    /// Deletes the histories of units that no longer exist.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended.
    pub async fn delete_histories(&self, units: &[UnitName]) -> Result<(), RegistryError> {
        let registry = self.registry();
        for unit in units {
            let gone = Condition::absent(registry.key(&Key::Unit(unit.clone())));
            let key = registry.key(&Key::History(unit.clone()));
            let transaction = Transaction::new().when(self.leads()).when(gone).delete(key);
            let commit = registry.store.commit(transaction).await?;
            if matches!(commit, Commit::Refused { condition: LEADER_CONDITION, .. }) {
                return Err(RegistryError::Deposed { term: self.term() });
            }
        }
        Ok(())
    }
}

//! Requests of operators: run-time metadata, which overrides a machine's configuration, intents for
//! machines, and rebalancing.

use std::collections::BTreeMap;

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing};
use fleet_core::{Intent, MachineId, Revision};

use super::{Registry, RegistryError, unchanged};
use crate::codec::{decode_rebalancing, encode_intent, encode_rebalancing, encode_text};
use crate::registry::Key;
use crate::{Commit, StoreError, Transaction};

/// Change of a machine's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataChange {
    /// Sets a key. An empty value hides the key, like [`Remove`](Self::Remove).
    Set {
        /// Machine, present or not.
        machine: MachineId,
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Hides a key, even if it is in the machine's configuration.
    Remove {
        /// Machine, present or not.
        machine: MachineId,
        /// The key.
        key: String,
    },
}

impl Registry {
    /// Applies all changes in one step. If several changes have the same machine and key, the last
    /// one takes effect.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] as a [`RegistryError::Store`] when a key is empty, there are no
    /// changes, or the changes do not fit into one [transaction](Transaction::MAX_OPERATIONS).
    pub async fn patch_metadata(
        &self,
        changes: &[MetadataChange],
    ) -> Result<Revision, RegistryError> {
        let mut last = BTreeMap::new();
        for change in changes {
            let (machine, key, value) = match change {
                MetadataChange::Set { machine, key, value } => (machine, key, value.as_str()),
                MetadataChange::Remove { machine, key } => (machine, key, ""),
            };
            last.insert((machine, key), value);
        }
        if last.is_empty() || last.keys().any(|(_, key)| key.is_empty()) {
            let text = "a metadata change has no key".to_owned();
            return Err(StoreError::Invalid(text).into());
        }
        let put = |transaction: Transaction,
                   ((machine, key), value): ((&MachineId, &String), _)| {
            let key = Key::Metadata(machine.clone(), key.clone());
            transaction.put(self.key(&key), encode_text(value))
        };
        match self.store.commit(last.into_iter().fold(Transaction::new(), put)).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }
}

impl Registry {
    /// Sets or replaces the intent for a machine, even if the machine is absent. `None` removes the
    /// intent, so the machine accepts units again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails.
    pub async fn set_intent(
        &self,
        machine: &MachineId,
        intent: Option<Intent>,
    ) -> Result<Revision, RegistryError> {
        let key = self.key(&Key::Intent(machine.clone()));
        let transaction = match intent {
            Some(intent) => Transaction::new().put(key, encode_intent(intent)),
            None => Transaction::new().delete(key),
        };
        match self.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }
}

/// Maximum number of attempts to write the request. The engine changes the request with every step
/// of a rebalancing, so conflicts are common.
const MAX_ATTEMPTS: usize = 8;

impl Registry {
    /// Requests a rebalancing of the cluster. If there is a request already, only its limits are
    /// replaced, so moves that have begun continue. A request with the same limits changes nothing.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails; [`RegistryError::Conflict`] when other
    /// writers changed the request during every attempt.
    pub async fn request_rebalancing(
        &self,
        limits: RebalanceLimits,
    ) -> Result<Revision, RegistryError> {
        let key = self.key(&Key::Rebalancing);
        for _ in 0..MAX_ATTEMPTS {
            let (entry, revision) = self.get(&Key::Rebalancing).await?;
            // An unreadable request is not executed, and is replaced.
            let before = entry.as_ref().and_then(|entry| decode_rebalancing(&entry.value).ok());
            if before.as_ref().is_some_and(|before| before.limits == limits) {
                return Ok(revision);
            }
            let under_way = before.map(|before| before.moves).unwrap_or_default();
            let order = Rebalancing { moves: under_way, ..Rebalancing::new(limits) };
            let order = encode_rebalancing(&order);
            let transaction = Transaction::new().when(unchanged(&key, entry.as_ref()));
            let commit = self.store.commit(transaction.put(&key, order)).await?;
            if let Commit::Applied(revision) = commit {
                return Ok(revision);
            }
        }
        Err(RegistryError::Conflict)
    }

    /// Deletes the rebalancing request, if one exists. Units stay on their current machines.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`] when the store fails.
    pub async fn end_rebalancing(&self) -> Result<Revision, RegistryError> {
        let transaction = Transaction::new().delete(self.key(&Key::Rebalancing));
        match self.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }
}

//! Run-time metadata, which overrides a machine's configuration.

use std::collections::BTreeMap;

use fleet_core::{MachineId, Revision};

use super::{Registry, RegistryError};
use crate::codec::encode_text;
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

//! Operators' intents for machines. They outlive the machines' presence.

use fleet_core::{Intent, MachineId, Revision};

use super::{Registry, RegistryError};
use crate::codec::encode_intent;
use crate::registry::Key;
use crate::{Commit, Transaction};

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

//! What people said is to become of machines; it outlives their presence.

use fleet_core::{Intent, MachineId, Revision};

use super::{Registry, RegistryError};
use crate::codec::encode_intent;
use crate::{Commit, Key, Transaction};

impl Registry {
    /// Notes what is to become of a machine, present or not, in the place of what was said before.
    /// Nothing takes that back: the machine takes units again.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`].
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

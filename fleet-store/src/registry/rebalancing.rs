//! Requesting and cancelling a rebalancing.

use fleet_core::{RebalanceLimits, Rebalancing, Revision};

use super::{Registry, RegistryError, unchanged};
use crate::codec::{decode_rebalancing, encode_rebalancing};
use crate::registry::Key;
use crate::{Commit, Transaction};

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

//! The order to rebalance, as people give it and take it back.

use fleet_core::{RebalanceLimits, Rebalancing, Revision};

use super::{Registry, RegistryError, unchanged};
use crate::codec::{decode_rebalancing, encode_rebalancing};
use crate::{Commit, Key, Transaction};

/// How often an order is tried that others change at the same time, which the engine does with
/// every step.
const MAX_ATTEMPTS: usize = 8;

impl Registry {
    /// Orders the cluster to be rebalanced. Who is under way for an order that is there already
    /// stays so, by the new terms; asking for the same terms again changes nothing.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`], and [`RegistryError::Conflict`] when the order was changed by
    /// somebody else each time that it was tried.
    pub async fn request_rebalancing(
        &self,
        terms: RebalanceLimits,
    ) -> Result<Revision, RegistryError> {
        let key = self.key(&Key::Rebalancing);
        for _ in 0..MAX_ATTEMPTS {
            let (entry, revision) = self.get(&Key::Rebalancing).await?;
            // What nobody here can read is not carried out by anybody here, and is replaced.
            let before = entry.as_ref().and_then(|entry| decode_rebalancing(&entry.value).ok());
            if before.as_ref().is_some_and(|before| before.limits == terms) {
                return Ok(revision);
            }
            let under_way = before.map(|before| before.moves).unwrap_or_default();
            let order = Rebalancing { moves: under_way, ..Rebalancing::new(terms) };
            let order = encode_rebalancing(&order);
            let transaction = Transaction::new().when(unchanged(&key, entry.as_ref()));
            let commit = self.store.commit(transaction.put(&key, order)).await?;
            if let Commit::Applied(revision) = commit {
                return Ok(revision);
            }
        }
        Err(RegistryError::Conflict)
    }

    /// Takes the order to rebalance back, if there is one: who was moved stays where it is now.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Store`].
    pub async fn end_rebalancing(&self) -> Result<Revision, RegistryError> {
        let transaction = Transaction::new().delete(self.key(&Key::Rebalancing));
        match self.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }
}

//! What a leader notes of the order to rebalance.

use fleet_core::{Rebalancing, Revision};

use super::{LEADER_CONDITION, Leadership};
use crate::codec::encode_rebalancing;
use crate::registry::RegistryError;
use crate::{Commit, Condition, Key, Transaction};

impl Leadership {
    /// Puts the order to rebalance as it is from now on in the place of the one that was seen;
    /// nothing ends it. Moves are noted by [`commit`](Self::commit), with the placements.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when
    /// the order is no longer the one that was seen. Nothing is done then.
    pub async fn update_rebalancing(
        &self,
        seen: &Rebalancing,
        now: Option<&Rebalancing>,
    ) -> Result<Revision, RegistryError> {
        let leader = self.registry.key(&Key::Leader);
        let mut transaction = Transaction::new().when(Condition::value(leader, self.claim.clone()));
        let rebalancing_write = self.rebalancing_write(seen, now);
        transaction.conditions.extend(rebalancing_write.conditions);
        transaction.writes.extend(rebalancing_write.writes);
        match self.registry.store.commit(transaction).await? {
            Commit::Applied(revision) => Ok(revision),
            Commit::Refused { condition: LEADER_CONDITION, .. } => {
                Err(RegistryError::Deposed { term: self.term })
            }
            Commit::Refused { .. } => Err(RegistryError::Conflict),
        }
    }

    /// What is written of an order, on condition that it is the one that was seen.
    pub(super) fn rebalancing_write(
        &self,
        seen: &Rebalancing,
        now: Option<&Rebalancing>,
    ) -> Transaction {
        let key = self.registry.key(&Key::Rebalancing);
        let as_seen = Condition::value(&key, encode_rebalancing(seen));
        let transaction = Transaction::new().when(as_seen);
        match now {
            Some(now) => transaction.put(key, encode_rebalancing(now)),
            None => transaction.delete(key),
        }
    }
}

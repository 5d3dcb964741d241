//! The leader's updates of the rebalancing request.

use fleet_core::{Rebalancing, Revision};

use super::{LEADER_CONDITION, Leadership};
use crate::codec::encode_rebalancing;
use crate::registry::Key;
use crate::registry::RegistryError;
use crate::{Commit, Condition, Transaction};

impl Leadership {
    /// Replaces the stored rebalancing request by `now`, or deletes it if `now` is `None`. This
    /// requires that the stored request still equals `seen`.
    ///
    /// Updates that belong to moves are made by [`commit`](Self::commit) instead, in the same step
    /// as the placements.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Deposed`] when the leadership has ended; [`RegistryError::Conflict`] when
    /// the request has changed. Nothing is written in either case.
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

    /// Returns the update of a request, on condition that it is unchanged.
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

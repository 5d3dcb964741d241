//! Destroying units, with their placements, which are kept by machine.

use std::time::Duration;

use fleet_core::Revision;
use fleet_unitfile::UnitName;

use super::units::check_unchanged;
use super::{Registry, RegistryError};
use crate::clock::within;
use crate::mirror::UnitPlacements;
use crate::{Commit, Condition, Key, Mirror, Transaction};

/// How often it is looked again where the unit is, when that has changed meanwhile.
const MAX_ATTEMPTS: usize = 10;

/// How long to wait each time for the mirror to see what has changed.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(1);

/// The condition that there is a unit to destroy.
const UNIT_CONDITION: usize = 0;

impl Registry {
    /// Forgets a unit, with its placement and the reason why it had none. Its content stays until
    /// it is [collected](Self::collect_contents).
    ///
    /// The mirror tells where the unit is placed, and that this is still so is a condition. If it
    /// is not, the mirror is waited for and asked again, ten times for a second at most. After that
    /// the unit is destroyed nevertheless; what is left of its placement is taken away by the
    /// engine, as any placement of a unit that is not there.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`].
    pub async fn destroy(
        &self,
        name: &UnitName,
        mirror: &Mirror,
    ) -> Result<Revision, RegistryError> {
        self.destroy_if(name, mirror, None).await
    }

    /// The same of a unit that was last written by the revision `seen` or an earlier one.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NotFound`]; [`RegistryError::Changed`]; [`RegistryError::Conflict`] when
    /// others keep writing the unit.
    pub async fn destroy_if_unchanged(
        &self,
        name: &UnitName,
        mirror: &Mirror,
        seen: Revision,
    ) -> Result<Revision, RegistryError> {
        self.destroy_if(name, mirror, Some(seen)).await
    }

    async fn destroy_if(
        &self,
        name: &UnitName,
        mirror: &Mirror,
        unchanged: Option<Revision>,
    ) -> Result<Revision, RegistryError> {
        for _ in 0..MAX_ATTEMPTS {
            let existence = self.existence_condition(name, unchanged).await?;
            let transaction =
                self.destroy_transaction(name, existence, &mirror.placements_of(name), true);
            if let Some(revision) = self.try_destroy(name, transaction, unchanged.is_some()).await?
            {
                return Ok(revision);
            }
            if !self.wait_for_mirror(name, mirror).await? {
                break;
            }
        }
        let existence = self.existence_condition(name, unchanged).await?;
        let transaction =
            self.destroy_transaction(name, existence, &mirror.placements_of(name), false);
        let destroyed = self.try_destroy(name, transaction, unchanged.is_some()).await?;
        destroyed.ok_or(RegistryError::Conflict)
    }

    /// The condition that there is a unit to destroy.
    async fn existence_condition(
        &self,
        name: &UnitName,
        unchanged: Option<Revision>,
    ) -> Result<Condition, RegistryError> {
        let key = Key::Unit(name.clone());
        let Some(seen) = unchanged else { return Ok(Condition::present(self.key(&key))) };
        let (entry, _) = self.get(&key).await?;
        let entry = entry.ok_or_else(|| RegistryError::NotFound { name: name.clone() })?;
        check_unchanged(seen, name, &entry)?;
        Ok(Condition::modified_at(self.key(&key), entry.modified))
    }

    /// Destroys a unit, unless it is no longer where the transaction takes it to be.
    async fn try_destroy(
        &self,
        name: &UnitName,
        transaction: Transaction,
        is_unchanged: bool,
    ) -> Result<Option<Revision>, RegistryError> {
        match self.commit_grouped(transaction).await? {
            Commit::Applied(revision) => Ok(Some(revision)),
            // Of one that was to be unchanged it has to be seen whether it is gone.
            Commit::Refused { condition: UNIT_CONDITION, .. } if !is_unchanged => {
                Err(RegistryError::NotFound { name: name.clone() })
            }
            Commit::Refused { .. } => Ok(None),
        }
    }

    /// Nothing of the record is read: a damaged one can be destroyed, too.
    fn destroy_transaction(
        &self,
        name: &UnitName,
        existence: Condition,
        seen: &UnitPlacements,
        exactly: bool,
    ) -> Transaction {
        let record = self.key(&Key::Unit(name.clone()));
        let mut transaction = Transaction::new().when(existence).delete(record);
        for machine in &seen.machines {
            let placement = self.key(&Key::Placement(machine.clone(), name.clone()));
            if exactly {
                // As long as it is existence, there is no other.
                transaction = transaction.when(Condition::present(&placement));
            }
            transaction = transaction.delete(placement);
        }
        if exactly && seen.machines.is_empty() {
            transaction = transaction.when(self.placements_unchanged_since(seen.last_write));
        }
        transaction.delete(self.key(&Key::Reason(name.clone())))
    }

    /// Waits until the mirror has seen what became of the unit, and of placements; `false` when
    /// that takes too long.
    async fn wait_for_mirror(
        &self,
        name: &UnitName,
        mirror: &Mirror,
    ) -> Result<bool, RegistryError> {
        let (unit, _) = self.get(&Key::Unit(name.clone())).await?;
        let Some(unit) = unit else {
            return Err(RegistryError::NotFound { name: name.clone() });
        };
        // No leader wrote placements before the one that did last, and a unit of this name that was
        // destroyed had its end before this one came.
        let (placed, _) = self.get(&Key::PlacementVersion).await?;
        let changed = placed.map_or(unit.modified, |placed| placed.modified.max(unit.modified));
        Ok(matches!(within(MIRROR_TIMEOUT, mirror.wait_for(changed)).await, Some(Ok(_))))
    }
}

//! Destroying units, with their placements, which are kept by machine.

use std::time::Duration;

use fleet_core::Revision;
use fleet_unitfile::UnitName;

use super::units::unchanged_since;
use super::{Registry, RegistryError};
use crate::clock::within;
use crate::mirror::Whereabouts;
use crate::{Commit, Condition, Key, Mirror, Transaction};

/// How often it is looked again where the unit is, when that has changed meanwhile.
const MOST_TRIES: usize = 10;

/// How long to wait each time for the mirror to see what has changed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The condition that there is a unit to destroy.
const THERE: usize = 0;

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
    pub async fn destroy_unchanged(
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
        for _ in 0..MOST_TRIES {
            let there = self.there(name, unchanged).await?;
            let destroying = self.destroying(name, there, &mirror.whereabouts(name), true);
            if let Some(revision) = self.try_destroy(name, destroying, unchanged.is_some()).await? {
                return Ok(revision);
            }
            if !self.see_again(name, mirror).await? {
                break;
            }
        }
        let there = self.there(name, unchanged).await?;
        let destroying = self.destroying(name, there, &mirror.whereabouts(name), false);
        let destroyed = self.try_destroy(name, destroying, unchanged.is_some()).await?;
        destroyed.ok_or(RegistryError::Conflict)
    }

    /// The condition that there is a unit to destroy.
    async fn there(
        &self,
        name: &UnitName,
        unchanged: Option<Revision>,
    ) -> Result<Condition, RegistryError> {
        let key = Key::Unit(name.clone());
        let Some(seen) = unchanged else { return Ok(Condition::present(self.key(&key))) };
        let (entry, _) = self.get(&key).await?;
        let entry = entry.ok_or_else(|| RegistryError::NotFound { name: name.clone() })?;
        unchanged_since(seen, name, &entry)?;
        Ok(Condition::modified_at(self.key(&key), entry.modified))
    }

    /// Destroys a unit, unless it is no longer where the transaction takes it to be.
    async fn try_destroy(
        &self,
        name: &UnitName,
        destroying: Transaction,
        is_unchanged: bool,
    ) -> Result<Option<Revision>, RegistryError> {
        match self.commit_together(destroying).await? {
            Commit::Applied(revision) => Ok(Some(revision)),
            // Of one that was to be unchanged it has to be seen whether it is gone.
            Commit::Refused { condition: THERE, .. } if !is_unchanged => {
                Err(RegistryError::NotFound { name: name.clone() })
            }
            Commit::Refused { .. } => Ok(None),
        }
    }

    /// Nothing of the record is read: a damaged one can be destroyed, too.
    fn destroying(
        &self,
        name: &UnitName,
        there: Condition,
        seen: &Whereabouts,
        exactly: bool,
    ) -> Transaction {
        let record = self.key(&Key::Unit(name.clone()));
        let mut destroying = Transaction::new().when(there).delete(record);
        for machine in &seen.machines {
            let placement = self.key(&Key::Placement(machine.clone(), name.clone()));
            if exactly {
                // As long as it is there, there is no other.
                destroying = destroying.when(Condition::present(&placement));
            }
            destroying = destroying.delete(placement);
        }
        if exactly && seen.machines.is_empty() {
            destroying = destroying.when(self.placed_since(seen.written));
        }
        destroying.delete(self.key(&Key::Reason(name.clone())))
    }

    /// Waits until the mirror has seen what became of the unit, and of placements; `false` when
    /// that takes too long.
    async fn see_again(&self, name: &UnitName, mirror: &Mirror) -> Result<bool, RegistryError> {
        let (unit, _) = self.get(&Key::Unit(name.clone())).await?;
        let Some(unit) = unit else {
            return Err(RegistryError::NotFound { name: name.clone() });
        };
        // No leader wrote placements before the one that did last, and a unit of this name that was
        // destroyed had its end before this one came.
        let (placed, _) = self.get(&Key::Placed).await?;
        let changed = placed.map_or(unit.modified, |placed| placed.modified.max(unit.modified));
        Ok(matches!(within(PATIENCE, mirror.wait_for(changed)).await, Some(Ok(_))))
    }
}

//! Effects of a unit's state on other units that are no dependencies of it, such as `OnFailure=`.

use std::collections::{BTreeMap, BTreeSet};

use super::compile::RelationKind;
use crate::graph::model::Name;

/// Other units, by unit.
pub type UnitIndex = BTreeMap<Name, BTreeSet<Name>>;

/// Effects of the state of units on other units. The supervisor acts on them; the graph does not
/// contain them. The other units may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effects {
    /// Units that start once the unit has failed (`OnFailure=`).
    pub on_failure: UnitIndex,
    /// Units that start once the unit has ended without a failure (`OnSuccess=`).
    pub on_success: UnitIndex,
    /// Units that start this unit by `OnFailure=` or `OnSuccess=`.
    pub triggered_by: UnitIndex,
}

impl Effects {
    /// Adds the effect of a relation that `from` declares for `to`. Other relations have none.
    pub(super) fn add(&mut self, kind: RelationKind, from: &Name, to: &Name) {
        let insert = |index: &mut UnitIndex, unit: &Name, other: &Name| {
            index.entry(unit.clone()).or_default().insert(other.clone());
        };
        match kind {
            RelationKind::OnFailure => insert(&mut self.on_failure, from, to),
            RelationKind::OnSuccess => insert(&mut self.on_success, from, to),
            _ => return,
        }
        insert(&mut self.triggered_by, to, from);
    }
}

impl RelationKind {
    /// Returns whether relations of this kind become [`Effects`] instead of edges.
    pub(in crate::graph) fn is_effect(self) -> bool {
        matches!(self, Self::OnFailure | Self::OnSuccess)
    }
}

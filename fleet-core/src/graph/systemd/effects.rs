//! Effects of a unit's state on other units that are no dependencies of it, such as `OnFailure=`.

use std::collections::{BTreeMap, BTreeSet};

use super::link::LinkedUnits;
use super::relation::RelationKind;
use crate::graph::model::Name;

/// Other units, by unit.
pub type UnitIndex = BTreeMap<Name, BTreeSet<Name>>;

/// Effects of the state of units on other units. The supervisor acts on them; the graph does not
/// contain them. Units that a result starts may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effects {
    /// Units that start once the unit has failed (`OnFailure=`).
    pub on_failure: UnitIndex,
    /// Units that start once the unit has ended without a failure (`OnSuccess=`).
    pub on_success: UnitIndex,
    /// Units that start this unit by `OnFailure=` or `OnSuccess=`.
    pub triggered_by: UnitIndex,
    /// Units that reload their configuration together with the unit (`PropagatesReloadTo=`).
    pub reloads: UnitIndex,
    /// Units that stop once the unit has stopped or ended, unless it restarts by request
    /// (`PropagatesStopTo=`).
    pub stops: UnitIndex,
    /// Units that start again as long as the unit is active (`Upholds=`).
    pub upholds: UnitIndex,
    /// Units that uphold the unit.
    pub upheld_by: UnitIndex,
    /// For each unit with `StopWhenUnneeded=`, the units that need it.
    pub needed_by: UnitIndex,
    /// Units with `StopWhenUnneeded=` that the unit needs.
    pub may_unneed: UnitIndex,
}

fn insert(index: &mut UnitIndex, unit: &Name, other: &Name) {
    index.entry(unit.clone()).or_default().insert(other.clone());
}

impl Effects {
    /// Adds a unit with `StopWhenUnneeded=` and the units that need it.
    pub(super) fn add_needed_by<'a>(&mut self, unit: &Name, by: impl Iterator<Item = &'a Name>) {
        self.needed_by.entry(unit.clone()).or_default();
        for other in by {
            insert(&mut self.needed_by, unit, other);
            insert(&mut self.may_unneed, other, unit);
        }
    }

    /// Adds that one unit upholds another one.
    pub(super) fn add_upheld(&mut self, upholder: &Name, upheld: &Name) {
        insert(&mut self.upholds, upholder, upheld);
        insert(&mut self.upheld_by, upheld, upholder);
    }

    /// Adds the effect of a relation that `from` declares for `to`. Other relations have none.
    pub(super) fn add(&mut self, kind: RelationKind, from: &Name, to: &Name) {
        match kind {
            RelationKind::OnFailure => insert(&mut self.on_failure, from, to),
            RelationKind::OnSuccess => insert(&mut self.on_success, from, to),
            RelationKind::PropagatesReloadTo => insert(&mut self.reloads, from, to),
            RelationKind::ReloadPropagatedFrom => insert(&mut self.reloads, to, from),
            RelationKind::PropagatesStopTo => insert(&mut self.stops, from, to),
            RelationKind::StopPropagatedFrom => insert(&mut self.stops, to, from),
            _ => {}
        }
        if kind.is_trigger() {
            insert(&mut self.triggered_by, to, from);
        }
    }
}

impl RelationKind {
    /// Returns whether relations of this kind become [`Effects`] instead of edges.
    pub(in crate::graph) fn is_effect(self) -> bool {
        use RelationKind::{
            PropagatesReloadTo, PropagatesStopTo, ReloadPropagatedFrom, StopPropagatedFrom,
        };
        self.is_trigger()
            || matches!(
                self,
                PropagatesReloadTo | PropagatesStopTo | ReloadPropagatedFrom | StopPropagatedFrom
            )
    }

    /// Returns whether the result of a unit starts the other unit.
    pub(super) fn is_trigger(self) -> bool {
        matches!(self, Self::OnFailure | Self::OnSuccess)
    }
}

impl LinkedUnits {
    /// Returns all units that systemd stops together with a unit, directly or indirectly. The unit
    /// itself is not included. A restart of the unit restarts them.
    #[must_use]
    pub fn stopped_with(&self, unit: &Name) -> BTreeSet<Name> {
        reachable(unit, |next| self.stops.get(next).into_iter().flatten())
    }

    /// Returns all units that systemd stops if it stops a unit, and the unit does not start again:
    /// also those to which the stop is propagated (`PropagatesStopTo=`). The unit itself is not
    /// included.
    #[must_use]
    pub fn stopped_after(&self, unit: &Name) -> BTreeSet<Name> {
        let indexes = [&self.stops, &self.effects.stops];
        reachable(unit, |next| indexes.into_iter().filter_map(move |it| it.get(next)).flatten())
    }
}

/// Returns all units that `next` reaches from a unit, without that unit.
fn reachable<'a, I: Iterator<Item = &'a Name>>(
    unit: &'a Name,
    next: impl Fn(&'a Name) -> I,
) -> BTreeSet<Name> {
    let mut found = BTreeSet::new();
    let mut open = vec![unit];
    while let Some(at) = open.pop() {
        open.extend(next(at).filter(|name| *name != unit && found.insert((*name).clone())));
    }
    found
}

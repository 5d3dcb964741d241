//! An index of the loaded timers, and of the units that start them.
//!
//! Timers are not part of the graph. As with systemd, starting a unit also starts the timers that
//! the unit wants or requires. After that, a timer no longer depends on the unit.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::graph::systemd::{Relation, RelationKind};
use fleet_core::graph::{Name, Target};
use fleet_unitfile::UnitName;

use super::loaded_unit::{Definition, LoadedUnits, name_of};

/// A timer that a unit starts, and whether the unit requires it.
pub(in super::super) type PulledTimer = (UnitName, bool);

/// Index of the loaded timers.
#[derive(Default)]
pub(super) struct TimerIndex {
    /// Units that the `[Install]` section of each timer names.
    timers: BTreeMap<UnitName, Vec<Name>>,
    /// Timers whose `[Install]` section names the unit.
    by_unit: BTreeMap<Name, BTreeSet<PulledTimer>>,
}

impl TimerIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    pub(super) fn names(&self) -> BTreeSet<UnitName> {
        self.timers.keys().cloned().collect()
    }

    /// Adds a timer, or updates it after its file has changed.
    pub(super) fn insert(&mut self, timer: &UnitName, relations: &[Relation]) {
        self.remove(timer);
        let mut units = Vec::new();
        for relation in relations {
            let is_required = match relation.kind {
                RelationKind::RequiredBy => true,
                RelationKind::WantedBy => false,
                _ => continue,
            };
            let unit = name_of(&relation.unit);
            self.by_unit.entry(unit.clone()).or_default().insert((timer.clone(), is_required));
            units.push(unit);
        }
        self.timers.insert(timer.clone(), units);
    }

    pub(super) fn remove(&mut self, timer: &UnitName) {
        for unit in self.timers.remove(timer).into_iter().flatten() {
            if let Some(timers) = self.by_unit.get_mut(&unit) {
                timers.retain(|(other, _)| other != timer);
                if timers.is_empty() {
                    self.by_unit.remove(&unit);
                }
            }
        }
    }

    /// Returns the timers that any of `units` pulls in.
    pub(super) fn pulled_by(
        &self,
        units: &BTreeSet<Target>,
        loaded_units: &LoadedUnits,
    ) -> Vec<PulledTimer> {
        // A timer that any unit requires is required, even if others merely want it.
        let mut wanted: BTreeMap<&UnitName, bool> = BTreeMap::new();
        for unit in units.iter().filter_map(|unit| Name::new(unit.as_str()).ok()) {
            for (timer, is_required) in self.by_unit.get(&unit).into_iter().flatten() {
                *wanted.entry(timer).or_default() |= is_required;
            }
            let loaded = loaded_units.get(&unit);
            let Some(Definition::Valid(compiled)) = loaded.map(|loaded| &loaded.definition) else {
                continue;
            };
            for relation in &compiled.relations {
                let is_required = match relation.kind {
                    RelationKind::Requires | RelationKind::BindsTo => true,
                    RelationKind::Wants => false,
                    _ => continue,
                };
                if self.timers.contains_key(&relation.unit) {
                    *wanted.entry(&relation.unit).or_default() |= is_required;
                }
            }
        }
        wanted.into_iter().map(|(timer, is_required)| (timer.clone(), is_required)).collect()
    }
}

//! An index of the loaded timers, and of the units that start them.
//!
//! Timers are not part of the graph. As with systemd, starting a unit also starts the timers that
//! the unit wants or requires. After that, a timer no longer depends on the unit.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::graph::systemd::{Relation, RelationKind};
use fleet_core::graph::{Name, Target};
use fleet_unitfile::UnitName;

use super::super::Supervisor;
use super::calls::name_of;
use super::desired::requirements;
use super::{Definition, ManagedUnits};

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
}

impl Supervisor {
    /// Returns the timers to start together with a unit. These are the timers that are pulled in by
    /// the unit itself or by a unit that it requires.
    pub(super) fn timers_of(&mut self, unit: &UnitName) -> Vec<PulledTimer> {
        let name = name_of(unit);
        if self.managed.timers.timers.is_empty() || !self.managed.is_loaded(&name) {
            return Vec::new();
        }
        self.apply_pending_loads();
        let needed = requirements(self.planner.graph(), &name);
        self.managed.timers_pulled_by(&needed)
    }
}

impl ManagedUnits {
    /// Adds a loaded timer, with the relations that its file declares.
    pub(super) fn add_timer(&mut self, timer: &UnitName, relations: &[Relation]) {
        self.timers.insert(timer, relations);
        self.graph_is_stale = true;
    }

    /// Removes a timer that is unloaded.
    pub(super) fn remove_timer(&mut self, timer: &UnitName) {
        self.timers.remove(timer);
        self.graph_is_stale = true;
    }

    fn timers_pulled_by(&self, units: &BTreeSet<Target>) -> Vec<PulledTimer> {
        // A timer that any unit requires is required, even if others merely want it.
        let mut wanted: BTreeMap<&UnitName, bool> = BTreeMap::new();
        for unit in units.iter().filter_map(|unit| Name::new(unit.as_str()).ok()) {
            for (timer, is_required) in self.timers.by_unit.get(&unit).into_iter().flatten() {
                *wanted.entry(timer).or_default() |= is_required;
            }
            let loaded = self.loaded_units.get(&unit);
            let Some(Definition::Valid(compiled)) = loaded.map(|loaded| &loaded.definition) else {
                continue;
            };
            for relation in &compiled.relations {
                let is_required = match relation.kind {
                    RelationKind::Requires | RelationKind::BindsTo => true,
                    RelationKind::Wants => false,
                    _ => continue,
                };
                if self.timers.timers.contains_key(&relation.unit) {
                    *wanted.entry(&relation.unit).or_default() |= is_required;
                }
            }
        }
        wanted.into_iter().map(|(timer, is_required)| (timer.clone(), is_required)).collect()
    }
}

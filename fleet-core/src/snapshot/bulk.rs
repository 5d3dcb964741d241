//! Bulk insertion into a snapshot. Each method has the effect of inserting the entries one by one.
//! It is faster if the entries are sorted by unit name and the snapshot holds no entries of that
//! kind yet.

use std::sync::Arc;

use fleet_unitfile::UnitName;

use super::{Snapshot, States};
use crate::{Unit, UnitState};

impl Snapshot {
    /// Adds or replaces units, preferably in order of names.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use fleet_core::{Requirements, Snapshot, TargetState, Unit};
    /// use fleet_unitfile::UnitFile;
    ///
    /// let file = UnitFile::parse("[Service]\nExecStart=/bin/true\n")?;
    /// let unit = |name: &str| -> Result<_, fleet_unitfile::NameError> {
    ///     let (name, none) = (name.parse()?, Requirements::default());
    ///     Ok(Arc::new(Unit::new(name, file.clone(), none, TargetState::Launched)))
    /// };
    /// let mut snapshot = Snapshot::default();
    /// snapshot.put_units([unit("a.service")?, unit("b.service")?]);
    /// assert_eq!(snapshot.units().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_units(&mut self, units: impl IntoIterator<Item = Arc<Unit>>) {
        let units: Vec<_> = units.into_iter().collect();
        if !units.is_sorted_by(|one, other| one.name < other.name) {
            return units.into_iter().for_each(|unit| self.put_unit(unit));
        }
        let mut globals = Vec::new();
        for unit in &units {
            self.faults.remove(&unit.name);
            if unit.is_global() {
                globals.push((unit.name.clone(), ()));
            } else {
                self.globals.remove(&unit.name);
            }
        }
        self.globals.extend(globals);
        self.units.extend(units.into_iter().map(|unit| (unit.name.clone(), unit)));
    }

    /// Adds or replaces states, preferably in order of the unit names.
    pub fn put_states(&mut self, states: impl IntoIterator<Item = UnitState>) {
        let states: Vec<_> = states.into_iter().collect();
        if !states.is_sorted_by(|one, other| one.unit <= other.unit) {
            return states.into_iter().for_each(|state| self.put_state(state));
        }
        let mut all: Vec<(UnitName, States)> = Vec::new();
        for state in states {
            let (unit, state) = (state.unit.clone(), Arc::new(state));
            match all.last_mut() {
                Some((last, states)) if *last == unit => states.put(state),
                _ => {
                    let states = self.states_with(&unit, state);
                    all.push((unit, states));
                }
            }
        }
        self.states.extend(all);
    }

    /// Returns the states of a unit, with one state added or replaced.
    fn states_with(&self, unit: &UnitName, state: Arc<UnitState>) -> States {
        let Some(there) = self.states.get(unit) else { return States::One(state) };
        let mut states = there.clone();
        states.put(state);
        states
    }
}

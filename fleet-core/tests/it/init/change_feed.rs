//! Change reports: the state lists every unit whose status changed, so that a viewer need not query
//! all units.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};

use fleet_core::graph::{DerivedState, Incarnation, InitState, Name, StatusReport};

/// Last observed status of each unit.
#[derive(Clone, Default)]
pub(super) struct Told(BTreeMap<Name, Look>);

type Look = (Discriminant<DerivedState>, bool, bool, Option<Incarnation>, u32);

impl Told {
    pub(super) fn has_told_of_all_that_is_new(&mut self, system: &mut InitState) {
        let told = system.take_changed();
        let look = |name: &Name| system.status(name).map(|state| look(&state));
        let now: BTreeMap<Name, Look> =
            system.units().filter_map(|name| Some((name.clone(), look(name)?))).collect();
        for (name, look) in &now {
            let before = self.0.get(name);
            let is_told = told.binary_search(name).is_ok() || before == Some(look);
            assert!(is_told, "{name}: nothing was told of it: {before:?} {look:?}");
        }
        self.0 = now;
    }
}

fn look(state: &StatusReport) -> Look {
    let StatusReport { state, needed, degraded, incarnation, attempts, .. } = state;
    (discriminant(state), *needed, *degraded, *incarnation, *attempts)
}

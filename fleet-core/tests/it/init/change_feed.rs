//! Change reports: the state lists every unit whose status changed, so that a viewer need not query
//! all units.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};

use fleet_core::graph::{DerivedState, Incarnation, InitState, Name, StatusReport};

/// Last observed status of each unit.
#[derive(Clone, Default)]
pub(super) struct LastStatuses(BTreeMap<Name, StatusKey>);

type StatusKey = (Discriminant<DerivedState>, bool, bool, Option<Incarnation>, u32);

impl LastStatuses {
    pub(super) fn check_changes(&mut self, system: &mut InitState) {
        let changed = system.take_changed();
        let status_key = |name: &Name| system.status(name).map(|state| status_key(&state));
        let now: BTreeMap<Name, StatusKey> =
            system.units().filter_map(|name| Some((name.clone(), status_key(name)?))).collect();
        for (name, status_key) in &now {
            let before = self.0.get(name);
            let is_reported = changed.binary_search(name).is_ok() || before == Some(status_key);
            assert!(is_reported, "{name}: the change was not reported: {before:?} {status_key:?}");
        }
        self.0 = now;
    }
}

fn status_key(state: &StatusReport) -> StatusKey {
    let StatusReport { state, needed, degraded, incarnation, attempts, .. } = state;
    (discriminant(state), *needed, *degraded, *incarnation, *attempts)
}

//! Global units: determines which global units fit on a machine. They are added in the order of
//! their names. Each needs matching metadata and must not conflict with a unit that is already on
//! the machine. Placed units always come before global units.

use crate::index::{Index, LeaveReason, MachineNo, Occupancy, UnitNo};
use crate::rules::PlacementQuery;

impl Index {
    /// Adds to an occupancy of placed units the global units that fit on the machine. Returns the
    /// added units.
    pub(super) fn fit_in(&self, occupancy: &mut Occupancy, machine: MachineNo) -> Vec<UnitNo> {
        for unit in self.globals.values() {
            let query = PlacementQuery { occupancy, ..PlacementQuery::new(self, *unit, machine) };
            if query.denial_of_global().is_none() {
                occupancy.add(self.class(*unit), false);
                occupancy.globals.push(*unit);
            }
        }
        occupancy.globals.clone()
    }

    /// Recomputes the global units of a machine.
    ///
    /// The call is required after a unit has left the machine. It is not required after a unit has
    /// come, for two reasons. The new unit was accepted only because it conflicts with no global
    /// unit there. Global units that were refused before stay refused.
    pub(super) fn refit_globals(&mut self, machine: MachineNo) {
        if self.globals.is_empty() {
            return;
        }
        let mut occupancy = Occupancy::default();
        for unit in &self.machines.slots[machine].occupancy.units {
            occupancy.add(self.class(*unit), false);
        }
        let fitted = self.fit_in(&mut occupancy, machine);
        self.set_globals(machine, &fitted);
    }

    /// Replaces the global units of a machine.
    pub(super) fn set_globals(&mut self, machine: MachineNo, fitted: &[UnitNo]) {
        let present = self.machines.slots[machine].occupancy.globals.clone();
        for unit in present.iter().filter(|unit| !fitted.contains(unit)) {
            self.unassign(*unit, machine, LeaveReason::Refitted);
            self.wake_followers(*unit);
        }
        for unit in fitted.iter().filter(|unit| !present.contains(unit)) {
            self.assign(*unit, machine);
            self.wake_followers(*unit);
        }
    }

    /// Wakes the units with a pattern that matches this global unit. It does so only if this is the
    /// first matching unit on any machine, or was the last one. A pattern can mean a waiting unit
    /// only while no matching unit is on a machine.
    fn wake_followers(&mut self, unit: UnitNo) {
        let mut matched = self.class(unit).matched.iter().map(|it| &self.patterns.slots[*it]);
        if matched.any(|pattern| !pattern.followers.is_empty() && pattern.assigned <= 1) {
            self.wake_tied(unit);
        }
    }
}

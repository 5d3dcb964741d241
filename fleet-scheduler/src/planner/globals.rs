//! Which global units a machine has: one after the other by name, as long as the machine has what
//! they ask for and nobody conflicts who is there already. Placed units are always there first.

use crate::index::{Index, LeaveReason, MachineNo, Occupancy, UnitNo};
use crate::rules::PlacementQuery;

impl Index {
    /// Fits the global units into a occupancy of placed units. Returns them.
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

    /// Fits the global units of a machine in again.
    ///
    /// Needed when a unit has left. When one has come it is not: it came only because no global
    /// unit there conflicted with it, and those that were refused before are refused still.
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

    /// Makes these the global units of a machine.
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

    /// Wakes those whose pattern matches a global unit that is the first one on a machine, or was
    /// the last one: a pattern means another waiting unit only as long as nobody is anywhere.
    fn wake_followers(&mut self, unit: UnitNo) {
        let mut matched = self.class(unit).matched.iter().map(|it| &self.patterns.slots[*it]);
        if matched.any(|pattern| !pattern.followers.is_empty() && pattern.assigned <= 1) {
            self.wake_tied(unit);
        }
    }
}

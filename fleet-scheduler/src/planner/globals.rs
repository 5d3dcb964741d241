//! Global units: determines which global units fit on a machine.
//!
//! They are added after the placed units, in the order of their names. A global unit fits if the
//! machine has matching metadata and the unit conflicts with no unit that is already there.

use crate::index::{Cluster, LeaveReason, MachineNo, Occupancy, UnitNo};
use crate::rules::PlacementQuery;

impl Cluster {
    /// Adds the global units that fit on a machine to an occupancy that contains only the placed
    /// units. Returns the added units.
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
    /// The call is required after a unit has left the machine, because other global units may then
    /// fit. It is not required after a unit has come. The machine accepted the new unit only
    /// because it conflicts with no global unit there, so all of these stay. The global units that
    /// were refused before stay refused.
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
            self.requeue_followers(*unit);
        }
        for unit in fitted.iter().filter(|unit| !present.contains(unit)) {
            self.assign(*unit, machine);
            self.requeue_followers(*unit);
        }
    }

    /// Queues again the units that have a `MachineOf=` pattern that matches this global unit, which
    /// has just come or left.
    ///
    /// A pattern ties units to a waiting unit only while no matching unit is on any machine. The
    /// call therefore has an effect only if this unit is the first match on any machine, or was the
    /// last.
    fn requeue_followers(&mut self, unit: UnitNo) {
        let mut matched = self.class(unit).matched.iter().map(|it| &self.patterns.slots[*it]);
        if matched.any(|pattern| !pattern.followers.is_empty() && pattern.assigned <= 1) {
            self.requeue_tied(unit);
        }
    }
}

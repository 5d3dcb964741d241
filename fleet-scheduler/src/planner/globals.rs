//! Which global units a machine has: one after the other by name, as long as the machine has what
//! they ask for and nobody conflicts who is there already. Placed units are always there first.

use crate::index::{Desk, Index, MachineNo, UnitNo, Why};
use crate::rules::Question;

impl Index {
    /// Fits the global units into a desk of placed units. Returns them.
    pub(super) fn fit_in(&self, desk: &mut Desk, machine: MachineNo) -> Vec<UnitNo> {
        for unit in self.globals.values() {
            let question = Question { desk, ..Question::new(self, *unit, machine) };
            if question.denial_of_global().is_none() {
                desk.count_in(self.class(*unit), false);
                desk.globals.push(*unit);
            }
        }
        desk.globals.clone()
    }

    /// Fits the global units of a machine in again.
    ///
    /// Needed when a unit has left. When one has come it is not: it came only because no global
    /// unit there conflicted with it, and those that were refused before are refused still.
    pub(super) fn refit(&mut self, machine: MachineNo) {
        if self.globals.is_empty() {
            return;
        }
        let mut desk = Desk::default();
        for unit in &self.machines.slots[machine].desk.units {
            desk.count_in(self.class(*unit), false);
        }
        let fitted = self.fit_in(&mut desk, machine);
        self.set_globals(machine, &fitted);
    }

    /// Makes these the global units of a machine.
    pub(super) fn set_globals(&mut self, machine: MachineNo, fitted: &[UnitNo]) {
        let present = self.machines.slots[machine].desk.globals.clone();
        for unit in present.iter().filter(|unit| !fitted.contains(unit)) {
            self.unseat(*unit, machine, Why::Refitted);
            self.wake_namers(*unit);
        }
        for unit in fitted.iter().filter(|unit| !present.contains(unit)) {
            self.seat(*unit, machine);
            self.wake_namers(*unit);
        }
    }

    /// Wakes those whose pattern matches a global unit that is the first one on a machine, or was
    /// the last one: a pattern means another waiting unit only as long as nobody is anywhere.
    fn wake_namers(&mut self, unit: UnitNo) {
        let mut matched = self.class(unit).matched.iter().map(|it| &self.patterns.slots[*it]);
        if matched.any(|pattern| !pattern.namers.is_empty() && pattern.seated <= 1) {
            self.wake_around(unit);
        }
    }
}

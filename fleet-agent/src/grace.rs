//! Pure: no I/O, no clock. What an engine leaves undone while a missing machine may yet come back.

use std::time::Duration;

use fleet_core::Snapshot;
use fleet_scheduler::{Action, Cause, Plan, Step};

/// How long after its mirror has become current an engine waits for machines that are missing.
///
/// When a store was out of reach for longer than leases last, all machines have lost their presence
/// and come back one by one. The first one back must not be given the units of all others. So the
/// time is that of a machine which tries to join every ten seconds, and some to spare.
const GRACE: Duration = Duration::from_secs(15);

/// Takes out of a plan what rests on a machine being gone for good, if that is not certain yet.
/// Returns how long it will take until it is; nothing when nothing was taken out.
///
/// What is left breaks no rule without the rest: units that are no longer wanted go, and units that
/// ask for no other unit's company or absence get their machines.
pub(crate) fn withhold(
    snapshot: &Snapshot,
    plan: &mut Plan,
    current_for: Duration,
) -> Option<Duration> {
    let is_gone = |step: &Step| step.cause == Cause::MachineGone;
    if current_for >= GRACE || !plan.steps.iter().any(is_gone) {
        return None;
    }
    plan.steps.retain(|step| !is_gone(step) && stands_alone(snapshot, step));
    // What has a placement is not said to be without a machine.
    plan.unplaced.retain(|unit, _| snapshot.placement(unit.as_str()).is_none());
    Some(GRACE - current_for)
}

/// Whether the step can be taken without any other one.
fn stands_alone(snapshot: &Snapshot, step: &Step) -> bool {
    match (&step.action, snapshot.unit(step.unit.as_str())) {
        (Action::Remove { .. }, _) => matches!(step.cause, Cause::NotWanted(_)),
        (Action::Place { .. }, Some(unit)) => {
            unit.requirements.machine_of.is_empty() && unit.requirements.replaces.is_empty()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{Epoch, Machine, MachineId, Requirements, Strictness, TargetState, Unit};
    use fleet_scheduler::plan;
    use fleet_unitfile::UnitFile;

    use super::*;

    fn id(text: &str) -> MachineId {
        text.parse().unwrap()
    }

    fn add(snapshot: &mut Snapshot, name: &str, requirements: &str, desired: TargetState) {
        let text = format!("[Service]\nExecStart=/bin/true\n[X-Fleet]\n{requirements}");
        let (name, file) = (name.parse().unwrap(), UnitFile::parse(text).unwrap());
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
        snapshot.put_unit(Unit::new(name, file, parsed.requirements, desired));
    }

    /// One machine is there and one is missing, with a unit on each and several that are new.
    fn cluster() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.put_machine(Machine::new(id("here")));
        add(&mut snapshot, "kept.service", "", TargetState::Launched);
        add(&mut snapshot, "missing.service", "", TargetState::Launched);
        add(&mut snapshot, "new.service", "", TargetState::Launched);
        add(&mut snapshot, "beside.service", "MachineOf=missing.service\n", TargetState::Launched);
        add(&mut snapshot, "unwanted.service", "", TargetState::Inactive);
        for (unit, machine) in [("kept", "here"), ("missing", "away"), ("unwanted", "here")] {
            snapshot.place(format!("{unit}.service").parse().unwrap(), id(machine), Epoch(1));
        }
        snapshot
    }

    fn told(plan: &Plan) -> Vec<String> {
        plan.steps.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn units_of_a_missing_machine_wait_and_others_do_not() {
        let snapshot = cluster();
        let mut early = plan(&snapshot);
        let wait = withhold(&snapshot, &mut early, Duration::from_secs(5));
        assert_eq!(wait, Some(Duration::from_secs(10)));
        let units: Vec<&str> = early.steps.iter().map(|step| step.unit.as_str()).collect();
        assert_eq!(units, ["unwanted.service", "new.service"], "{:?}", told(&early));
    }

    #[test]
    fn after_the_grace_the_whole_plan_is_carried_out() {
        let snapshot = cluster();
        let (whole, mut late) = (plan(&snapshot), plan(&snapshot));
        assert_eq!(withhold(&snapshot, &mut late, GRACE), None);
        assert_eq!(late, whole);
        assert!(whole.steps.iter().any(|step| step.unit == *"missing.service"), "{whole}");
    }

    #[test]
    fn a_plan_that_rests_on_no_missing_machine_is_left_whole() {
        let mut snapshot = cluster();
        snapshot.put_machine(Machine::new(id("away")));
        let (whole, mut early) = (plan(&snapshot), plan(&snapshot));
        assert_eq!(withhold(&snapshot, &mut early, Duration::ZERO), None);
        assert_eq!(early, whole);
    }
}

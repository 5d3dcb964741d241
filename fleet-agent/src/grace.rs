//! Pure: no I/O, no clock. What an engine leaves undone while a missing machine may yet come back.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet_core::{MachineId, Reason, Snapshot};
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
/// ask for no other unit's company or absence get machines that nobody would have had to leave. Who
/// does not come there meanwhile takes no room away and conflicts with nobody.
pub(crate) fn withhold(
    snapshot: &Snapshot,
    plan: &mut Plan,
    current_for: Duration,
) -> Option<Duration> {
    let is_gone = |step: &Step| step.cause == Cause::MachineGone;
    if current_for >= GRACE || !plan.steps.iter().any(is_gone) {
        return None;
    }
    let left = left(snapshot, plan);
    plan.steps.retain(|step| !is_gone(step) && stands_alone(snapshot, step, &left));
    // What has a placement is not said to be without a machine, unless it waits for its own.
    plan.unplaced.retain(|unit, reason| {
        let waits = matches!(**reason, Reason::NotRescheduled { .. });
        waits || snapshot.placement(unit.as_str()).is_none()
    });
    Some(GRACE - current_for)
}

/// The machines from which units go that are still wanted: who comes there may count on it.
fn left(snapshot: &Snapshot, plan: &Plan) -> BTreeSet<MachineId> {
    let from = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Move { from, .. } => Some(from),
        Action::Remove { from } if !matches!(step.cause, Cause::NotWanted(_)) => Some(from),
        _ => None,
    });
    from.filter(|machine| snapshot.machine(machine.as_str()).is_some()).cloned().collect()
}

/// Whether the step can be taken without those that are withheld.
fn stands_alone(snapshot: &Snapshot, step: &Step, left: &BTreeSet<MachineId>) -> bool {
    match (&step.action, snapshot.unit(step.unit.as_str())) {
        (Action::Remove { .. }, _) => matches!(step.cause, Cause::NotWanted(_)),
        (Action::Place { machine }, Some(unit)) => {
            let wants = &unit.requirements;
            let alone = wants.machine_of.is_empty() && wants.replaces.is_empty();
            alone && !left.contains(machine)
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

    /// A new unit was placed where another one was to leave, which had been withheld: both were on
    /// one machine, though they conflict.
    #[test]
    fn nobody_comes_where_another_one_has_not_left_yet() {
        let mut snapshot = cluster();
        snapshot.put_machine(Machine::new(id("other")).with_metadata("disk", "x"));
        let launched = TargetState::Launched;
        add(&mut snapshot, "leaves.service", "MachineMetadata=disk=x\n", launched);
        snapshot.place("leaves.service".parse().unwrap(), id("here"), Epoch(1));
        add(&mut snapshot, "new.service", "Conflicts=leaves.service\n", launched);
        let mut early = plan(&snapshot);
        let came = |plan: &Plan| plan.steps.iter().any(|step| step.unit == *"new.service");
        assert!(came(&early), "{early}");
        withhold(&snapshot, &mut early, Duration::ZERO);
        assert!(!came(&early), "{early}");
    }

    #[test]
    fn who_waits_for_its_own_machine_is_told_so_at_once() {
        let mut snapshot = cluster();
        add(&mut snapshot, "missing.service", "Reschedule=never\n", TargetState::Launched);
        add(&mut snapshot, "also.service", "", TargetState::Launched);
        snapshot.place("also.service".parse().unwrap(), id("away"), Epoch(1));
        let mut early = plan(&snapshot);
        assert!(withhold(&snapshot, &mut early, Duration::ZERO).is_some());
        let told = early.unplaced["missing.service"].clone();
        assert_eq!(*told, Reason::NotRescheduled { machine: id("away") });
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

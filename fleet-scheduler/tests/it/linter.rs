//! The linter reports the defect of each plan here by name.

use fleet_core::{Epoch, Machine, Requirements, Revision, Snapshot, TargetState, Unit};
use fleet_scheduler::{Plan, Step, StepAction, StepCause, check, plan};
use fleet_unitfile::UnitFile;

/// Returns a cluster of two machines, with `a` placed on `m1`. `b` follows `a`, `c` conflicts with
/// `a`, and `d` replaces `a`.
fn cluster() -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    cluster.put_machine(Machine::new("m2".parse().unwrap()).with_metadata("disk", "ssd"));
    let wants = Requirements::default();
    let peer = vec!["a.service".parse().unwrap()];
    let pattern = vec!["a.*".parse().unwrap()];
    put(&mut cluster, "a.service", wants.clone());
    put(&mut cluster, "b.service", wants.clone().with_machine_of(peer));
    put(&mut cluster, "c.service", wants.clone().with_conflicts(pattern.clone()));
    put(&mut cluster, "d.service", wants.with_replaces(pattern));
    cluster.place("a.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    cluster
}

fn put(cluster: &mut Snapshot, name: &str, requirements: Requirements) {
    let file = UnitFile::parse("").unwrap();
    let unit = Unit::new(name.parse().unwrap(), file, requirements, TargetState::Launched);
    cluster.put_unit(unit);
}

/// Returns the violations of the correct plan after a change.
fn found(change: impl Fn(&mut Plan)) -> Vec<String> {
    let mut plan = plan(&cluster());
    change(&mut plan);
    check(&cluster(), &plan).iter().map(ToString::to_string).collect()
}

/// Sends a unit to another machine than the plan does.
fn send(plan: &mut Plan, unit: &str, to: &str) {
    let step = plan.steps.iter_mut().find(|step| step.unit == *unit).unwrap();
    step.action = StepAction::Place { machine: to.parse().unwrap() };
}

fn step(unit: &str, action: StepAction) -> Step {
    Step::new(unit.parse().unwrap(), action, StepCause::Wanted)
}

#[test]
fn correct_plan_has_no_violation() {
    assert_eq!(found(|_| ()), [""; 0]);
}

#[test]
fn broken_rules_are_reported() {
    let cases = [
        ("b.service", "m2", "b.service is on m2, refused by MachineOf"),
        ("c.service", "m1", "c.service is on m1, refused by Conflicts"),
        ("d.service", "m1", "d.service is on m1, refused by Replaces"),
        ("b.service", "m9", "b.service is on m9, which is not present"),
    ];
    for (unit, to, expected) in cases {
        let result = found(|plan| send(plan, unit, to));
        assert!(result.iter().any(|line| line.starts_with(expected)), "{unit} to {to}: {result:?}");
    }
}

#[test]
fn wrong_steps_are_reported() {
    let place = |machine: &str| StepAction::Place { machine: machine.parse().unwrap() };
    let remove = |machine: &str| StepAction::Remove { from: machine.parse().unwrap() };
    let cases = [
        (step("a.service", place("m1")), "the step does not start at the placement of its unit"),
        (step("a.service", remove("m2")), "the step does not start at the placement of its unit"),
        (step("b.service", place("m1")), "the plan has more than one step for b.service"),
        (step("unknown.service", place("m1")), "no step may move unknown.service"),
        (step("unknown.service", place("m1")), "unknown.service must not be placed"),
        (step("a.service", remove("m1")), "a.service has neither a machine nor a reason"),
    ];
    for (step, expected) in cases {
        let result = found(|plan| plan.steps.push(step.clone()));
        assert!(result.iter().any(|line| line.starts_with(expected)), "{step}: {result:?}");
    }
}

#[test]
fn wrong_reasons_and_revisions_are_reported() {
    let forgotten = found(|plan| plan.steps.retain(|step| step.unit != *"c.service"));
    assert_eq!(forgotten, ["c.service has neither a machine nor a reason"]);
    let needless = found(|plan| {
        let reason = fleet_core::Reason::NoMachines.into();
        plan.unplaced.insert("a.service".parse().unwrap(), reason);
    });
    assert_eq!(needless, ["a.service needs no reason"]);
    let stale = found(|plan| plan.based_on = Revision(9));
    assert_eq!(stale, ["the plan is for revision 9, but the snapshot has revision 10"]);
}

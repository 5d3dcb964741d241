//! Tests of the hold on units of absent machines.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    Epoch, Machine, MachineId, Metadata, Requirements, Resources, Snapshot, Strictness,
    TargetState, Timestamp, Unit,
};
use fleet_scheduler::{apply, check, plan};
use fleet_store::mirror::{ChangeSet, Delta};
use fleet_unitfile::{UnitFile, UnitName};

use super::absent_machines::{AbsentMachines, MirrorStatus};
use super::planner::Planner;

const TTL: Duration = Duration::from_secs(30);

/// A lease shorter than the wait of a new engine.
const SHORT_TTL: Duration = Duration::from_secs(5);

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

fn name(unit: &str) -> UnitName {
    format!("{unit}.service").parse().unwrap()
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// An engine and its view of the cluster. The engine's mirror has been current for a long time.
struct Leader {
    snapshot: Snapshot,
    changes: ChangeSet,
    absent: AbsentMachines,
    planner: Planner,
    gaps: u64,
    current_since: Timestamp,
}

impl Leader {
    /// Creates a leader of two machines, `here` and `near`, without units.
    fn new() -> Self {
        let mut leader = Self {
            snapshot: Snapshot::default(),
            changes: ChangeSet::default(),
            absent: AbsentMachines::new(TTL),
            planner: Planner::new(),
            gaps: 1,
            current_since: seconds(0),
        };
        leader.join("here", 1);
        leader.join("near", 1);
        leader
    }

    fn join(&mut self, machine: &str, cores: u64) {
        self.changes.machines.insert(id(machine));
        let offers = Resources { cpu: cores * 1000, ..Resources::ZERO };
        let metadata = Metadata::from([("at".to_owned(), machine.to_owned())]);
        self.snapshot.put_machine(Machine { offers, metadata, ..Machine::new(id(machine)) });
    }

    fn lose(&mut self, machine: &str) {
        self.changes.machines.insert(id(machine));
        self.snapshot.remove_machine(machine);
    }

    fn put(&mut self, unit: &str, options: &str, desired: TargetState) {
        let text =
            format!("[Service]\nTimeoutStopSec=10\nExecStart=/bin/true\n[X-Fleet]\n{options}");
        let (name, file) = (name(unit), UnitFile::parse(text).unwrap());
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
        self.changes.units.insert(name.clone());
        self.snapshot.put_unit(Unit::new(name, file, parsed.requirements, desired));
    }

    fn place(&mut self, unit: &str, machine: &str, options: &str) {
        self.put(unit, options, TargetState::Launched);
        self.changes.placements.insert(name(unit));
        self.snapshot.place(name(unit), id(machine), Epoch(1));
    }

    /// Plans at the time `now` and applies the plan. Returns one step or reason per line.
    fn plan_at(&mut self, now: u64) -> String {
        self.snapshot.revision = self.snapshot.revision.next();
        let changes = Some(std::mem::take(&mut self.changes));
        let snapshot = Arc::new(self.snapshot.clone());
        let delta = Delta::new(snapshot, changes);
        let now = seconds(now);
        let status =
            MirrorStatus { now, current_for: now.since(self.current_since), gaps: self.gaps };
        let seen = self.absent.hold(&delta, status);
        let mut made = self.planner.follow(&seen).clone();
        assert_eq!(check(&seen.snapshot, &made), []);
        assert_eq!(made, plan(&seen.snapshot));
        self.absent.explain(&mut made);
        self.snapshot = apply(&self.snapshot, &made);
        self.changes.placements.extend(made.steps.iter().map(|step| step.unit.clone()));
        let steps = made.steps.iter().map(ToString::to_string);
        let reasons = made.unplaced.iter().map(|(unit, reason)| format!("{unit}: {reason}"));
        steps.chain(reasons).collect::<Vec<_>>().join("\n")
    }

    /// Simulates a mirror that has lost its store and has become current again at the time `now`.
    fn gap(&mut self, now: u64) {
        self.gaps += 1;
        self.current_since = seconds(now);
    }

    fn next_evaluation(&self) -> Option<u64> {
        self.absent.next_evaluation().map(|at| at.as_millis() / 1000)
    }
}

#[test]
fn unit_of_lost_machine_moves_at_once() {
    let mut leader = Leader::new();
    leader.place("plain", "near", "");
    assert_eq!(leader.plan_at(100), "");
    leader.lose("near");
    let plan_at = leader.plan_at(200);
    assert_eq!(plan_at, "move plain.service from near to here: the machine is gone");
    assert_eq!(leader.next_evaluation(), None);
}

#[test]
fn machine_lost_before_the_engine_settles_is_not_awaited() {
    let mut leader = Leader { absent: AbsentMachines::new(SHORT_TTL), ..Leader::new() };
    leader.gap(100);
    leader.place("plain", "near", "");
    leader.place("other", "far", "");
    let waits = "other.service: its machine far is not present";
    assert!(leader.plan_at(101).starts_with(waits));
    leader.lose("near");
    let planned = leader.plan_at(106);
    let moves = "move plain.service from near to here: the machine is gone\n";
    assert!(planned.starts_with(&format!("{moves}{waits}")), "{planned}");
}

/// The machine may have had no time to reconnect since the store is back.
#[test]
fn machine_lost_within_a_lease_after_a_gap_is_awaited() {
    let mut leader = Leader { absent: AbsentMachines::new(SHORT_TTL), ..Leader::new() };
    leader.gap(100);
    leader.place("plain", "near", "");
    assert_eq!(leader.plan_at(101), "");
    leader.lose("near");
    let waits = "plain.service: its machine near is not present";
    assert!(leader.plan_at(104).starts_with(waits));
    assert_eq!(leader.next_evaluation(), Some(115));
    assert!(leader.plan_at(115).starts_with("move plain.service"));
}

// Holds: I-1
#[test]
fn fenced_unit_moves_after_its_stop_deadline() {
    let mut leader = Leader::new();
    leader.place("once", "near", "OnPartition=stop\n");
    assert_eq!(leader.plan_at(100), "");
    leader.lose("near");
    // Ten seconds for its stop, a hundredth of the measured forty, and a margin of five.
    let waits = "once.service: its machine near is not present: with OnPartition=stop no other \
                 machine runs the unit for 16s, until it must have stopped there";
    assert_eq!(leader.plan_at(200), waits);
    assert_eq!(leader.next_evaluation(), Some(216));
    leader.put("other", "", TargetState::Inactive);
    assert_eq!(leader.plan_at(215), waits);
    let moves = "move once.service from near to here: the machine is gone";
    assert_eq!(leader.plan_at(216), moves);
    assert_eq!((leader.plan_at(217).as_str(), leader.next_evaluation()), ("", None));
}

#[test]
fn rejoined_machine_keeps_units_and_new_loss_restarts_wait() {
    let mut leader = Leader::new();
    leader.place("once", "near", "OnPartition=stop\n");
    leader.lose("near");
    leader.plan_at(200);
    leader.join("near", 1);
    assert_eq!((leader.plan_at(210).as_str(), leader.next_evaluation()), ("", None));
    leader.lose("near");
    leader.plan_at(214);
    assert_eq!(leader.next_evaluation(), Some(230));
    // It was back and is gone again, between two evaluations.
    leader.changes.machines.insert(id("near"));
    leader.plan_at(220);
    assert_eq!(leader.next_evaluation(), Some(236));
}

// Holds: I-1
#[test]
fn mirror_gap_restarts_the_wait() {
    let mut leader = Leader::new();
    leader.place("once", "near", "OnPartition=stop\n");
    leader.lose("near");
    leader.plan_at(200);
    leader.gap(210);
    assert!(leader.plan_at(217).starts_with("once.service: its machine near is not present"));
    assert_eq!(leader.next_evaluation(), Some(233));
}

#[test]
fn unit_with_unlimited_stop_is_not_moved() {
    let mut leader = Leader::new();
    leader.place("once", "near", "OnPartition=stop\n");
    let text = "[Service]\nTimeoutStopSec=infinity\nExecStart=/bin/true\n[X-Fleet]\n\
                OnPartition=stop\n";
    let file = UnitFile::parse(text).unwrap();
    let unit = leader.snapshot.unit("once.service").unwrap().as_ref().clone();
    leader.snapshot.put_unit(Unit { file, ..unit });
    leader.lose("near");
    assert!(leader.plan_at(200).contains("its stop has no time limit"));
    assert_eq!(leader.next_evaluation(), None);
    leader.join("near", 1);
    assert_eq!(leader.plan_at(1_000_000), "");
}

#[test]
fn unwanted_unit_that_may_still_run_keeps_its_placement() {
    let mut leader = Leader::new();
    leader.place("once", "near", "OnPartition=stop\n");
    leader.lose("near");
    leader.plan_at(200);
    leader.put("once", "OnPartition=stop\n", TargetState::Inactive);
    assert_eq!(leader.plan_at(205), "");
    leader.put("once", "OnPartition=stop\n", TargetState::Launched);
    assert!(leader.plan_at(206).contains("with OnPartition=stop no other machine runs"));
    leader.put("once", "OnPartition=stop\n", TargetState::Inactive);
    assert_eq!(leader.plan_at(216), "remove once.service from near: it is inactive");
}

#[test]
fn after_gap_only_units_of_absent_machines_wait() {
    let mut leader = Leader::new();
    leader.place("lost", "near", "");
    leader.place("stuck", "near", "Reschedule=never\n");
    leader.put("new", "", TargetState::Launched);
    leader.put("beside", "MachineOf=lost.service\n", TargetState::Launched);
    leader.lose("near");
    leader.gap(100);
    insta::assert_snapshot!(folded(&leader.plan_at(105)), @r"
    place new.service on here:
        it is wanted
    beside.service:
        the only machine does not fit:
        MachineOf refuses 1 (here:
        lost.service is not on it)
    lost.service:
        its machine near is not present,
        and the unit waits for it because the store was unreachable until recently
    stuck.service:
        its machine near is not present,
        and Reschedule=never forbids another machine:
        bring this one back,
        or change the unit
    ");
    assert_eq!(leader.next_evaluation(), Some(115));
    insta::assert_snapshot!(folded(&leader.plan_at(115)), @r"
    move lost.service from near to here:
        the machine is gone
    place beside.service on here:
        it is wanted
    stuck.service:
        its machine near is not present,
        and Reschedule=never forbids another machine:
        bring this one back,
        or change the unit
    ");
}

/// Wraps the text into lines.
fn folded(text: &str) -> String {
    text.replace(": ", ":\n    ").replace(", ", ",\n    ")
}

/// Every step taken while machines are awaited is valid by itself.
#[test]
fn capacity_of_held_units_is_not_given_away() {
    let mut leader = Leader::new();
    leader.place("lost", "near", "ReserveCPU=1\n");
    leader.place("elsewhere", "here", "ReserveCPU=1\nMachineMetadata=at=near\n");
    leader.put("new", "ReserveCPU=1\n", TargetState::Launched);
    leader.lose("near");
    leader.gap(100);
    leader.plan_at(105);
    let used = leader.snapshot.placements().filter(|(_, at)| at.machine.as_str() == "here");
    let used: Vec<&str> = used.map(|(unit, _)| unit.as_str()).collect();
    assert_eq!(used, ["new.service"], "one core takes one of them");
}

/// Regression test: while all moves were withheld, a unit stayed on a machine that it no longer
/// fitted. A new unit that conflicts with it was nevertheless placed on the same machine.
#[test]
fn held_units_still_exclude_conflicting_units() {
    let mut leader = Leader::new();
    leader.place("lost", "near", "");
    leader.place("leaves", "here", "MachineMetadata=at=near\n");
    leader.put("new", "Conflicts=leaves.service\n", TargetState::Launched);
    leader.lose("near");
    leader.gap(100);
    leader.plan_at(105);
    let here = leader.snapshot.placements().filter(|(_, at)| at.machine.as_str() == "here");
    let here: Vec<&str> = here.map(|(unit, _)| unit.as_str()).collect();
    assert_eq!(here, ["new.service"]);
}

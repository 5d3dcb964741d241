//! Starts that wait for units of `StartAfter=`.

use fleet_core::job::{JobOutcome, JobPhase, JobRecord};
use fleet_core::start_order::start_blockers;
use fleet_core::{
    ActiveState, Epoch, Generation, MachineId, Requirements, Revision, Snapshot, Strictness,
    SystemdState, TargetState, Timestamp, Unit, UnitState,
};
use fleet_unitfile::{UnitFile, UnitName};

fn unit(name: &str, options: &str) -> Unit {
    let text = format!("[Service]\nExecStart=/bin/a\n[X-Fleet]\n{options}\n");
    let (name, file): (UnitName, _) = (name.parse().unwrap(), UnitFile::parse(text).unwrap());
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    Unit::new(name, file, parsed.requirements, TargetState::Launched)
}

/// A state in which the present version of the unit is active on `m2`.
fn active(unit: &Unit) -> UnitState {
    let mut systemd = SystemdState::loaded();
    systemd.active = ActiveState::Active;
    UnitState {
        unit: unit.name.clone(),
        machine: id("m2"),
        hash: unit.hash(),
        requested: TargetState::Launched,
        epoch: Epoch(7),
        generation: unit.generation,
        systemd,
        problem: None,
        health: None,
        output: Vec::new(),
    }
}

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

/// Describes the blockers of a unit with this `StartAfter=`.
fn blockers(snapshot: &Snapshot, names: &str) -> String {
    let waiting = unit("web.service", &format!("StartAfter={names}"));
    let blockers = start_blockers(snapshot, &waiting);
    blockers.iter().map(|it| format!("{it}\n")).collect::<String>().trim_end().to_owned()
}

/// Returns a cluster in which `db.service` is active on `m2`, after a change.
fn cluster(change: impl FnOnce(&mut Snapshot, &mut Unit, &mut UnitState)) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut db = unit("db.service", "");
    db.generation = Generation(2);
    let mut state = active(&db);
    snapshot.place(db.name.clone(), id("m2"), Epoch(7));
    change(&mut snapshot, &mut db, &mut state);
    snapshot.put_unit(db);
    snapshot.put_state(state);
    snapshot
}

fn blocker_after(change: impl FnOnce(&mut Snapshot, &mut Unit, &mut UnitState)) -> String {
    blockers(&cluster(change), "db.service")
}

#[test]
fn start_waits_for_the_present_run_of_a_unit() {
    type Change = fn(&mut Snapshot, &mut Unit, &mut UnitState);
    let not_started = "db.service (StartAfter=), which is not started on m2 yet";
    let table: &[(Change, &str)] = &[
        (|_, _, _| {}, ""),
        (|_, _, state| state.systemd.active = ActiveState::Reloading, ""),
        (|_, _, state| state.generation = Generation(3), ""),
        (
            |_, _, state| {
                state.systemd.active = ActiveState::Inactive;
                state.systemd.result = Some("success".to_owned());
            },
            "",
        ),
        (
            |_, _, state| state.systemd.active = ActiveState::Inactive,
            "db.service (StartAfter=), which is inactive on m2",
        ),
        (
            |_, _, state| state.systemd.active = ActiveState::Activating,
            "db.service (StartAfter=), which is activating on m2",
        ),
        (
            |_, _, state| state.systemd.active = ActiveState::Failed,
            "db.service (StartAfter=), which has failed on m2",
        ),
        (|_, _, state| state.generation = Generation(1), not_started),
        (|_, _, state| state.epoch = Epoch(6), not_started),
        (|_, _, state| state.requested = TargetState::Loaded, not_started),
        (|_, _, state| state.machine = id("m3"), not_started),
        (|_, unit, _| unit.file = UnitFile::parse("[Service]\n").unwrap(), not_started),
        (
            |_, unit, _| unit.desired = TargetState::Loaded,
            "db.service (StartAfter=), which is to be loaded only",
        ),
        (
            |snapshot, _, _| snapshot.unplace("db.service"),
            "db.service (StartAfter=), which has no machine",
        ),
    ];
    for (number, (change, expected)) in table.iter().enumerate() {
        assert_eq!(blocker_after(change), *expected, "row {number}");
    }
}

#[test]
fn missing_and_unreadable_units_block_a_start() {
    let mut snapshot = cluster(|_, _, _| {});
    let fault = fleet_core::snapshot::Fault { message: "damaged".to_owned() };
    snapshot.put_fault("broken.service".parse().unwrap(), fault);
    insta::assert_snapshot!(
        blockers(&snapshot, "gone.service db.service broken.service"),
        @"
    gone.service (StartAfter=), which does not exist
    broken.service (StartAfter=), which cannot be read
    "
    );
}

#[test]
fn one_active_machine_suffices_for_a_global_unit() {
    let mut snapshot = Snapshot::default();
    let agent = unit("agent.service", "Global=true");
    let state = |machine: &str, change: fn(&mut UnitState)| {
        let mut state = UnitState { machine: id(machine), epoch: Epoch::ZERO, ..active(&agent) };
        change(&mut state);
        state
    };
    snapshot.put_unit(agent.clone());
    let blockers = |snapshot: &Snapshot| blockers(snapshot, "agent.service");
    assert_eq!(blockers(&snapshot), "agent.service (StartAfter=), which has no machine");
    snapshot.put_state(state("m1", |it| it.requested = TargetState::Loaded));
    let not_started = "agent.service (StartAfter=), which is not started on m1 yet";
    assert_eq!(blockers(&snapshot), not_started);
    snapshot.put_state(state("m2", |it| it.systemd.active = ActiveState::Failed));
    assert_eq!(blockers(&snapshot), "agent.service (StartAfter=), which has failed on m2");
    snapshot.put_state(state("m0", |_| {}));
    assert_eq!(blockers(&snapshot), "");
}

#[test]
fn job_blocks_until_it_has_succeeded() {
    let at = Timestamp::from_millis;
    let db = unit("db.service", "RunOnce=true");
    let phases = [
        JobPhase::Pending { since: at(1) },
        JobPhase::Running { machine: id("m2"), attempt: 1, since: at(1) },
        JobPhase::Ended { outcome: JobOutcome::Failed, at: at(2) },
        JobPhase::Ended { outcome: JobOutcome::Succeeded, at: at(2) },
    ];
    let blockers_in = |phase: Option<JobPhase>| {
        let mut snapshot = Snapshot::default();
        // The leader sets the desired state of a job that has ended.
        let has_ended = matches!(phase, Some(JobPhase::Ended { .. }));
        let desired = if has_ended { TargetState::Inactive } else { TargetState::Launched };
        snapshot.put_unit(Unit { desired, ..db.clone() });
        if let Some(phase) = phase {
            let mut record = JobRecord::new(&db, Revision(1), at(1));
            record.state.phase = phase;
            snapshot.put_job(db.name.clone(), record);
        }
        blockers(&snapshot, "db.service")
    };
    let all: Vec<String> = std::iter::once(None).chain(phases.map(Some)).map(blockers_in).collect();
    insta::assert_snapshot!(all.join("\n"), @r"
    db.service (StartAfter=), which is pending
    db.service (StartAfter=), which is pending
    db.service (StartAfter=), which is running on m2
    db.service (StartAfter=), which has not succeeded: failed
    ");
}

#[test]
fn schedule_blocks_forever() {
    let mut snapshot = Snapshot::default();
    snapshot.put_unit(unit("db.service", "RunOnce=true\nSchedule=daily"));
    assert_eq!(
        blockers(&snapshot, "db.service"),
        "db.service (StartAfter=), which is a schedule and never runs itself"
    );
}

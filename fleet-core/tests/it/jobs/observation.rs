//! Jobs as observed in a snapshot of the cluster.

use fleet_core::job::{AttemptId, JobPhase, JobRecord};
use fleet_core::unit::{ExitStatus, LoadState};
use fleet_core::{
    ActiveState, Epoch, Generation, Machine, MachineId, Requirements, Revision, Snapshot,
    Strictness, SystemdState, TargetState, Timestamp, Unit, UnitState,
};
use fleet_unitfile::UnitFile;

/// Revision from which the job was made.
const ORIGIN: u64 = 40;

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

fn job() -> Unit {
    let name = "job.service".parse().unwrap();
    let text = "[Service]\nExecStart=/bin/job\n[X-Fleet]\nRunOnce=true\n";
    let file = UnitFile::parse(text).unwrap();
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    Unit::new(name, file, parsed.requirements, TargetState::Launched)
}

/// The record of the job, whose first attempt is bound to m1.
fn record() -> JobRecord {
    let mut record = JobRecord::new(&job(), Revision(ORIGIN), Timestamp::from_millis(1));
    let since = Timestamp::from_millis(2);
    record.state.phase = JobPhase::Running { machine: id("m1"), attempt: 1, since };
    record.state.last_attempt = 1;
    record
}

fn state(requested: TargetState, generation: u64, systemd: SystemdState) -> UnitState {
    let job = job();
    UnitState {
        unit: job.name.clone(),
        machine: id("m1"),
        hash: job.hash(),
        requested,
        epoch: Epoch(7),
        generation: Generation(generation),
        systemd,
        problem: None,
        health: None,
        output: Vec::new(),
    }
}

fn systemd(active: ActiveState, result: Option<&str>, exit: Option<ExitStatus>) -> SystemdState {
    let result = result.map(str::to_owned);
    SystemdState { result, exit, ..SystemdState::new(LoadState::Loaded, active, "dead") }
}

fn cluster(state: Option<UnitState>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.put_machine(Machine::new(id("m1")));
    snapshot.put_unit(job());
    snapshot.place(job().name, id("m1"), Epoch(7));
    state.into_iter().for_each(|state| snapshot.put_state(state));
    snapshot
}

#[test]
fn reports_follow_from_published_states() {
    use ActiveState::{Activating, Active, Deactivating, Failed, Inactive};
    use TargetState::{Launched, Loaded};
    let code = |code| Some(ExitStatus::Code(code));
    let signal = Some(ExitStatus::Signal(15));
    let unknown = Some(ExitStatus::Unknown);
    let ok = Some("success");
    let cases = [
        ("loaded", state(Loaded, 0, SystemdState::loaded())),
        ("starting", state(Launched, 41, systemd(Activating, None, None))),
        ("active", state(Launched, 41, systemd(Active, ok, None))),
        ("stopping", state(Launched, 41, systemd(Deactivating, ok, None))),
        ("not run yet", state(Launched, 41, SystemdState::loaded())),
        ("succeeded", state(Launched, 41, systemd(Inactive, ok, code(0)))),
        ("succeeded with a status", state(Launched, 41, systemd(Inactive, ok, code(75)))),
        ("failed", state(Launched, 41, systemd(Failed, Some("exit-code"), code(3)))),
        ("killed", state(Launched, 41, systemd(Inactive, ok, signal))),
        ("unseen exit", state(Launched, 41, systemd(Failed, Some("exit-code"), unknown))),
        ("lost", state(Loaded, 41, SystemdState::loaded())),
        ("of an earlier job", state(Launched, 40, systemd(Active, ok, None))),
        ("of a later attempt", state(Launched, 43, systemd(Active, ok, None))),
    ];
    let mut lines = String::new();
    for (name, state) in cases {
        let seen = record().observe(&job(), &cluster(Some(state)));
        let reports: Vec<_> =
            seen.reports.iter().map(|it| format!("{} {:?}", it.attempt, it.progress)).collect();
        lines += &format!("{name}: {}\n", reports.join(", "));
    }
    insta::assert_snapshot!(lines, @r"
    loaded: 
    starting: 40.1 Active
    active: 40.1 Active
    stopping: 40.1 Active
    not run yet: 40.1 Active
    succeeded: 40.1 Exited { status: Code(0), success: true }
    succeeded with a status: 40.1 Exited { status: Code(75), success: true }
    failed: 40.1 Exited { status: Code(3), success: false }
    killed: 40.1 Exited { status: Signal(15), success: false }
    unseen exit: 40.1 Interrupted
    lost: 40.1 Interrupted
    of an earlier job: 40.0 Active
    of a later attempt: 40.3 Active
    ");
}

#[test]
fn problem_explains_an_attempt_that_did_not_start() {
    let mut unloaded = state(TargetState::Inactive, 41, SystemdState::loaded());
    unloaded.problem = Some("line 2: no such option".to_owned());
    let mut refused = state(TargetState::Launched, 41, SystemdState::loaded());
    refused.problem = Some("no such program".to_owned());
    let mut failed =
        state(TargetState::Launched, 41, systemd(ActiveState::Failed, Some("resources"), None));
    failed.problem = Some("the machine lacks the resources to start it".to_owned());
    for state in [unloaded, refused, failed] {
        let problem = state.problem.clone().unwrap();
        let seen = record().observe(&job(), &cluster(Some(state)));
        let progress = format!("{:?}", seen.reports[0].progress);
        assert_eq!(progress, format!("NotStarted {{ reason: {problem:?} }}"));
    }
}

#[test]
fn machine_is_lost_once_the_unit_has_left_it() {
    let mut snapshot = cluster(None);
    let observe = |snapshot: &Snapshot| {
        let seen = record().observe(&job(), snapshot);
        (seen.placed.map(|it| it.to_string()), seen.lost.len())
    };
    assert_eq!(observe(&snapshot), (Some("m1".to_owned()), 0));
    snapshot.remove_machine("m1");
    assert_eq!(observe(&snapshot), (Some("m1".to_owned()), 0), "it may come back");
    snapshot.unplace("job.service");
    assert_eq!(observe(&snapshot), (None, 1));
    // No attempt begins on an absent machine.
    snapshot.place(job().name, id("m2"), Epoch(9));
    assert_eq!(observe(&snapshot), (None, 1));
}

#[test]
fn attempts_of_later_jobs_have_higher_generations() {
    let attempt = |origin, number| AttemptId { origin: Revision(origin), number }.generation();
    assert_eq!(attempt(40, 1), Generation(41));
    // Two attempts have raised the revision by two at least.
    assert!(attempt(40, 2) < attempt(42, 1));
}

#[test]
fn record_is_outdated_once_the_unit_asks_for_another_job() {
    let (unit, mut record) = (job(), record());
    assert!(!record.is_outdated(&unit));
    let restarted = Unit { generation: Generation(1), ..unit.clone() };
    assert!(record.is_outdated(&restarted));
    let stopped = Unit { desired: TargetState::Loaded, ..restarted };
    assert!(!record.is_outdated(&stopped), "a stop ends the job");
    let outcome = fleet_core::job::JobOutcome::Failed;
    record.state.phase = JobPhase::Ended { outcome, at: Timestamp::from_millis(5) };
    assert!(record.is_outdated(&unit), "it was started again");
    assert!(!record.is_outdated(&stopped));
}

//! Jobs and schedules: their operations, and a campaign with many of them.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_core::schedule::ScheduleRequest;
use fleet_store::RegistryError;
use fleet_unitfile::UnitName;

use crate::campaign::run_all;
use crate::cluster::Cluster;
use crate::operation::{OnMachine, OnUnit, Operation, accept};
use crate::rng::Rng;
use crate::units::{EXITS, FAILS, HANGS, SUCCEEDS, name};

/// Units that are usually jobs. Some are instances of one template, for `MaxPerMachine=`.
const JOBS: [&str; 4] = ["job.service", "task.service", "work@1.service", "work@2.service"];

/// Units that are usually schedules.
const SCHEDULES: [&str; 2] = ["tick.service", "turn@1.service"];

/// Options of a job, each with its values.
const JOB_OPTIONS: [&[&str]; 7] = [
    &["Retries=1", "Retries=2", "Retries=2"],
    &["Deadline=3s", "Deadline=20s", "Deadline=1min"],
    &["CountLost=true"],
    &["KeepFor=0", "KeepFor=5s", "KeepFor=30s"],
    &["MaxPerMachine=1", "MaxPerMachine=2"],
    &["MachineMetadata=region=north", "MachineMetadata=region=nowhere", "MachineID=m1"],
    &["Reschedule=never"],
];

/// Calendar events. The last one does not occur during a simulation.
const EVENTS: [&str; 6] = ["*:*:0/5", "*:*:0/5", "*:*:0/7", "*:*:3/20", "*:*", "*-*-* 00:00"];

/// Options of a schedule, each with its values.
const SCHEDULE_OPTIONS: [&[&str]; 2] = [
    &["ConcurrencyPolicy=allow", "ConcurrencyPolicy=forbid", "ConcurrencyPolicy=replace"],
    &["CatchUp=once", "CatchUp=once", "CatchUp=none"],
];

/// Differences of a machine's wall clock, in seconds. The last two exceed the delay up to which an
/// elapse runs.
const CLOCKS: [i64; 8] = [0, 0, 0, 2, -2, 15, 70, -70];

/// An operation on jobs and schedules.
#[derive(Debug)]
pub(crate) enum JobOperation {
    /// Sends a request to a schedule.
    Request { unit: UnitName, request: ScheduleRequest },
    /// Changes one of the existing jobs, which may be a run of a schedule.
    Change { number: usize, change: JobChange },
    /// Ends the process of one of the active jobs.
    End { number: usize, how: OnUnit },
    /// Sets the wall clock of a machine.
    SetClock { machine: usize, seconds: i64 },
}

/// A change of one job by a user.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobChange {
    Desire(TargetState),
    Restart,
    Destroy,
}

/// Returns the names of all jobs and schedules. Runs have other names.
pub(crate) fn names() -> impl Iterator<Item = UnitName> {
    JOBS.iter().chain(&SCHEDULES).map(|unit| name(unit))
}

/// Draws an operation on jobs, schedules or their machines.
pub(crate) fn draw(rng: &mut Rng, machines: usize) -> Operation {
    match rng.below(24) {
        0..4 => draw_submit(rng, &JOBS),
        4..7 => draw_submit(rng, &SCHEDULES),
        7..10 => {
            let all = [
                ScheduleRequest::Pause,
                ScheduleRequest::Resume,
                ScheduleRequest::Resume,
                ScheduleRequest::RunNow,
                ScheduleRequest::RunNow,
            ];
            let request = *rng.pick(&all);
            Operation::Job(JobOperation::Request { unit: draw_unit(rng, &SCHEDULES), request })
        }
        10..13 => {
            let all = [
                JobChange::Desire(TargetState::Launched),
                JobChange::Desire(TargetState::Launched),
                JobChange::Desire(TargetState::Loaded),
                JobChange::Desire(TargetState::Inactive),
                JobChange::Restart,
                JobChange::Destroy,
            ];
            let (number, change) = (rng.below(12), *rng.pick(&all));
            Operation::Job(JobOperation::Change { number, change })
        }
        13 => match rng.below(8) {
            0 => Operation::Damage { unit: draw_unit(rng, &JOBS) },
            1 => Operation::Damage { unit: draw_unit(rng, &SCHEDULES) },
            2 | 3 => Operation::Destroy { unit: draw_unit(rng, &SCHEDULES) },
            _ => {
                let states = [TargetState::Launched, TargetState::Inactive];
                let desired = *rng.pick(&states);
                Operation::Desire { unit: draw_unit(rng, &SCHEDULES), desired }
            }
        },
        14..21 => {
            let all = [OnUnit::Exit(0), OnUnit::Exit(0), OnUnit::Exit(1), OnUnit::Kill];
            let (number, how) = (rng.below(12), *rng.pick(&all));
            Operation::Job(JobOperation::End { number, how })
        }
        21 => {
            let (machine, seconds) = (rng.below(machines), *rng.pick(&CLOCKS));
            Operation::Job(JobOperation::SetClock { machine, seconds })
        }
        _ => {
            let all = [
                OnUnit::FailLoad,
                OnUnit::FailStart,
                OnUnit::Mend,
                OnUnit::HangStop,
                OnUnit::Release,
            ];
            let (unit, what) = (draw_unit(rng, &JOBS), *rng.pick(&all));
            let what = OnMachine::Unit { unit, what };
            Operation::OnMachine { machine: rng.below(machines), what }
        }
    }
}

fn draw_unit(rng: &mut Rng, units: &[&str]) -> UnitName {
    name(units[rng.below(units.len())])
}

fn draw_submit(rng: &mut Rng, units: &[&str]) -> Operation {
    let unit = draw_unit(rng, units);
    let is_schedule = SCHEDULES.contains(&unit.as_str()) != (rng.below(10) == 0);
    let mut lines = vec!["RunOnce=true"];
    for values in JOB_OPTIONS {
        if rng.below(5) == 0 || (values[0].starts_with("Retries") && rng.below(2) == 0) {
            lines.push(*rng.pick(values));
        }
    }
    let event = format!("Schedule={}", rng.pick(&EVENTS));
    if is_schedule {
        lines.push(&event);
        lines.extend(SCHEDULE_OPTIONS.iter().map(|values| *rng.pick(values)));
    }
    if rng.below(16) == 0 {
        lines.clear(); // not a job
    }
    let requirement = lines.join("\n");
    let variant = *rng.pick(&[SUCCEEDS, SUCCEEDS, FAILS, EXITS, HANGS, 0, 0, 1]);
    let desired = match rng.below(8) {
        0 => TargetState::Inactive,
        1 => TargetState::Loaded,
        _ => TargetState::Launched,
    };
    Operation::Submit { unit, requirement, variant, desired }
}

impl JobOperation {
    /// Performs the operation.
    pub(crate) async fn happen(&self, cluster: &mut Cluster) {
        match self {
            Self::Request { unit, request } => {
                let result = cluster.registry.request_schedule(unit, *request).await;
                let is_expected = match &result {
                    Ok(_) => true,
                    Err(error) => matches!(error, RegistryError::NoSchedule { .. }),
                };
                assert!(is_expected, "{result:?}");
            }
            Self::Change { number, change } => {
                let now = cluster.history.now();
                let jobs: Vec<_> = now.units().filter(|unit| unit.is_job()).collect();
                let Some(unit) = jobs.get(number % jobs.len().max(1)) else { return };
                change.happen(cluster, &unit.name).await;
            }
            Self::End { number, how } => {
                let now = cluster.history.now();
                let is_job = |unit: &UnitName| now.job(unit.as_str()).is_some();
                let active: Vec<_> = cluster
                    .hosts
                    .iter()
                    .flat_map(|host| host.units().into_iter().map(move |unit| (host, unit)))
                    .filter(|(_, unit)| unit.state.main_pid.is_some() && is_job(&unit.unit))
                    .collect();
                if let Some((host, unit)) = active.get(number % active.len().max(1)) {
                    how.happen(host, &unit.unit);
                }
            }
            Self::SetClock { machine, seconds } => cluster.hosts[*machine].set_wall(*seconds),
        }
    }
}

impl JobChange {
    async fn happen(self, cluster: &Cluster, unit: &UnitName) {
        let registry = &cluster.registry;
        match self {
            Self::Desire(desired) => accept(registry.set_desired(unit, desired).await),
            Self::Restart => accept(registry.request_restart(unit).await),
            Self::Destroy => accept(registry.destroy(unit, &cluster.people).await),
        }
    }
}

/// Default number of seeds.
const RUNS: u64 = 100;

/// Number of operations before a cluster is healed.
const LENGTH: usize = 80;

// Holds: I-3, I-28
#[test]
fn jobs_hold_under_random_faults() {
    run_all(RUNS, story);
}

async fn story(seed: u64, log: &mut Vec<String>) {
    let mut rng = Rng::new(seed);
    let machines = 2 + rng.below(3);
    let mut cluster = Cluster::start(machines).await;
    for _ in 0..LENGTH {
        let operation = draw_with_faults(&mut rng, machines);
        log.push(operation.to_string());
        operation.happen(&mut cluster).await;
        cluster.settle().await;
    }
    log.push("all is healed".to_owned());
    cluster.heal_and_rest().await;
}

/// Draws an operation of the campaign.
fn draw_with_faults(rng: &mut Rng, machines: usize) -> Operation {
    let machine = rng.below(machines);
    let on = |what| Operation::OnMachine { machine, what };
    match rng.below(28) {
        0..12 => draw(rng, machines),
        12 => on(OnMachine::Crash),
        13 => on(OnMachine::End),
        14..17 => on(OnMachine::Boot),
        17 => on(if rng.below(2) == 0 { OnMachine::Reboot } else { OnMachine::CutWatches }),
        18 => on(OnMachine::Away(rng.below(2) == 0)),
        19 => on(match rng.below(2) {
            0 => OnMachine::Delay(Duration::from_millis(1 << rng.below(13))),
            _ => OnMachine::Delay(Duration::ZERO),
        }),
        20 => on(match rng.below(3) {
            0 => OnMachine::FailNext(1 + rng.below(3)),
            1 => OnMachine::LoseAnswers(1 + rng.below(2)),
            _ => OnMachine::LoseRequests(1 + rng.below(2)),
        }),
        21 if rng.below(2) == 0 => Operation::draw_intend(rng, machines),
        _ => Operation::Wait(Duration::from_millis(1 << rng.below(15))),
    }
}

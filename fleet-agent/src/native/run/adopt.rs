//! Adopts a unit of an earlier daemon: first its stored state, then its processes.
//!
//! The state of a unit is derived from its stored run state: the current phase, the result of the
//! run, and the restart counters. Timeouts are not stored, so each timeout starts from zero.
//!
//! A process is stored with its pid and start time:
//!
//! | stored | found | result |
//! |---|---|---|
//! | a process | the same process | watched, although not a child |
//! | the main process | only its successor, by the PID file | successor becomes the main process |
//! | a process | no process | ended unobserved |
//! | unfinished spawn | a process with the run's invocation ID | adopted as the spawned process |
//! | unfinished spawn | no process | ended unobserved |
//!
//! The exit status of a process that ended unobserved is unknown. This counts as a failure, so the
//! restart policy of the unit applies. After a reboot there is nothing to adopt: all processes have
//! ended, and the daemon forgets all units.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    Activity, Command, Exit, FailureCause, Incarnation, InitUnit, Name, ObservedUnit, Phase,
    Readiness, Restart, Run, ServiceType, StopOutcome, StopReason, Target, Timeouts,
};

use super::driver::{RunDriver, pid_file_owner};
use super::machine::ServiceRun;
use super::machine::state::{RunOutcome, RunState, ServicePhase};
use super::pidfile;
use crate::native::linux::cgroup::Group;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::proc::{ProcessHandle, belongs_to_run};
use crate::native::linux::process_info::{ProcessId, ProcessInfo};
use crate::native::linux::process_table::read_all;
use crate::native::log::Log;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::{RunRecord, UnitDirectory};

/// Returns a substitute definition for a unit whose unit file is refused now. The substitute only
/// serves to stop a run of the unit, so its start command is a placeholder.
pub(crate) fn stop_only_definition(name: Name) -> InitUnit {
    InitUnit {
        provides: vec![Target::from(&name)],
        name,
        kind: ServiceType::ForegroundSupervised(Readiness::Executed),
        edges: Vec::new(),
        description: String::new(),
        timeouts: Timeouts::default(),
        restart: Restart::never(),
        // The graph refuses a service without a start command.
        run: Run { start: vec![Command::new("/bin/false", [])], ..Run::default() },
    }
}

/// A unit that another daemon ran, as it is stored.
pub(crate) struct StoredUnit<'a> {
    pub(crate) name: &'a Name,
    pub(crate) directory: &'a UnitDirectory,
    pub(crate) log: &'a Arc<Log>,
    pub(crate) definition: &'a Arc<InitUnit>,
}

/// Resumes a run that another daemon began. Returns the observed state of the unit for the planner,
/// and the driver of the run.
pub(crate) fn resume(
    context: &Arc<ManagerContext>,
    unit: &StoredUnit<'_>,
    mut run: RunRecord,
    incarnation: Incarnation,
) -> io::Result<(ObservedUnit, RunDriver)> {
    let StoredUnit { name, directory, log, definition } = *unit;
    let observed = observe_run(definition, &run.run_state, incarnation, context.now());
    let (spec, log) = (Arc::clone(definition), Arc::clone(log));
    let mut driver = RunDriver::new(context, name.as_str(), directory, log, Arc::clone(&spec));
    let (service, running) = adopt_processes(context, spec, &mut run)?;
    driver.adopt(service, run, running);
    Ok((observed, driver))
}

/// Derives the observation of a unit from the state of its last run.
pub(crate) fn observe_run(
    definition: &Arc<InitUnit>,
    run_state: &RunState,
    incarnation: Incarnation,
    now: Timestamp,
) -> ObservedUnit {
    let limits = definition.timeouts;
    let later = |span: Option<Duration>| span.map(|span| now.after(span));
    let busy = ObservedUnit {
        since: now,
        incarnation: Some(incarnation),
        definition: Some(Arc::clone(definition)),
        processes: true,
        exit: run_state.exit.map(ProcessExit::exit),
        attempts: run_state.attempts,
        failures: run_state.failures,
        ..ObservedUnit::default()
    };
    match run_state.phase {
        phase if phase.is_starting() => {
            ObservedUnit { phase: Phase::Starting, deadline: later(limits.start), ..busy }
        }
        phase if phase.is_stopping() => ObservedUnit {
            phase: Phase::Stopping,
            outcome: Some(stop_outcome(run_state)),
            deadline: later(limits.stop),
            ..busy
        },
        _ if run_state.has_failed_to_stop() => {
            let cause = match run_state.stop_command {
                Some(end) => FailureCause::StopCommand(end.exit()),
                None => FailureCause::StopTimeout,
            };
            observe_end(definition, run_state, Some(cause), now)
        }
        ServicePhase::Dead | ServicePhase::Failed | ServicePhase::AutoRestart => {
            observe_ended(definition, run_state, now)
        }
        phase => {
            let activity = match phase {
                ServicePhase::Exited => Activity::Exited,
                _ if phase.is_reloading() => Activity::Reloading,
                _ => Activity::Running,
            };
            let runtime = later(definition.run.runtime_max);
            let reload = later(limits.reload).filter(|_| activity == Activity::Reloading);
            let deadline = runtime.into_iter().chain(reload).min();
            let phase = Phase::Active(activity);
            ObservedUnit { phase, active_since: Some(now), deadline, ..busy }
        }
    }
}

fn stop_outcome(run_state: &RunState) -> StopOutcome {
    match (run_state.outcome, cause(run_state)) {
        _ if run_state.stop_requested => StopOutcome::Inactive(StopReason::Unneeded),
        (Some(RunOutcome::Condition), _) => StopOutcome::Skipped,
        (_, Some(cause)) => StopOutcome::Failed(cause),
        (_, None) => StopOutcome::Completed(run_state.exit.map(ProcessExit::exit)),
    }
}

/// Derives the observation of a unit whose run is over.
pub(crate) fn observe_ended(
    definition: &InitUnit,
    run_state: &RunState,
    now: Timestamp,
) -> ObservedUnit {
    if run_state.stop_requested || run_state.outcome.is_none() {
        return ObservedUnit::default();
    }
    observe_end(definition, run_state, cause(run_state), now)
}

fn observe_end(
    definition: &InitUnit,
    run_state: &RunState,
    cause: Option<FailureCause>,
    now: Timestamp,
) -> ObservedUnit {
    let phase = if cause.is_some() { Phase::Failed } else { Phase::Completed };
    let attempts = run_state.attempts.saturating_add(1);
    let failures = if cause.is_some() { run_state.failures.saturating_add(1) } else { 0 };
    let restart = &definition.restart;
    let exit = run_state.exit.map(ProcessExit::exit);
    let gave_up = run_state.gave_up || run_state.outcome == Some(RunOutcome::StartLimitHit);
    let again = run_state.outcome != Some(RunOutcome::Condition) && restart.applies(cause, exit);
    let retry_at = (again && !gave_up).then(|| now.after(restart.delay_of(attempts)));
    let counts = ObservedUnit { attempts, failures, ..ObservedUnit::default() };
    ObservedUnit { phase, since: now, cause, retry_at, gave_up, ..counts }
}

/// Returns the failure cause of a run; `None` if it did not fail.
fn cause(run_state: &RunState) -> Option<FailureCause> {
    if let Some(end) = run_state.stop_command {
        return Some(FailureCause::StopCommand(end.exit()));
    }
    Some(match run_state.outcome? {
        RunOutcome::Success | RunOutcome::Condition => return None,
        RunOutcome::Timeout if run_state.phase.is_stopping() => FailureCause::StopTimeout,
        RunOutcome::Timeout => FailureCause::StartTimeout,
        RunOutcome::Watchdog => FailureCause::Watchdog,
        RunOutcome::Assert => FailureCause::Assertion,
        RunOutcome::Resources => FailureCause::Resources,
        RunOutcome::Protocol => FailureCause::Protocol,
        _ => FailureCause::Exit(run_state.exit.map_or(Exit::Unknown, ProcessExit::exit)),
    })
}

type RunningProcesses = Vec<(ProcessId, ProcessHandle)>;

fn adopt_processes(
    context: &ManagerContext,
    spec: Arc<InitUnit>,
    run: &mut RunRecord,
) -> io::Result<(ServiceRun, RunningProcesses)> {
    let now = context.now();
    let mut service = ServiceRun::restore(Arc::clone(&spec), run.run_state.clone(), now);
    let mut running = Vec::new();
    for process in run.run_state.main.into_iter().chain(run.run_state.control) {
        match ProcessHandle::open(process)? {
            Some(watched) => running.push((process, watched)),
            None => {
                if service.needs_pid_file_before_exit(process, ProcessExit::Unobserved) {
                    let other = successor(&spec, run)?;
                    other.iter().for_each(|(named, _)| service.on_main(*named, now));
                    running.extend(other);
                }
                service.on_exited(process, ProcessExit::Unobserved, now);
            }
        }
    }
    if run.run_state.spawning.is_some() {
        let inside = run.group.as_ref().map(Group::members).transpose()?.unwrap_or_default();
        let found = find_spawning(run, &inside, &read_all()?);
        // Its children stay in its process group even if it ends.
        run.leaders.extend(found);
        match found
            .map(|process| Ok::<_, io::Error>((process, ProcessHandle::open(process)?)))
            .transpose()?
        {
            Some((process, Some(watched))) => {
                running.push((process, watched));
                service.on_spawned(process, now);
            }
            _ => service.on_spawn_failed(ProcessExit::Unobserved, now),
        }
    }
    Ok((service, running))
}

/// Returns the process that the PID file names as the new main process, after the main process has
/// ended. Returns `None` if the file names no running process of this run.
fn successor(spec: &InitUnit, run: &RunRecord) -> io::Result<Option<(ProcessId, ProcessHandle)>> {
    let is_own =
        |process| belongs_to_run(process, run.group.as_ref(), &run.invocation, &run.leaders);
    let named = pidfile::named(spec, pid_file_owner(spec, run.dynamic.as_deref()), is_own)?;
    let watched = named.map(ProcessHandle::open).transpose()?.flatten();
    Ok(named.zip(watched))
}

/// Finds the process that was being spawned when the earlier daemon ended. Returns `None` if no
/// process qualifies.
///
/// A candidate is the leader of a process group and is not stored with the run yet. Either it
/// carries the invocation ID of the run, or it carries no invocation ID and is in the control group
/// of the run.
///
/// The service manager sets `SYSTEMD_EXEC_PID` to the pid of each process that it spawns, and
/// descendants inherit the variable. So the variable decides between several candidates:
///
/// 1. A candidate with its own pid in the variable was spawned by the service manager, and is
///    chosen.
/// 2. Otherwise the earliest candidate without the variable is chosen, since the others are its
///    children.
/// 3. A candidate with another pid in the variable is never chosen. It is only a descendant of the
///    spawned process, even if that process has ended.
fn find_spawning(run: &RunRecord, inside: &[u32], all: &[ProcessInfo]) -> Option<ProcessId> {
    let known = [run.run_state.main, run.run_state.control];
    // A nested service manager gives its units other invocation IDs.
    let belongs = |process: &&ProcessInfo| match &process.invocation {
        Some(invocation) => *invocation == run.invocation,
        None => inside.contains(&process.id.pid),
    };
    let leaders = all.iter().filter(|process| process.group == process.id.pid).filter(belongs);
    let new = leaders
        .filter(|it| !known.contains(&Some(it.id)) && !run.leaders.contains(&it.id))
        .filter(|it| it.exec_pid.is_none_or(|exec_pid| exec_pid == it.id.pid));
    new.min_by_key(|it| (it.exec_pid.is_none(), it.id.start, it.id.pid)).map(|it| it.id)
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::{EventKind, RestartWhen};

    use super::*;
    use crate::native::run::machine::state::Role;
    use crate::native::run::machine::tests::spec;

    #[test]
    fn the_first_unknown_group_leader_is_the_spawned_process() {
        let process = |pid, group, start, invocation: &str| ProcessInfo {
            id: ProcessId { pid, start },
            parent: 1,
            group,
            invocation: Some(invocation.to_owned()),
            exec_pid: None,
        };
        let main = ProcessId { pid: 5, start: 1 };
        let run_state =
            RunState { main: Some(main), spawning: Some(Role::Control), ..RunState::default() };
        let leaders = vec![ProcessId { pid: 4, start: 0 }, main];
        let run = RunRecord { invocation: "a".into(), leaders, run_state, ..RunRecord::default() };
        let mut all = [
            process(4, 4, 0, "a"),
            process(5, 5, 1, "a"),
            process(6, 5, 2, "a"),
            process(7, 7, 2, "b"),
            process(9, 9, 3, "a"),
            process(8, 8, 4, "a"),
        ];
        assert_eq!(find_spawning(&run, &[], &all), Some(ProcessId { pid: 9, start: 3 }));
        assert_eq!(find_spawning(&run, &[], &all[..4]), None);
        // Between fork and exec a process does not carry the invocation ID yet.
        all[3].exec_pid = Some(7);
        assert_eq!(find_spawning(&run, &[4, 5, 6, 7], &all[..4]), None);
        (all[3].invocation, all[3].exec_pid) = (None, None);
        assert_eq!(
            find_spawning(&run, &[4, 5, 6, 7], &all[..4]),
            Some(ProcessId { pid: 7, start: 2 })
        );
        // A child may have the same start time as its parent, since clock ticks are coarse, or
        // outlive it.
        all[5].exec_pid = Some(8);
        assert_eq!(find_spawning(&run, &[], &all), Some(ProcessId { pid: 8, start: 4 }));
        all[4].exec_pid = Some(8);
        assert_eq!(find_spawning(&run, &[], &all[..5]), None);
    }

    #[test]
    fn recovered_unit_keeps_its_counters() {
        let definition = spec("ExecStart=/bin/true\n");
        let starting = [ServicePhase::StartPre, ServicePhase::Start, ServicePhase::StartPost];
        for phase in starting.into_iter().chain([ServicePhase::Running, ServicePhase::StopSigterm])
        {
            let counts = RunState { attempts: 5, failures: 2, restarts: 8, ..RunState::default() };
            let run_state = RunState { phase, ..counts };
            let observed =
                observe_run(&definition, &run_state, Incarnation(1), Timestamp::from_millis(0));
            assert_eq!((observed.attempts, observed.failures), (5, 2), "{phase:?}");
        }
    }

    /// Observes a run state of a unit with `Restart=on-abnormal`.
    fn after(run_state: &RunState) -> ObservedUnit {
        let mut definition = InitUnit::clone(&spec("Type=notify\nExecStart=/bin/true\n"));
        definition.restart.when = RestartWhen::OnAbnormal;
        observe_run(&Arc::new(definition), run_state, Incarnation(1), Timestamp::from_millis(0))
    }

    #[test]
    fn abnormal_end_stays_abnormal_after_a_recovery() {
        for (outcome, exit, cause) in [
            (RunOutcome::Protocol, ProcessExit::Code(0), FailureCause::Protocol),
            (RunOutcome::Resources, ProcessExit::NotSpawned, FailureCause::Resources),
        ] {
            let (outcome, exit) = (Some(outcome), Some(exit));
            let observed = after(&RunState {
                phase: ServicePhase::Failed,
                outcome,
                exit,
                ..RunState::default()
            });
            assert_eq!((observed.cause, observed.retry_at.is_some()), (Some(cause), true));
            assert_eq!((observed.attempts, observed.failures), (1, 1));
        }
    }

    /// Regression: the unit was inactive, or its main process counted as the one that failed.
    #[test]
    fn failed_stop_command_is_recovered() {
        let cause = FailureCause::StopCommand(Exit::Status(3));
        let run_state = RunState {
            outcome: Some(RunOutcome::ExitCode),
            exit: Some(ProcessExit::Code(0)),
            stop_command: Some(ProcessExit::Code(3)),
            ..RunState::default()
        };
        for stop_requested in [true, false] {
            let phase = ServicePhase::Failed;
            let observed = after(&RunState { phase, stop_requested, ..run_state.clone() });
            assert_eq!((observed.phase, observed.cause), (Phase::Failed, Some(cause)));
        }
        let stopping = RunState { phase: ServicePhase::StopSigterm, ..run_state };
        let failed = Some(StopOutcome::Failed(cause));
        assert_eq!(after(&stopping).outcome, failed);
        let now = Timestamp::from_millis(0);
        let mut service = ServiceRun::restore(spec("ExecStart=/bin/true\n"), stopping, now);
        assert_eq!(service.take_events()[0], EventKind::Failed(cause));
    }

    #[test]
    fn main_exit_is_recovered_while_processes_are_left() {
        let (outcome, exit) = (Some(RunOutcome::Watchdog), Some(ProcessExit::Signal(6)));
        let phase = ServicePhase::StopSigterm;
        let observed = after(&RunState { phase, outcome, exit, ..RunState::default() });
        assert_eq!(observed.outcome, Some(StopOutcome::Failed(FailureCause::Watchdog)));
        assert_eq!(observed.exit, Some(Exit::Signal(6)));
    }
}

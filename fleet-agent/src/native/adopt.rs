//! Takes back what an earlier daemon left running.
//!
//! | the record says | the process | then |
//! |---|---|---|
//! | a process with its time of start | runs, and started then | it is watched, though no child |
//! | a process with its time of start | does not | it ended unseen, or its file names the next |
//! | a process was about to be started | one carries the identity of the run | that one is it |
//! | a process was about to be started | none does | it ended unseen |
//!
//! How a process ended that nobody watched is not known. It counts as a failure, so the unit's own
//! restart policy decides what follows. After the machine was booted nothing of this happens:
//! nothing runs, and no unit is known.

use std::io;
use std::sync::Arc;

use fleet_core::graph::{
    Command, InitUnit, Name, Readiness, Restart, Run, ServiceType, Target, Timeouts,
};

use super::cgroup::Group;
use super::log::Log;
use super::manager_context::ManagerContext;
use super::outcome::ProcessExit;
use super::pidfile;
use super::proc::{ProcessHandle, belongs_to_run};
use super::process_info::ProcessInfo;
use super::process_table::read_all;
use super::run_driver::{RunDriver, pid_file_owner};
use super::run_machine::ServiceRun;
use super::run_state::ProcessId;
use super::unit_directory::{RunRecord, UnitDirectory};

/// For a unit whose file cannot be obeyed any more, but which may still run: it can be stopped, and
/// nothing else.
pub(crate) fn stop_only_definition(name: Name) -> InitUnit {
    InitUnit {
        provides: vec![Target::from(&name)],
        name,
        kind: ServiceType::ForegroundSupervised(Readiness::Executed),
        edges: Vec::new(),
        description: String::new(),
        timeouts: Timeouts::default(),
        restart: Restart::never(),
        // A graph takes no service that starts nothing.
        run: Run { start: vec![Command::new("/bin/false", [])], ..Run::default() },
    }
}

/// Goes on with a run that was begun by another daemon.
pub(crate) fn resume(
    context: &Arc<ManagerContext>,
    unit: &str,
    directory: &UnitDirectory,
    log: Arc<Log>,
    spec: Arc<InitUnit>,
    mut run: RunRecord,
) -> io::Result<RunDriver> {
    let mut driver = RunDriver::new(context, unit, directory, log, Arc::clone(&spec));
    let (service, running) = adopt_processes(context, spec, &mut run)?;
    driver.adopt(service, run, running);
    Ok(driver)
}

type Running = Vec<(ProcessId, ProcessHandle)>;

fn adopt_processes(
    context: &ManagerContext,
    spec: Arc<InitUnit>,
    run: &mut RunRecord,
) -> io::Result<(ServiceRun, Running)> {
    let now = context.now();
    let mut service = ServiceRun::restore(Arc::clone(&spec), run.run_state.clone(), now);
    let mut running = Vec::new();
    for process in run.run_state.main.into_iter().chain(run.run_state.control) {
        match ProcessHandle::open(process)? {
            Some(watched) => running.push((process, watched)),
            None => {
                if service.may_name_another(process, ProcessExit::Unobserved) {
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
        // What it starts stays in its group, whatever becomes of it.
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

/// The process that the file of a unit names now that its main one has ended.
fn successor(spec: &InitUnit, run: &RunRecord) -> io::Result<Option<(ProcessId, ProcessHandle)>> {
    let is_own =
        |process| belongs_to_run(process, run.group.as_ref(), &run.invocation, &run.leaders);
    let named = pidfile::named(spec, pid_file_owner(spec), is_own)?;
    let watched = named.map(ProcessHandle::open).transpose()?.flatten();
    Ok(named.zip(watched))
}

/// The process that was about to be started: it is in the control group of the run or carries its
/// identity, leads a process group, and is none that is known already. It says that it was begun by
/// a service manager itself; where processes are not told, or hide it, it is the first of those
/// that say nothing, for the others are its children. What says that another was begun comes from
/// one that may have ended since, and is never taken for it.
fn find_spawning(run: &RunRecord, inside: &[u32], all: &[ProcessInfo]) -> Option<ProcessId> {
    let known = [run.run_state.main, run.run_state.control];
    // Of one that runs units itself, what it has begun has another run.
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
    use super::*;
    use crate::native::run_state::{Role, RunState};

    #[test]
    fn the_first_unknown_leader_of_the_run_is_the_one() {
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
        // One that has not executed its program yet carries no identity.
        all[3].exec_pid = Some(7);
        assert_eq!(find_spawning(&run, &[4, 5, 6, 7], &all[..4]), None);
        (all[3].invocation, all[3].exec_pid) = (None, None);
        assert_eq!(
            find_spawning(&run, &[4, 5, 6, 7], &all[..4]),
            Some(ProcessId { pid: 7, start: 2 })
        );
        // What it began may be there before it, as numbers of clocks are coarse, or without it.
        all[5].exec_pid = Some(8);
        assert_eq!(find_spawning(&run, &[], &all), Some(ProcessId { pid: 8, start: 4 }));
        all[4].exec_pid = Some(8);
        assert_eq!(find_spawning(&run, &[], &all[..5]), None);
    }
}

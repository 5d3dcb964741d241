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
    Command, Kind, Name, Readiness, Restart, Run as Runs, Target, TimeOuts, Unit,
};

use super::census::read_all;
use super::cgroup::Group;
use super::drive::{Driver, owner_of_file};
use super::life::ProcessId;
use super::log::Log;
use super::look::Process;
use super::machine::Machine;
use super::outcome::End;
use super::pidfile;
use super::proc::{Watched, is_of_run};
use super::record::{Run, UnitDirectory};
use super::service::Service;

/// For a unit whose file cannot be obeyed any more, but which may still run: it can be stopped, and
/// nothing else.
pub(crate) fn only_to_stop(name: Name) -> Unit {
    Unit {
        provides: vec![Target::from(&name)],
        name,
        kind: Kind::ForegroundSupervised(Readiness::Executed),
        edges: Vec::new(),
        description: String::new(),
        time_outs: TimeOuts::default(),
        restart: Restart::never(),
        // A graph takes no service that starts nothing.
        run: Runs { start: vec![Command::new("/bin/false", [])], ..Runs::default() },
    }
}

/// Goes on with a run that was begun by another daemon.
pub(crate) fn resume(
    machine: &Arc<Machine>,
    unit: &str,
    directory: &UnitDirectory,
    log: Arc<Log>,
    spec: Arc<Unit>,
    mut run: Run,
) -> io::Result<Driver> {
    let mut driver = Driver::new(machine, unit, directory, log, Arc::clone(&spec));
    let (service, running) = take_back(machine, spec, &mut run)?;
    driver.adopt(service, run, running);
    Ok(driver)
}

type Running = Vec<(ProcessId, Watched)>;

fn take_back(machine: &Machine, spec: Arc<Unit>, run: &mut Run) -> io::Result<(Service, Running)> {
    let now = machine.now();
    let mut service = Service::restore(Arc::clone(&spec), run.memory.clone(), now);
    let mut running = Vec::new();
    for process in run.memory.main.into_iter().chain(run.memory.control) {
        match Watched::open(process)? {
            Some(watched) => running.push((process, watched)),
            None => {
                if service.may_name_another(process, End::Unseen) {
                    let other = successor(&spec, run)?;
                    other.iter().for_each(|(named, _)| service.on_main(*named, now));
                    running.extend(other);
                }
                service.on_exited(process, End::Unseen, now);
            }
        }
    }
    if run.memory.spawning.is_some() {
        let inside = run.group.as_ref().map(Group::members).transpose()?.unwrap_or_default();
        let found = find(run, &inside, &read_all()?);
        // What it starts stays in its group, whatever becomes of it.
        run.leaders.extend(found);
        match found
            .map(|process| Ok::<_, io::Error>((process, Watched::open(process)?)))
            .transpose()?
        {
            Some((process, Some(watched))) => {
                running.push((process, watched));
                service.on_spawned(process, now);
            }
            _ => service.on_spawn_failed(End::Unseen, now),
        }
    }
    Ok((service, running))
}

/// The process that the file of a unit names now that its main one has ended.
fn successor(spec: &Unit, run: &Run) -> io::Result<Option<(ProcessId, Watched)>> {
    let is_own = |process| is_of_run(process, run.group.as_ref(), &run.invocation, &run.leaders);
    let named = pidfile::named(spec, owner_of_file(spec), is_own)?;
    let watched = named.map(Watched::open).transpose()?.flatten();
    Ok(named.zip(watched))
}

/// The process that was about to be started: it is in the control group of the run or carries its
/// identity, leads a process group, and is none that is known already. It says that it was begun by
/// a service manager itself; where processes are not told, or hide it, it is the first of those
/// that say nothing, for the others are its children. What says that another was begun comes from
/// one that may have ended since, and is never taken for it.
fn find(run: &Run, inside: &[u32], all: &[Process]) -> Option<ProcessId> {
    let known = [run.memory.main, run.memory.control];
    // Of one that runs units itself, what it has begun has another run.
    let belongs = |process: &&Process| match &process.invocation {
        Some(invocation) => *invocation == run.invocation,
        None => inside.contains(&process.id.pid),
    };
    let leaders = all.iter().filter(|process| process.group == process.id.pid).filter(belongs);
    let new = leaders
        .filter(|it| !known.contains(&Some(it.id)) && !run.leaders.contains(&it.id))
        .filter(|it| it.begun.is_none_or(|begun| begun == it.id.pid));
    new.min_by_key(|it| (it.begun.is_none(), it.id.start, it.id.pid)).map(|it| it.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::life::{Memory, Role};

    #[test]
    fn the_first_unknown_leader_of_the_run_is_the_one() {
        let process = |pid, group, start, invocation: &str| Process {
            id: ProcessId { pid, start },
            parent: 1,
            group,
            invocation: Some(invocation.to_owned()),
            begun: None,
        };
        let main = ProcessId { pid: 5, start: 1 };
        let memory =
            Memory { main: Some(main), spawning: Some(Role::Control), ..Memory::default() };
        let leaders = vec![ProcessId { pid: 4, start: 0 }, main];
        let run = Run { invocation: "a".into(), leaders, memory, ..Run::default() };
        let mut all = [
            process(4, 4, 0, "a"),
            process(5, 5, 1, "a"),
            process(6, 5, 2, "a"),
            process(7, 7, 2, "b"),
            process(9, 9, 3, "a"),
            process(8, 8, 4, "a"),
        ];
        assert_eq!(find(&run, &[], &all), Some(ProcessId { pid: 9, start: 3 }));
        assert_eq!(find(&run, &[], &all[..4]), None);
        // One that has not executed its program yet carries no identity.
        all[3].begun = Some(7);
        assert_eq!(find(&run, &[4, 5, 6, 7], &all[..4]), None);
        (all[3].invocation, all[3].begun) = (None, None);
        assert_eq!(find(&run, &[4, 5, 6, 7], &all[..4]), Some(ProcessId { pid: 7, start: 2 }));
        // What it began may be there before it, as numbers of clocks are coarse, or without it.
        all[5].begun = Some(8);
        assert_eq!(find(&run, &[], &all), Some(ProcessId { pid: 8, start: 4 }));
        all[4].begun = Some(8);
        assert_eq!(find(&run, &[], &all[..5]), None);
    }
}

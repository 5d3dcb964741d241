//! Takes back what an earlier runner of the same directory left.
//!
//! What a run remembers of itself tells what was known of its unit: what it is doing, how it ended,
//! what then becomes of it. Times begin anew.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    Activity, Cause, Ending, Exit, Graph, Incarnation, Name, Observation, Observed, Phase as Doing,
    StopReason, Unit,
};

use super::front::Runner;
use super::lead::Lead;
use super::lost::{lost, reason};
use super::member::{Member, read_definition};
use super::services::gave_up;
use crate::native::adopt::resume;
use crate::native::descriptors::see_to_room;
use crate::native::drive::Driver;
use crate::native::life::{Memory, Phase};
use crate::native::machine::{Machine, is_of_this_boot};
use crate::native::outcome::{End, Outcome};
use crate::native::record::{Run, UnitDirectory};

/// What was found: what is known of the units, their members, and the runs to go on with; and the
/// units that cannot be taken back, with the reason.
#[derive(Default)]
pub(super) struct Recalled {
    pub(super) seen: Observation,
    pub(super) members: BTreeMap<Name, Member>,
    pub(super) runs: Vec<(Name, Incarnation, Driver)>,
    pub(super) lost: BTreeMap<Name, String>,
}

impl Recalled {
    /// Looks at all that an earlier runner has written down.
    pub(super) fn read(machine: &Arc<Machine>, graph: &Graph) -> io::Result<Self> {
        let mut recalled = Self::default();
        for name in machine.known()? {
            let Ok(name) = Name::new(&name) else { continue };
            let takes = |recalled: &Self| recalled.runs.len() + recalled.lost.len();
            let before = takes(&recalled);
            recalled.take(machine, graph, &name);
            if takes(&recalled) > before {
                see_to_room(recalled.runs.len())?;
            }
        }
        recalled.seen.add_virtual(graph, machine.now(), |_| true);
        Ok(recalled)
    }

    /// Takes a unit back. One that cannot be must not keep the others from it.
    pub(super) fn take(&mut self, machine: &Arc<Machine>, graph: &Graph, name: &Name) {
        if let Err(error) = self.try_to_take(machine, graph, name) {
            tracing::error!(unit = %name, %error, "cannot take a unit back");
            self.seen.last = Incarnation(self.seen.last.0 + 1);
            let seen = lost(graph, name, self.seen.last, machine.now());
            self.seen.units.insert(name.clone(), seen);
            self.lost.insert(name.clone(), reason(&error));
            // Its processes may write on.
            if let Err(error) = member_of(&mut self.members, machine, name) {
                tracing::error!(unit = %name, %error, "cannot keep the log of a unit short");
            }
        }
    }

    fn try_to_take(
        &mut self,
        machine: &Arc<Machine>,
        graph: &Graph,
        name: &Name,
    ) -> io::Result<()> {
        let directory = machine.record(name.as_str());
        let present = graph.unit(name);
        let Some(run) = directory.read_run()? else {
            self.members.remove(name);
            return Ok(());
        };
        if !is_busy(&run.memory) && present.is_none() {
            self.members.remove(name);
            return directory.remove();
        }
        let definition = match (definition(&directory, graph, name), present) {
            // Nothing runs that was started from another one.
            (Err(_), Some(present)) if !is_busy(&run.memory) => Arc::clone(present),
            (definition, _) => definition?,
        };
        let incarnation = Incarnation(self.seen.last.0 + 1);
        let (memory, now) = (run.memory.clone(), machine.now());
        let mut seen = observed(&definition, &memory, incarnation, now);
        // What it was given up for is forgiven with another definition, whenever that came.
        let otherwise = |present: &Arc<Unit>| definition.runs_otherwise_than(present);
        if seen.gave_up && present.is_some_and(otherwise) {
            seen = Observed::default();
        }
        let member = member_of(&mut self.members, machine, name)?;
        if is_busy(&memory) {
            let driver = go_on(machine, name, member, &definition, run, incarnation)?.1;
            self.runs.push((name.clone(), incarnation, driver));
        }
        member.memory = Arc::new(memory);
        member.written = Some(definition);
        member.retries = seen.retry_at.is_some();
        self.seen.last = incarnation;
        self.seen.units.insert(name.clone(), seen);
        Ok(())
    }
}

/// What is kept of a unit: nobody else may have its log.
fn member_of<'a>(
    members: &'a mut BTreeMap<Name, Member>,
    machine: &Machine,
    name: &Name,
) -> io::Result<&'a mut Member> {
    Ok(match members.entry(name.clone()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(Member::new(machine, name)?),
    })
}

impl Lead {
    /// Writes down, of these units, which were tried too often and which are to be tried all the
    /// same, for who takes them back: their last runs do not know.
    pub(super) fn keep_give_ups(&mut self, units: &BTreeSet<Name>) {
        for unit in units {
            let member = self.members.get_mut(unit).filter(|member| member.live.is_none());
            let Some(member) = member else { continue };
            let gave_up = self.system.state(unit).is_some_and(|state| gave_up(&state.what));
            let memory = match (gave_up, member.memory.gave_up) {
                (true, false) => Memory { gave_up, ..Memory::clone(&member.memory) },
                (false, true) => Memory::default(),
                _ => continue,
            };
            if let Err(error) = member.remember(memory) {
                tracing::warn!(%unit, %error, "cannot record whether a unit was given up");
            }
        }
    }
}

impl Runner {
    /// Whether a runner has used a directory since the machine, or its container, was booted, so
    /// that units may run there that the next one takes back. Where that cannot be read, none has.
    #[must_use]
    pub fn has_used(directory: &Path) -> bool {
        is_of_this_boot(directory).unwrap_or_default()
    }
}

/// Goes on with a run: what is known of its unit, and what drives it.
pub(super) fn go_on(
    machine: &Arc<Machine>,
    name: &Name,
    member: &Member,
    definition: &Arc<Unit>,
    run: Run,
    incarnation: Incarnation,
) -> io::Result<(Observed, Driver)> {
    let now = machine.now();
    let seen = observed(definition, &run.memory, incarnation, now);
    let (spec, log) = (Arc::clone(definition), Arc::clone(&member.log));
    let driver = resume(machine, name.as_str(), &member.directory, log, spec, run)?;
    Ok((seen, driver))
}

/// What a unit was started from, or what it is by now where nobody wrote that down.
fn definition(directory: &UnitDirectory, graph: &Graph, name: &Name) -> io::Result<Arc<Unit>> {
    let present = graph.unit(name).cloned();
    let written = read_definition(directory, name)?.map(Arc::new);
    let known = match (written, present) {
        // The same thing is kept once.
        (Some(written), Some(present)) if *written == *present => Some(present),
        (written, present) => written.or(present),
    };
    let unknown = || directory.senseless_definition(format!("there is no stanza of {name}"));
    known.ok_or_else(unknown)
}

pub(super) fn is_busy(memory: &Memory) -> bool {
    !matches!(memory.phase, Phase::Dead | Phase::Failed | Phase::AutoRestart)
}

/// What is known of a unit, by what its last run remembers.
fn observed(
    definition: &Arc<Unit>,
    memory: &Memory,
    incarnation: Incarnation,
    now: Timestamp,
) -> Observed {
    let limits = definition.time_outs;
    let later = |span: Option<Duration>| span.map(|span| now.after(span));
    let busy = Observed {
        since: now,
        incarnation: Some(incarnation),
        definition: Some(Arc::clone(definition)),
        processes: true,
        exit: memory.exit.map(End::exit),
        attempts: memory.attempts,
        failures: memory.failures,
        ..Observed::default()
    };
    match memory.phase {
        phase if phase.is_starting() => {
            Observed { phase: Doing::Starting, deadline: later(limits.start), ..busy }
        }
        phase if phase.is_stopping() => Observed {
            phase: Doing::Stopping,
            ending: Some(ending(memory)),
            deadline: later(limits.stop),
            ..busy
        },
        Phase::Failed if memory.stop_asked && memory.outcome == Some(Outcome::Timeout) => {
            failed_or_ended(definition, memory, Some(Cause::StopTimeOut), now)
        }
        Phase::Dead | Phase::Failed | Phase::AutoRestart => over(definition, memory, now),
        phase => {
            let activity = match phase {
                Phase::Exited => Activity::Exited,
                _ if phase.is_reloading() => Activity::Reloading,
                _ => Activity::Running,
            };
            let runtime = later(definition.run.runtime_max);
            let reload = later(limits.reload).filter(|_| activity == Activity::Reloading);
            let deadline = runtime.into_iter().chain(reload).min();
            let phase = Doing::Up(activity);
            Observed { phase, up_since: Some(now), deadline, ..busy }
        }
    }
}

fn ending(memory: &Memory) -> Ending {
    match (memory.outcome, cause(memory)) {
        _ if memory.stop_asked => Ending::Off(StopReason::Unneeded),
        (Some(Outcome::Condition), _) => Ending::Skipped,
        (_, Some(cause)) => Ending::Failed(cause),
        (_, None) => Ending::Well(memory.exit.map(End::exit)),
    }
}

/// A unit whose run is over.
pub(super) fn over(definition: &Unit, memory: &Memory, now: Timestamp) -> Observed {
    if memory.stop_asked || memory.outcome.is_none() {
        return Observed::default();
    }
    failed_or_ended(definition, memory, cause(memory), now)
}

fn failed_or_ended(
    definition: &Unit,
    memory: &Memory,
    cause: Option<Cause>,
    now: Timestamp,
) -> Observed {
    let phase = if cause.is_some() { Doing::Failed } else { Doing::Ended };
    let attempts = memory.attempts.saturating_add(1);
    let failures = if cause.is_some() { memory.failures.saturating_add(1) } else { 0 };
    let restart = &definition.restart;
    let exit = memory.exit.map(End::exit);
    let gave_up = memory.gave_up || memory.outcome == Some(Outcome::StartLimitHit);
    let again = memory.outcome != Some(Outcome::Condition) && restart.applies(cause, exit);
    let retry_at = (again && !gave_up).then(|| now.after(restart.delay_of(attempts)));
    let counts = Observed { attempts, failures, ..Observed::default() };
    Observed { phase, since: now, cause, retry_at, gave_up, ..counts }
}

/// Why a run failed, as far as it remembers; nothing if it did not.
fn cause(memory: &Memory) -> Option<Cause> {
    Some(match memory.outcome? {
        Outcome::Success | Outcome::Condition => return None,
        Outcome::Timeout if memory.phase.is_stopping() => Cause::StopTimeOut,
        Outcome::Timeout => Cause::StartTimeOut,
        Outcome::Watchdog => Cause::Watchdog,
        Outcome::Assert => Cause::Assertion,
        Outcome::Resources => Cause::Resources,
        Outcome::Protocol => Cause::Protocol,
        _ => Cause::Exit(memory.exit.map_or(Exit::Unknown, End::exit)),
    })
}

#[cfg(test)]
mod tests {
    use fleet_core::graph::RestartWhen;

    use super::*;
    use crate::native::service_tests::spec;

    #[test]
    fn a_unit_that_is_taken_back_keeps_the_counts_of_its_ends() {
        let definition = spec("ExecStart=/bin/true\n");
        let starting = [Phase::StartPre, Phase::Start, Phase::StartPost];
        for phase in starting.into_iter().chain([Phase::Running, Phase::StopSigterm]) {
            let counts = Memory { attempts: 5, failures: 2, restarts: 8, ..Memory::default() };
            let memory = Memory { phase, ..counts };
            let seen = observed(&definition, &memory, Incarnation(1), Timestamp::from_millis(0));
            assert_eq!((seen.attempts, seen.failures), (5, 2), "{phase:?}");
        }
    }

    /// It had none of the counts.
    #[test]
    fn the_record_of_an_earlier_version_is_read() {
        let memory = r#"{"phase":"running","step":0,"main":null,"control":null,"spawning":null,
            "outcome":"success","exit":null,"restarts":9,"stop_asked":false}"#;
        let memory: Memory = serde_json::from_str(memory).expect("it makes sense");
        let definition = spec("ExecStart=/bin/true\n");
        let seen = observed(&definition, &memory, Incarnation(1), Timestamp::from_millis(0));
        assert_eq!((seen.attempts, seen.failures), (0, 0));
    }

    /// What a run remembers of its end, of a unit that is started again after an abnormal one.
    fn after(memory: &Memory) -> Observed {
        let mut definition = Unit::clone(&spec("Type=notify\nExecStart=/bin/true\n"));
        definition.restart.when = RestartWhen::OnAbnormal;
        observed(&Arc::new(definition), memory, Incarnation(1), Timestamp::from_millis(0))
    }

    #[test]
    fn an_end_that_was_abnormal_is_so_to_the_next_daemon() {
        for (outcome, exit, cause) in [
            (Outcome::Protocol, End::Code(0), Cause::Protocol),
            (Outcome::Resources, End::NeverWas, Cause::Resources),
        ] {
            let (outcome, exit) = (Some(outcome), Some(exit));
            let seen = after(&Memory { phase: Phase::Failed, outcome, exit, ..Memory::default() });
            assert_eq!((seen.cause, seen.retry_at.is_some()), (Some(cause), true));
            assert_eq!((seen.attempts, seen.failures), (1, 1));
        }
    }

    #[test]
    fn how_the_main_process_ended_is_known_to_who_takes_back_what_is_left_of_it() {
        let (outcome, exit) = (Some(Outcome::Watchdog), Some(End::Signal(6)));
        let phase = Phase::StopSigterm;
        let seen = after(&Memory { phase, outcome, exit, ..Memory::default() });
        assert_eq!(seen.ending, Some(Ending::Failed(Cause::Watchdog)));
        assert_eq!(seen.exit, Some(Exit::Signal(6)));
    }
}

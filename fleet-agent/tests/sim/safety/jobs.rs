//! Jobs and schedules (I-28): an attempt of a job, and the run of an elapse, happens at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::job::{JobPhase, JobRecord, JobSettings};
use fleet_core::schedule::{RunId, RunPhase, ScheduleRecord, ScheduleState, ScheduledRun};
use fleet_core::{Generation, MachineId, Revision, Snapshot, TargetState, Unit};
use fleet_store::registry::Key;
use fleet_unitfile::{UnitHash, UnitName};

use super::rollouts::Term;
use crate::history::{History, Moment};
use crate::host::Event;
use crate::spy::Author;

/// State of the checks of jobs and schedules.
#[derive(Default)]
pub(super) struct Jobs {
    /// Last revision in which a leader wrote the job of a unit. Each later decision about it is
    /// based on this revision or a later one.
    written: BTreeMap<UnitName, Revision>,
    /// Highest generation of all attempts of a unit.
    highest: BTreeMap<UnitName, Generation>,
    /// Settings by file.
    settings: BTreeMap<UnitHash, JobSettings>,
    /// Units of runs that were created for the present record of each schedule.
    created: BTreeMap<UnitName, BTreeSet<UnitName>>,
    /// The cluster at the last revision that was checked.
    before: Arc<Snapshot>,
}

/// One revision, with the cluster before.
#[derive(Clone, Copy)]
struct Step<'a> {
    moment: &'a Moment,
    now: &'a Snapshot,
    before: &'a Snapshot,
    history: &'a History,
    term: Term,
    by_leader: bool,
}

impl Jobs {
    /// Returns the violations of a revision.
    pub(super) fn check(&mut self, moment: &Moment, history: &History, term: Term) -> Vec<String> {
        let before = std::mem::replace(&mut self.before, moment.snapshot.clone());
        let by_leader = matches!(moment.author, Some(Author::Daemon(_)));
        let (now, before) = (&*moment.snapshot, &*before);
        let step = Step { moment, now, before, history, term, by_leader };
        let mut violations = Vec::new();
        for (key, deleted) in &moment.written {
            match key {
                Key::Job(unit) => {
                    let found = self.on_job(&step, unit);
                    violations.extend(found.into_iter().map(|text| {
                        let (was, is) = (before.job(unit.as_str()), now.job(unit.as_str()));
                        format!("I-28: {unit}: {text}: {was:?}, then {is:?}")
                    }));
                    self.written.insert(unit.clone(), now.revision);
                }
                Key::Schedule(unit) => {
                    let found = self.on_schedule(&step, unit);
                    violations.extend(found.into_iter().map(|text| {
                        let (was, is) =
                            (before.schedule(unit.as_str()), now.schedule(unit.as_str()));
                        format!("I-28: {unit}: {text}: {was:?}, then {is:?}")
                    }));
                }
                Key::Unit(unit) => {
                    self.note_settings(now, unit);
                    if by_leader {
                        let found = on_unit(&step, unit, *deleted);
                        violations.extend(found.map(|text| format!("I-28: {unit}: {text}")));
                    }
                }
                _ => {}
            }
        }
        violations
    }

    fn note_settings(&mut self, now: &Snapshot, unit: &UnitName) {
        let Some(unit) = now.unit(unit.as_str()) else { return };
        if let Some(job) = unit.requirements.job.as_ref().filter(|_| unit.is_job()) {
            self.settings.insert(unit.hash(), job.settings.clone());
        }
    }

    fn on_job(&mut self, step: &Step<'_>, unit: &UnitName) -> Vec<String> {
        let (was, is) = (step.before.job(unit.as_str()), step.now.job(unit.as_str()));
        let was = was.map(|record| &**record);
        let Some(is) = is else {
            let permits = |seen: &Snapshot| seen.unit(unit.as_str()).is_none_or(|it| !it.is_job());
            let may_go = !step.by_leader
                || was.is_none_or(|was| was.state.outcome().is_some())
                || is_run_of_destroyed(step.before, unit)
                || self.is_permitted(step, unit, permits);
            return if may_go { Vec::new() } else { vec!["removed before its end".to_owned()] };
        };
        let same = was.filter(|was| was.state.origin == is.state.origin);
        let mut violations = match same {
            Some(was) => self.on_progress(was, is),
            None => self.on_new_job(step, unit, was, is),
        };
        let attempt = is.state.current_attempt();
        if attempt != same.and_then(|was| was.state.current_attempt())
            && let Some((machine, attempt)) = attempt
        {
            violations.extend(self.on_attempt(step, unit, (machine, attempt.generation()), same));
        }
        violations
    }

    /// An ended job never changes. An unfinished one keeps its file, and begins its attempts one
    /// after another.
    fn on_progress(&self, was: &JobRecord, is: &JobRecord) -> Vec<String> {
        let mut violations = Vec::new();
        if was.state.outcome().is_some() && was != is {
            violations.push("changed after its end".to_owned());
        }
        if (was.hash, was.generation) != (is.hash, is.generation) {
            violations.push("made from another file than before".to_owned());
        }
        let begun = is.state.last_attempt.checked_sub(was.state.last_attempt);
        if !matches!(begun, Some(0 | 1)) {
            violations.push("more than one attempt in one step".to_owned());
        }
        let Some(settings) = self.settings.get(&is.hash) else {
            violations.push("made from no known file".to_owned());
            return violations;
        };
        let free = if settings.count_lost { 0 } else { JobSettings::FREE_INTERRUPTIONS };
        let most = settings.retries + 1 + is.state.interrupted.min(free);
        if is.state.last_attempt > most {
            violations.push(format!("more than {most} attempts"));
        }
        violations
    }

    /// A new job replaces an earlier one only if its unit asks for that.
    fn on_new_job(
        &self,
        step: &Step<'_>,
        unit: &UnitName,
        was: Option<&JobRecord>,
        is: &JobRecord,
    ) -> Vec<String> {
        let mut violations = Vec::new();
        if was.is_some_and(|was| was.state.origin > is.state.origin) {
            violations.push("replaced by an earlier job".to_owned());
        }
        let asks = |seen: &Snapshot| {
            seen.revision == is.state.origin
                && seen.unit(unit.as_str()).is_some_and(|seen| {
                    let same = |job: &JobRecord| {
                        (job.hash, job.generation) == (seen.hash(), seen.generation)
                    };
                    seen.is_job()
                        && seen.desired == TargetState::Launched
                        && same(is)
                        && was.is_none_or(|was| was.state.outcome().is_some() || !same(was))
                })
        };
        if !self.is_permitted(step, unit, asks) {
            violations.push(format!("{} asks for no new job", is.state.origin));
        }
        if is.state.last_attempt > 1 || !is.state.attempts.is_empty() {
            violations.push("new, with earlier attempts".to_owned());
        }
        violations
    }

    /// An attempt begins on a present machine on which its unit is placed, while no other machine
    /// that is present reports an active attempt. Only the last attempt is resumed, where it was.
    fn on_attempt(
        &mut self,
        step: &Step<'_>,
        unit: &UnitName,
        (machine, generation): (&MachineId, Generation),
        was: Option<&JobRecord>,
    ) -> Option<String> {
        let last = was.and_then(|was| was.state.attempts.last());
        let is_pending = was.is_some_and(|it| matches!(it.state.phase, JobPhase::Pending { .. }));
        let is_resumed = is_pending && last.is_some_and(|last| last.machine == *machine);
        let highest = self.highest.entry(unit.clone()).or_default();
        if generation == *highest && is_resumed {
            return None;
        }
        if generation <= *highest {
            return Some(format!("attempt {generation} begins again"));
        }
        *highest = generation;
        let permits = |seen: &Snapshot| {
            let placed = seen.placement(unit.as_str()).map(|placement| &placement.machine);
            let is_present = |machine: &MachineId| seen.machine(machine.as_str()).is_some();
            let is_active = seen.states_of(unit.as_str()).any(|state| {
                // A service of this name has no generation, and is no attempt.
                let is_attempt = state.generation != Generation::ZERO;
                let is_other = is_attempt && state.generation < generation;
                is_present(&state.machine) && is_other && !state.systemd.active.has_ended()
            });
            let wanted = seen.unit(unit.as_str()).map(|unit| unit.desired);
            placed == Some(machine)
                && is_present(machine)
                && !is_active
                && wanted == Some(TargetState::Launched)
        };
        let permitted = self.is_permitted(step, unit, permits);
        (!permitted).then(|| format!("no revision permits attempt {generation} on {machine}"))
    }

    /// Whether a decision about the job of a unit could be based on a snapshot that permits it.
    fn is_permitted(
        &self,
        step: &Step<'_>,
        unit: &UnitName,
        permits: impl Fn(&Snapshot) -> bool,
    ) -> bool {
        let written = self.written.get(unit).copied().unwrap_or_default();
        let earliest = written.max(step.term.elected);
        step.history.between(earliest, step.before.revision).any(permits)
    }

    /// The time up to which all elapses are decided never goes back, requests of users are kept,
    /// and a run is recorded before it is started.
    fn on_schedule(&mut self, step: &Step<'_>, unit: &UnitName) -> Vec<String> {
        let (was, is) = (step.before.schedule(unit.as_str()), step.now.schedule(unit.as_str()));
        let mut violations = Vec::new();
        match (was, is) {
            (Some(was), Some(is)) if was.is_left_over() && !is.is_left_over() => {
                self.created.remove(unit);
                if is.state.runs.iter().any(|run| run.phase != RunPhase::Recorded) {
                    violations.push("new, with started runs".to_owned());
                }
            }
            (Some(was), Some(is)) => {
                let is_destroyed = step.now.unit(unit.as_str()).is_none();
                if is_destroyed && was.after_destroy().as_ref() == Some(&**is) {
                    return violations;
                }
                violations.extend(on_schedule_progress(step, was, is));
                violations.extend(self.on_runs(step, unit, (was, is)));
            }
            (None, Some(is)) => {
                self.created.remove(unit);
                if is.state.runs.iter().any(|run| run.phase != RunPhase::Recorded) {
                    violations.push("new, with started runs".to_owned());
                }
            }
            (_, None) => {}
        }
        violations
    }

    /// A run is created once, from a record of an earlier revision.
    fn on_runs(
        &mut self,
        step: &Step<'_>,
        schedule: &UnitName,
        (was, is): (&ScheduleRecord, &ScheduleRecord),
    ) -> Vec<String> {
        let mut violations = Vec::new();
        for run in &is.state.runs {
            let Ok(unit) = run.id.unit_name(schedule) else {
                violations.push(format!("{} has no unit", run.id));
                continue;
            };
            let before = was.state.runs.iter().find(|before| before.id == run.id);
            let is_written = step.writes(&Key::Unit(unit.clone()));
            match (before.map(|run| run.phase), run.phase) {
                (None, RunPhase::Recorded) => violations.extend(is_new(was, is, run.id)),
                (Some(RunPhase::Recorded), RunPhase::Started) => {
                    let is_new = self.created.entry(schedule.clone()).or_default().insert(unit);
                    if is_written && !is_new {
                        violations.push(format!("{} is created twice", run.id));
                    }
                }
                (Some(before), after) if before <= after => {}
                (before, after) => {
                    violations.push(format!("{} was {before:?} and is {after:?}", run.id));
                }
            }
        }
        let is_kept = |run: &&ScheduledRun| run.phase != RunPhase::Stopping;
        if is.state.runs.iter().filter(is_kept).count() > ScheduleState::MAX_RUNS {
            violations.push("too many runs".to_owned());
        }
        violations
    }
}

impl Step<'_> {
    fn writes(&self, key: &Key) -> bool {
        self.moment.written.iter().any(|(written, _)| written == key)
    }
}

/// A leader creates the unit of a run in the step in which its schedule has it as started. It
/// stops and removes a job only with or after its end, or because another run replaces it.
fn on_unit(step: &Step<'_>, unit: &UnitName, deleted: bool) -> Option<String> {
    let phase_of = |snapshot: &Snapshot, phase: RunPhase| {
        let is_run =
            |(schedule, record): (&UnitName, &Arc<ScheduleRecord>)| {
                record.state.runs.iter().any(|run| {
                    run.phase == phase && run.id.unit_name(schedule).as_ref() == Ok(unit)
                })
            };
        snapshot.schedules().any(is_run)
    };
    let has_ended = |snapshot: &Snapshot| {
        snapshot.job(unit.as_str()).is_some_and(|job| job.state.outcome().is_some())
    };
    let (was, is) = (step.before.unit(unit.as_str()), step.now.unit(unit.as_str()));
    if deleted {
        let may_go = !was.is_some_and(|was| was.is_job())
            || has_ended(step.before)
            || is_run_of_destroyed(step.before, unit);
        return (!may_go).then(|| "removed before its end".to_owned());
    }
    match (was, is) {
        (None, Some(is)) if is.is_job() => {
            let is_recorded = phase_of(step.before, RunPhase::Recorded);
            let is_started = phase_of(step.now, RunPhase::Started);
            (!is_recorded || !is_started).then(|| "created for no recorded run".to_owned())
        }
        (Some(was), Some(is)) if was.is_job() && was.hash() != is.hash() => {
            Some("replaced by a run".to_owned())
        }
        (Some(was), Some(is)) if was.is_job() && was.desired != is.desired => {
            let may_stop = has_ended(step.now) || phase_of(step.before, RunPhase::Stopping);
            let is_stopped = is.desired == TargetState::Inactive;
            (!may_stop || !is_stopped).then(|| format!("{:?} before its end", is.desired))
        }
        _ => None,
    }
}

/// Whether a unit is the run of a schedule that was destroyed.
fn is_run_of_destroyed(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let has_schedule =
        |unit: &Arc<Unit>| unit.requirements.job.as_ref().is_some_and(|job| job.schedule.is_some());
    snapshot.schedules().any(|(schedule, record)| {
        let mut names = record.started_runs().map(|run| run.unit_name(schedule));
        let is_over = !snapshot.unit(schedule.as_str()).is_some_and(has_schedule);
        (is_over || record.is_left_over()) && names.any(|name| name.as_ref() == Ok(unit))
    })
}

fn on_schedule_progress(step: &Step<'_>, was: &ScheduleRecord, is: &ScheduleRecord) -> Vec<String> {
    let mut violations = Vec::new();
    if is.state.decided_until < was.state.decided_until {
        violations.push("the decided time goes back".to_owned());
    }
    if is.state.run_now < was.state.run_now || is.requests.run_now < was.requests.run_now {
        violations.push("the handled requests go back".to_owned());
    }
    if step.by_leader && is.requests != was.requests {
        violations.push("the leader changes the requests".to_owned());
    }
    if !step.by_leader && (&is.state, &is.event) != (&was.state, &was.event) {
        violations.push("a request changes the state".to_owned());
    }
    violations
}

/// A new run is that of an undecided elapse or an unhandled request.
fn is_new(was: &ScheduleRecord, is: &ScheduleRecord, run: RunId) -> Option<String> {
    let is_new = match run {
        RunId::Elapse(at) => at > was.state.decided_until && at <= is.state.decided_until,
        RunId::Manual(request) => {
            request > was.state.run_now && request <= is.state.run_now.min(was.requests.run_now)
        }
    };
    (!is_new).then(|| format!("{run} was decided before"))
}

/// Attempts that were started, on all machines.
#[derive(Default)]
pub(super) struct Starts {
    /// The machine of each attempt.
    started: BTreeMap<(UnitName, Generation), MachineId>,
    /// Units by file: whether they are jobs.
    jobs: BTreeMap<UnitHash, bool>,
}

/// The start of a unit on a machine.
pub(super) struct Start<'a> {
    pub(super) machine: &'a MachineId,
    pub(super) unit: &'a UnitName,
    pub(super) generation: Generation,
    pub(super) event: &'a Event,
    /// Revision on which the start is based, or an earlier one.
    pub(super) seen: Revision,
}

impl Starts {
    /// Each attempt is started at most once, and only if the store had bound it to this machine.
    pub(super) fn check(&mut self, start: &Start<'_>, history: &History) -> Option<&'static str> {
        let (unit, generation) = (start.unit, start.generation);
        let moments = || history.between(start.seen, start.event.revision);
        let hash = start.event.known?.hash;
        let is_job = |snapshot: &Snapshot| {
            let found = snapshot.unit(unit.as_str()).filter(|unit| unit.hash() == hash);
            found.map(|unit| unit.is_job())
        };
        let known = self.jobs.get(&hash).copied().or_else(|| moments().find_map(is_job));
        if !*self.jobs.entry(hash).or_insert(known?) {
            return None;
        }
        let earlier = self.started.insert((unit.clone(), generation), start.machine.clone());
        if earlier.is_some() {
            return Some("I-28: an attempt is started once more");
        }
        let is_bound = |snapshot: &Snapshot| {
            let record = snapshot.job(unit.as_str());
            let attempt = record.and_then(|record| record.state.current_attempt());
            attempt.is_some_and(|(on, attempt)| {
                on == start.machine && attempt.generation() == generation
            })
        };
        (!moments().any(is_bound)).then_some("I-28: an attempt is started that is not bound here")
    }
}

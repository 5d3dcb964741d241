//! Who waits for a unit to be up, down, or reloaded.

use std::collections::BTreeMap;

use fleet_core::graph::{Activity, Incarnation, Name, Obstacle, Retry, Shown, State, Waiting};
use fleet_unitfile::UnitName;

use super::super::lead::Lead;
use super::super::member::Member;
use super::Reply;
use crate::ServiceError;
use crate::native::life::{Memory, Phase};
use crate::native::outcome::Outcome;
use crate::native::words::{why_not_reloaded, why_not_started};

/// Those who wait, by unit.
#[derive(Default)]
pub(super) struct Waiters {
    all: BTreeMap<Name, OfUnit>,
}

#[derive(Default)]
pub(super) struct OfUnit {
    /// With each the run that does not count for it, because it was to end first.
    pub(super) starts: Vec<(Option<Incarnation>, Reply)>,
    /// With each the run that is to end.
    pub(super) stops: Vec<(Option<Incarnation>, Reply)>,
    pub(super) reloads: Vec<Reply>,
}

impl Waiters {
    pub(super) fn of(&mut self, unit: &Name) -> &mut OfUnit {
        self.all.entry(unit.clone()).or_default()
    }

    fn take(&mut self, unit: &Name) -> Option<OfUnit> {
        self.all.remove(unit)
    }

    /// Tells those who wait for a start that nothing will come of it.
    pub(super) fn refuse_starts(&mut self, name: &Name, unit: &UnitName) {
        let Some(waiting) = self.all.get_mut(name) else { return };
        for (_, reply) in waiting.starts.drain(..) {
            let problem = "it was stopped before its start was over".to_owned();
            answer(reply, Err(ServiceError::StartFailed { unit: unit.clone(), problem }));
        }
    }

    fn put_back(&mut self, unit: &Name, waiting: OfUnit) {
        let OfUnit { starts, stops, reloads } = &waiting;
        if !(starts.is_empty() && stops.is_empty() && reloads.is_empty()) {
            self.all.insert(unit.clone(), waiting);
        }
    }
}

impl Lead {
    /// Answers those who waited for what a unit is now.
    pub(in super::super) fn answer_waiters(&mut self, name: &Name) {
        let Some(services) = &mut self.services else { return };
        let Some(mut waiting) = services.waiters.take(name) else { return };
        let Some(entry) = services.entries.get(name) else { return };
        let (asked, mut is_told) = (entry.asked, false);
        let unit = &entry.unit;
        let refused = entry.refused.clone();
        let (state, member) = (self.system.state(name), self.members.get(name));
        let starts = std::mem::take(&mut waiting.starts);
        for (before, reply) in starts {
            let verdict = match &refused {
                Some(problem) => Some(Err(problem.clone())),
                None => verdict_of_start(state.as_ref(), member, before),
            };
            let failed = |problem| ServiceError::StartFailed { unit: unit.clone(), problem };
            match verdict {
                Some(verdict) => {
                    answer(reply, verdict.map_err(failed));
                    is_told = true;
                }
                None => waiting.starts.push((before, reply)),
            }
        }
        let stops = std::mem::take(&mut waiting.stops);
        for (run, reply) in stops {
            let failed = |problem| ServiceError::StopFailed { unit: unit.clone(), problem };
            match verdict_of_stop(state.as_ref(), run) {
                Some(verdict) => answer(reply, verdict.map_err(failed)),
                None => waiting.stops.push((run, reply)),
            }
        }
        let is_reloading =
            state.as_ref().is_some_and(State::is_reloading) || self.system.owes_reload(name);
        for reply in waiting.reloads.extract_if(.., |_| !is_reloading) {
            let problem = why_no_reload(state.as_ref(), member);
            let failed = |problem| ServiceError::ReloadFailed { unit: unit.clone(), problem };
            answer(reply, problem.map_or(Ok(()), |problem| Err(failed(problem))));
        }
        services.waiters.put_back(name, waiting);
        if is_told {
            self.note_done(name, asked);
        }
    }

    /// Answers those who waited for a unit to be up, for a moment that nobody might see otherwise.
    pub(in super::super) fn answer_up(&mut self, name: &Name, run: Incarnation) {
        let Some(services) = &mut self.services else { return };
        let Some(waiting) = services.waiters.all.get_mut(name) else { return };
        for (_, reply) in waiting.starts.extract_if(.., |(before, _)| *before != Some(run)) {
            answer(reply, Ok(()));
        }
    }
}

/// What became of a start; nothing as long as that is open.
fn verdict_of_start(
    state: Option<&State>,
    member: Option<&Member>,
    before: Option<Incarnation>,
) -> Option<Result<(), String>> {
    let state = state?;
    if let Shown::Waiting(Waiting::Doomed(obstacles)) = &state.what {
        return Some(Err(obstacles.first().map_or_else(String::new, obstacle)));
    }
    if before.is_some() && state.incarnation == before {
        return None;
    }
    let memory = member.map(|member| &*member.memory);
    let problem = member.and_then(|member| member.problem.as_deref());
    let why = || memory.map_or_else(String::new, |memory| why_not_started(memory, problem));
    let good = memory.is_none_or(|memory| memory.outcome == Some(Outcome::Success));
    match &state.what {
        Shown::Active(_) => Some(Ok(())),
        Shown::Ended(_) if good => Some(Ok(())),
        Shown::Failed { stuck: true, .. } => {
            Some(Err("processes of an earlier run of it are left, and do not end".to_owned()))
        }
        Shown::Failed { retry: Retry::GaveUp, .. } | Shown::Ended(Retry::GaveUp) => {
            Some(Err("it was started too often in a short time".to_owned()))
        }
        Shown::Failed { .. } | Shown::Ended(_) => Some(Err(why())),
        Shown::Masked => Some(Err("it was stopped together with what it needs".to_owned())),
        _ => None,
    }
}

fn obstacle((target, why): &(fleet_core::graph::Target, Obstacle)) -> String {
    let why = match why {
        Obstacle::Failed => "has failed",
        Obstacle::Ended => "is not up, as it has ended",
        Obstacle::Doomed => "cannot be started either",
        Obstacle::Masked => "was stopped",
        Obstacle::Missing => "cannot be run here",
    };
    format!("it needs {target}, which {why}")
}

fn verdict_of_stop(state: Option<&State>, run: Option<Incarnation>) -> Option<Result<(), String>> {
    let Some(state) = state.filter(|state| state.incarnation == run) else { return Some(Ok(())) };
    match &state.what {
        Shown::Failed { stuck: true, .. } => {
            Some(Err("processes of it are left that do not even end by SIGKILL".to_owned()))
        }
        Shown::Starting | Shown::Active(_) | Shown::Stopping(_) => None,
        _ => Some(Ok(())),
    }
}

fn why_no_reload(state: Option<&State>, member: Option<&Member>) -> Option<String> {
    let is_up = state.is_some_and(|state| matches!(state.what, Shown::Active(_)));
    if is_up && !state.is_some_and(|state| state.reload_failed) {
        return None;
    }
    let ended = Memory { phase: Phase::Dead, ..Memory::default() };
    let memory = member.map(|member| &*member.memory).filter(|_| is_up);
    Some(why_not_reloaded(memory.unwrap_or(&ended)))
}

/// Whether a unit is neither up nor about to be, because its last run has ended so.
pub(super) fn is_over(what: &Shown) -> bool {
    matches!(what, Shown::Failed { .. } | Shown::Ended(_))
}

/// Whether a unit would be tried again, but was too often.
pub(in super::super) fn gave_up(what: &Shown) -> bool {
    let retry = Retry::GaveUp;
    matches!(what, Shown::Failed { retry: it, .. } | Shown::Ended(it) if *it == retry)
}

/// Whether something of a unit is there to be stopped.
pub(super) fn is_busy(what: &Shown) -> bool {
    matches!(what, Shown::Starting | Shown::Active(_) | Shown::Stopping(_))
}

/// Whether processes of a unit may be there.
pub(super) fn is_there(what: &Shown) -> bool {
    is_busy(what) || matches!(what, Shown::Failed { stuck: true, .. })
}

/// Answers a request; whoever asked may have gone away, which changes nothing.
pub(super) fn answer(reply: Reply, result: super::Done) {
    drop(reply.send(result));
}

trait Reloading {
    fn is_reloading(&self) -> bool;
}

impl Reloading for State {
    fn is_reloading(&self) -> bool {
        self.what == Shown::Active(Activity::Reloading)
    }
}

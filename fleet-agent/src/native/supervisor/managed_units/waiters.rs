//! Callers that wait until a unit has started, stopped or reloaded.

use std::collections::BTreeMap;

use fleet_core::graph::{
    Activity, BlockedBy, DerivedState, Incarnation, Name, Retry, StatusReport, WaitReason,
};
use fleet_unitfile::UnitName;

use super::super::command::{CallResult, Reply, answer};
use super::super::core::Core;
use super::super::units::SupervisedUnit;
use super::status::LoadedUnit;
use crate::ServiceError;
use crate::native::run::machine::state::{
    RunOutcome, RunState, ServicePhase, reload_failure_reason, start_failure_reason,
};

/// Waiting callers, by unit.
#[derive(Default)]
pub(super) struct Waiters {
    all: BTreeMap<Name, UnitWaiters>,
}

#[derive(Default)]
pub(super) struct UnitWaiters {
    /// Callers waiting for a start, each with the run that must end first.
    pub(super) starts: Vec<(Option<Incarnation>, Reply<CallResult>)>,
    /// Callers waiting for a stop, each with the run that must end.
    pub(super) stops: Vec<(Option<Incarnation>, Reply<CallResult>)>,
    pub(super) reloads: Vec<Reply<CallResult>>,
}

impl Waiters {
    pub(super) fn of(&mut self, unit: &Name) -> &mut UnitWaiters {
        self.all.entry(unit.clone()).or_default()
    }

    /// Handles the stop of a unit: callers that still wait for the start of this unit get an error.
    pub(super) fn refuse_starts(&mut self, name: &Name, unit: &UnitName) {
        let Some(waiting) = self.all.get_mut(name) else { return };
        for (_, reply) in waiting.starts.drain(..) {
            let problem = "it was stopped before it had started".to_owned();
            answer(reply, Err(ServiceError::StartFailed { unit: unit.clone(), problem }));
        }
    }

    /// Answers the callers for which the current state of a unit is decisive. Returns whether a
    /// start was among them.
    pub(super) fn answer(&mut self, name: &Name, loaded: Option<&LoadedUnit>, core: &Core) -> bool {
        let Some(mut waiting) = self.all.remove(name) else { return false };
        let Some(LoadedUnit { unit, refused, .. }) = loaded else { return false };
        let mut is_start_answered = false;
        let (state, entry) = (core.planner.status(name), core.units.get(name));
        let starts = std::mem::take(&mut waiting.starts);
        for (before, reply) in starts {
            let result = match refused {
                Some(problem) => Some(Err(problem.clone())),
                None => start_result(state.as_ref(), entry, before),
            };
            let failed = |problem| ServiceError::StartFailed { unit: unit.clone(), problem };
            match result {
                Some(result) => {
                    answer(reply, result.map_err(failed));
                    is_start_answered = true;
                }
                None => waiting.starts.push((before, reply)),
            }
        }
        let stops = std::mem::take(&mut waiting.stops);
        for (run, reply) in stops {
            let failed = |problem| ServiceError::StopFailed { unit: unit.clone(), problem };
            match stop_result(state.as_ref(), run) {
                Some(result) => answer(reply, result.map_err(failed)),
                None => waiting.stops.push((run, reply)),
            }
        }
        let is_reloading = state
            .as_ref()
            .is_some_and(|state| state.state == DerivedState::Active(Activity::Reloading))
            || core.planner.has_pending_reload(name);
        for reply in waiting.reloads.extract_if(.., |_| !is_reloading) {
            let problem = reload_failure(state.as_ref(), entry);
            let failed = |problem| ServiceError::ReloadFailed { unit: unit.clone(), problem };
            answer(reply, problem.map_or(Ok(()), |problem| Err(failed(problem))));
        }
        if !waiting.is_empty() {
            self.all.insert(name.clone(), waiting);
        }
        is_start_answered
    }

    /// Reports success to the callers that wait for a start, because `run` is up. Callers for which
    /// `run` must end first continue to wait.
    pub(super) fn answer_up(&mut self, name: &Name, run: Incarnation) {
        let Some(waiting) = self.all.get_mut(name) else { return };
        for (_, reply) in waiting.starts.extract_if(.., |(before, _)| *before != Some(run)) {
            answer(reply, Ok(()));
        }
    }
}

impl UnitWaiters {
    fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.stops.is_empty() && self.reloads.is_empty()
    }
}

/// Returns the result of a start; `None` while it is undecided.
pub(super) fn start_result(
    state: Option<&StatusReport>,
    entry: Option<&SupervisedUnit>,
    before: Option<Incarnation>,
) -> Option<Result<(), String>> {
    let state = state?;
    if let DerivedState::Waiting(WaitReason::Blocked(obstacles)) = &state.state {
        return Some(Err(obstacles.first().map_or_else(String::new, describe_blocker)));
    }
    if before.is_some() && state.incarnation == before {
        return None;
    }
    let run_state = entry.map(|entry| &*entry.run_state);
    let problem = entry.and_then(|entry| entry.problem.as_deref());
    let why =
        || run_state.map_or_else(String::new, |run_state| start_failure_reason(run_state, problem));
    let good = run_state.is_none_or(|run_state| run_state.outcome == Some(RunOutcome::Success));
    match &state.state {
        DerivedState::Active(_) => Some(Ok(())),
        DerivedState::Completed(_) if good => Some(Ok(())),
        DerivedState::Failed { stuck: true, .. } => {
            Some(Err("processes of an earlier run are left and do not exit".to_owned()))
        }
        DerivedState::Failed { retry: Retry::GaveUp, .. }
        | DerivedState::Completed(Retry::GaveUp) => {
            Some(Err("it hit its start limit: started too often in a short time".to_owned()))
        }
        DerivedState::Failed { .. } | DerivedState::Completed(_) => Some(Err(why())),
        DerivedState::Masked => {
            Some(Err("it was stopped together with a unit that it requires".to_owned()))
        }
        _ => None,
    }
}

fn describe_blocker((target, why): &(fleet_core::graph::Target, BlockedBy)) -> String {
    let why = match why {
        BlockedBy::Failed => "has failed",
        BlockedBy::Completed => "has completed and is not active",
        BlockedBy::Blocked => "cannot start either",
        BlockedBy::Masked => "was stopped",
        BlockedBy::Inactive => "is not active",
        BlockedBy::Missing => "is not available here",
    };
    format!("it needs {target}, which {why}")
}

/// Returns the result of a stop; `None` while it is undecided.
pub(super) fn stop_result(
    state: Option<&StatusReport>,
    run: Option<Incarnation>,
) -> Option<Result<(), String>> {
    let Some(state) = state.filter(|state| state.incarnation == run) else { return Some(Ok(())) };
    match &state.state {
        DerivedState::Failed { stuck: true, .. } => {
            Some(Err("some of its processes survived SIGKILL".to_owned()))
        }
        DerivedState::Starting | DerivedState::Active(_) | DerivedState::Stopping(_) => None,
        _ => Some(Ok(())),
    }
}

fn reload_failure(state: Option<&StatusReport>, entry: Option<&SupervisedUnit>) -> Option<String> {
    let is_up = state.is_some_and(|state| matches!(state.state, DerivedState::Active(_)));
    if is_up && !state.is_some_and(|state| state.reload_failed) {
        return None;
    }
    let ended = RunState { phase: ServicePhase::Dead, ..RunState::default() };
    let run_state = entry.map(|entry| &*entry.run_state).filter(|_| is_up);
    Some(reload_failure_reason(run_state.unwrap_or(&ended)))
}

/// Returns whether the last run of a unit has failed or completed, and no other run has started.
pub(super) fn is_over(what: &DerivedState) -> bool {
    matches!(what, DerivedState::Failed { .. } | DerivedState::Completed(_))
}

/// Returns whether a unit is no longer retried because it has hit its start limit.
pub(in super::super) fn hit_start_limit(what: &DerivedState) -> bool {
    use DerivedState::{Completed, Failed};
    let retry = Retry::GaveUp;
    matches!(what, Failed { retry: it, .. } | Completed(it) if *it == retry)
}

/// Returns whether a unit is starting, active or stopping.
pub(super) fn is_busy(what: &DerivedState) -> bool {
    matches!(what, DerivedState::Starting | DerivedState::Active(_) | DerivedState::Stopping(_))
}

/// Returns whether a unit may have processes.
pub(super) fn may_have_processes(what: &DerivedState) -> bool {
    is_busy(what) || matches!(what, DerivedState::Failed { stuck: true, .. })
}

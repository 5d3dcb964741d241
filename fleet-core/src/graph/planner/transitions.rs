//! The transitions of units between phases, and the actions that they cause.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::event::{ActionKind, Incarnation, ObservedUnit, StartRateLimit, UnitAction};
use super::need::RequestedTargets;
use super::node::Node;
use super::nodes::Nodes;
use super::phase::{Activity, FailureCause, Phase, StopOutcome, StopReason};
use crate::Timestamp;
use crate::graph::build::{Graph, number};
use crate::graph::model::{Exit, InitUnit, Name, ServiceType};

/// Time within which a killed unit has to exit. After this time, the remaining processes count as
/// unkillable, and nothing waits for them.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// The units with their phases, and the starts and actions in progress. A transition changes the
/// phase of one unit, and may add an action.
#[derive(Debug, Clone, Default)]
pub(super) struct Units {
    pub(super) nodes: Nodes,
    pub(super) max_starting: Option<NonZeroU32>,
    /// Number of starting units, without those exempt from `max_starting`.
    pub(super) starting: u32,
    pub(super) last_incarnation: Incarnation,
    /// Number of ignored events.
    pub(super) stale_events: u64,
    /// Actions caused by events, returned with the next plan.
    pub(super) pending_actions: Vec<UnitAction>,
}

impl Units {
    /// Replaces the graph, and rebuilds all nodes from the observed units.
    pub(super) fn rebuild(
        &mut self,
        graph: Graph,
        observed: BTreeMap<Name, ObservedUnit>,
        requested: &RequestedTargets,
        unlimited_starts: &BTreeSet<Name>,
    ) {
        self.nodes.rebuild(graph, observed, requested, unlimited_starts);
        self.starting = number(self.nodes.iter().filter(|node| is_starting(node)).count());
    }

    /// Replaces the graph, and keeps the observed units.
    pub(super) fn take_graph(
        &mut self,
        graph: Graph,
        requested: &RequestedTargets,
        unlimited_starts: &BTreeSet<Name>,
    ) {
        let observed = self.nodes.take_observed();
        self.rebuild(graph, observed, requested, unlimited_starts);
    }

    /// Returns whether no other unit may start, because `max_starting` units are starting.
    pub(super) fn is_full(&self) -> bool {
        self.max_starting.is_some_and(|most| self.starting >= most.get())
    }

    /// Changes the phase of a unit and marks the unit for evaluation.
    fn enter(&mut self, at: u32, phase: Phase, now: Timestamp) {
        let node = self.nodes.node_mut(at);
        let takes_room = !node.unlimited_start;
        let starting = |phase| u32::from(takes_room && phase == Phase::Starting);
        let before = starting(node.observed.phase);
        node.observed.phase = phase;
        node.observed.since = now;
        node.observed.deadline = None;
        self.starting = self.starting + starting(phase) - before;
        self.nodes.touch(at);
    }

    /// Starts a unit.
    pub(super) fn start(&mut self, at: u32, now: Timestamp) -> Option<UnitAction> {
        let unit = Arc::clone(&self.nodes.node(at).unit);
        self.nodes.node_mut(at).definition_changed = false;
        self.nodes.node_mut(at).observed.definition = Some(Arc::clone(&unit));
        if unit.is_virtual() {
            self.nodes.node_mut(at).observed.incarnation = None;
            self.activate(at, Activity::Running, now);
            return None;
        }
        self.enter(at, Phase::Starting, now);
        self.last_incarnation = Incarnation(self.last_incarnation.0 + 1);
        let incarnation = self.last_incarnation;
        let node = self.nodes.node_mut(at);
        node.count_start(now);
        node.observed.incarnation = Some(incarnation);
        node.observed.processes = true;
        node.observed.deadline = unit.timeouts.start.map(|most| deadline_after(now, most));
        Some(UnitAction {
            unit: unit.name.clone(),
            incarnation,
            kind: ActionKind::Start,
            definition: unit,
        })
    }

    /// Makes a unit active.
    pub(super) fn activate(&mut self, at: u32, activity: Activity, now: Timestamp) {
        self.enter(at, Phase::Active(activity), now);
        self.nodes.node_mut(at).take_over_definition();
        let observed = &mut self.nodes.node_mut(at).observed;
        observed.active_since = Some(observed.active_since.unwrap_or(now));
        observed.exited |= activity == Activity::Exited;
        observed.outcome = None;
        observed.cause = None;
        observed.retry_at = None;
        let definition = observed.definition.as_deref();
        let runtime = definition.and_then(|definition| definition.run.runtime_max);
        let runtime = runtime.filter(|_| !observed.exited);
        let over = observed.active_since.zip(runtime).map(|(since, most)| since.after(most));
        let reload = definition.and_then(|definition| definition.timeouts.reload);
        let reload = reload.filter(|_| activity == Activity::Reloading);
        observed.deadline =
            over.into_iter().chain(reload.map(|most| deadline_after(now, most))).min();
    }

    /// Stops a unit that has to stop.
    pub(super) fn stop(&mut self, at: u32, now: Timestamp) -> Option<UnitAction> {
        let node = self.nodes.node(at);
        if !node.observed.processes && needs_no_stop(&node.observed) {
            self.nodes.node_mut(at).clear_attempts_if_stable(now);
            self.enter_inactive(at, now);
            return None;
        }
        let reason = self.nodes.stop_reason(at);
        Some(self.begin_stop(at, StopOutcome::Inactive(reason.clone()), reason, now))
    }

    /// Makes a unit fail and stops its remaining processes.
    pub(super) fn fail(&mut self, at: u32, cause: FailureCause, now: Timestamp) {
        let action =
            self.begin_stop(at, StopOutcome::Failed(cause), StopReason::Failed(cause), now);
        self.pending_actions.push(action);
    }

    /// Ends a unit that succeeded and stops its remaining processes.
    pub(super) fn finish(&mut self, at: u32, outcome: StopOutcome, now: Timestamp) {
        let skipped = outcome == StopOutcome::Skipped;
        let reason = if skipped { StopReason::Skipped } else { StopReason::Completed };
        let action = self.begin_stop(at, outcome, reason, now);
        self.pending_actions.push(action);
    }

    /// Handles a unit's announcement that it stops.
    pub(super) fn begin_self_stop(&mut self, at: u32, now: Timestamp) {
        self.enter_stopping(at, StopOutcome::SelfInitiated, now);
    }

    fn begin_stop(
        &mut self,
        at: u32,
        outcome: StopOutcome,
        reason: StopReason,
        now: Timestamp,
    ) -> UnitAction {
        let was_active = self.nodes.node(at).observed.phase.is_active();
        self.enter_stopping(at, outcome, now);
        self.action(at, ActionKind::Stop { reason, was_active })
    }

    fn enter_stopping(&mut self, at: u32, outcome: StopOutcome, now: Timestamp) {
        self.nodes.node_mut(at).clear_attempts_if_stable(now);
        self.enter(at, Phase::Stopping, now);
        let observed = &mut self.nodes.node_mut(at).observed;
        observed.outcome = Some(outcome);
        (observed.active_since, observed.exited) = (None, false);
        // Stop commands run even if no process was left.
        observed.processes = true;
        observed.killed = false;
        observed.reload_requested = false;
        let most = observed.definition.as_ref().and_then(|definition| definition.timeouts.stop);
        observed.deadline = most.map(|most| deadline_after(now, most));
    }

    /// Ends a reload and returns the unit to its previous activity.
    pub(super) fn end_reload(&mut self, at: u32, well: bool, now: Timestamp) {
        let exited = self.nodes.node(at).observed.exited;
        self.activate(at, if exited { Activity::Exited } else { Activity::Running }, now);
        self.nodes.node_mut(at).observed.reload_failed = !well;
    }

    /// Reloads a unit.
    pub(super) fn begin_reload(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.nodes.node_mut(at).observed.reload_requested = false;
        self.activate(at, Activity::Reloading, now);
        self.action(at, ActionKind::Reload)
    }

    /// Kills a unit that did not stop in time.
    pub(super) fn kill(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.mark_killed(at, now);
        self.action(at, ActionKind::Kill)
    }

    /// Records that either the planner or the supervisor has killed a unit, because the unit did
    /// not stop in time.
    pub(super) fn mark_killed(&mut self, at: u32, now: Timestamp) {
        let observed = &mut self.nodes.node_mut(at).observed;
        observed.killed = true;
        observed.deadline = Some(now.after(KILL_GRACE));
        if !matches!(observed.outcome, Some(StopOutcome::Failed(_))) {
            observed.outcome = Some(StopOutcome::Failed(FailureCause::StopTimeout));
        }
        self.nodes.touch(at);
    }

    /// Handles the exit of a unit's last process.
    pub(super) fn on_processes_gone(&mut self, at: u32, now: Timestamp) {
        self.nodes.node_mut(at).observed.processes = false;
        match self.nodes.node_mut(at).observed.outcome.take() {
            Some(StopOutcome::Inactive(_)) | None => self.enter_inactive(at, now),
            Some(StopOutcome::Failed(cause)) => self.enter_failed(at, cause, now),
            Some(StopOutcome::SelfInitiated) => {
                self.enter_failed(at, FailureCause::Exit(Exit::Unknown), now);
            }
            Some(StopOutcome::Completed(exit)) => {
                self.enter_completed(at, now, |it| it.schedule(None, exit, now));
            }
            Some(StopOutcome::Skipped) => self.enter_completed(at, now, |_| {}),
        }
    }

    /// Sets a unit to `Completed`. `follow` schedules the restart that the restart policy demands.
    /// If a restart was requested during the run, it overrides the policy.
    fn enter_completed(&mut self, at: u32, now: Timestamp, follow: impl FnOnce(&mut Node)) {
        let restarts = self.nodes.node(at).restarts_after_stop();
        self.enter_rest(at, Phase::Completed, now);
        follow(self.nodes.node_mut(at));
        if restarts {
            self.retry_immediately(at, now);
        }
    }

    /// Sets a unit to `Failed`, because its processes have exited or cannot be killed.
    pub(super) fn enter_failed(&mut self, at: u32, cause: FailureCause, now: Timestamp) {
        let restarts = self.nodes.node(at).restarts_after_stop();
        self.nodes.node_mut(at).clear_attempts_if_stable(now);
        let exit = match cause {
            FailureCause::Exit(exit) => Some(exit),
            _ => self.nodes.node(at).observed.exit,
        };
        self.enter_rest(at, Phase::Failed, now);
        self.nodes.node_mut(at).observed.cause = Some(cause);
        self.nodes.node_mut(at).schedule(Some(cause), exit, now);
        if restarts {
            self.retry_immediately(at, now);
        }
    }

    /// Restarts a failed or completed unit regardless of its result and limits. If the unit still
    /// has processes, the restart follows once they have exited. A unit with lost processes stays
    /// failed, because no event would report the exit of these processes.
    pub(super) fn retry_immediately(&mut self, at: u32, now: Timestamp) {
        let observed = &mut self.nodes.node_mut(at).observed;
        if observed.processes && observed.cause == Some(FailureCause::Lost) {
            return;
        }
        observed.clear_attempts();
        observed.starts = StartRateLimit::default();
        (observed.retry_at, observed.gave_up) = (Some(now), false);
        self.nodes.touch(at);
    }

    /// Clears the result of a unit after the requested targets have changed, so that an old failure
    /// does not prevent the next start:
    ///
    /// - A stopping unit finishes its stop. It then starts again if it is needed, even if the stop
    ///   fails.
    /// - A failed unit that still has processes is restarted once they have exited, if it is
    ///   needed.
    /// - Any other unit becomes inactive at once.
    pub(super) fn expire_result(&mut self, at: u32, now: Timestamp) {
        let observed = &mut self.nodes.node_mut(at).observed;
        match observed.phase {
            Phase::Stopping => observed.restart_requested = true,
            Phase::Failed if observed.processes => self.retry_immediately(at, now),
            _ => self.clear_result(at, now),
        }
    }

    /// Makes a unit inactive.
    pub(super) fn enter_inactive(&mut self, at: u32, now: Timestamp) {
        self.enter_rest(at, Phase::Inactive, now);
        let observed = &mut self.nodes.node_mut(at).observed;
        observed.retry_at = None;
        observed.gave_up = false;
    }

    /// Clears the result of a unit's last run.
    pub(super) fn clear_result(&mut self, at: u32, now: Timestamp) {
        if self.nodes.node(at).observed.phase != Phase::Inactive {
            self.enter_inactive(at, now);
        }
        let observed = &mut self.nodes.node_mut(at).observed;
        observed.clear_attempts();
        observed.cause = None;
        observed.starts = StartRateLimit::default();
        self.nodes.touch(at);
    }

    fn enter_rest(&mut self, at: u32, phase: Phase, now: Timestamp) {
        self.enter(at, phase, now);
        let node = self.nodes.node_mut(at);
        node.definition_changed = false;
        let observed = &mut node.observed;
        (observed.outcome, observed.exit) = (None, None);
        observed.killed = false;
        (observed.active_since, observed.exited) = (None, false);
        observed.restart_requested = false;
        observed.reload_requested = false;
        observed.reload_failed = false;
        if !observed.processes {
            observed.definition = None;
        }
    }

    /// Returns an action for the current incarnation of a unit.
    fn action(&self, at: u32, kind: ActionKind) -> UnitAction {
        let ObservedUnit { incarnation, definition, .. } = &self.nodes.node(at).observed;
        let definition = definition.as_ref().unwrap_or(&self.nodes.node(at).unit);
        UnitAction {
            unit: definition.name.clone(),
            incarnation: incarnation.unwrap_or_default(),
            kind,
            definition: Arc::clone(definition),
        }
    }
}

fn is_starting(node: &Node) -> bool {
    node.observed.phase == Phase::Starting && !node.unlimited_start
}

/// Returns the end of a timeout that begins at `now`. A timeout of zero counts as one millisecond,
/// so that a quick unit can still succeed.
fn deadline_after(now: Timestamp, most: Duration) -> Timestamp {
    now.after(most.max(Duration::from_millis(1)))
}

/// Returns whether a unit without processes needs no stop commands.
fn needs_no_stop(observed: &ObservedUnit) -> bool {
    let runs_nothing = |unit: &InitUnit| unit.run.stop.is_empty() && unit.run.stop_post.is_empty();
    let is_virtual = observed.definition.as_deref().is_some_and(InitUnit::is_virtual);
    let exited = observed.phase == Phase::Active(Activity::Exited);
    is_virtual || (exited && observed.definition.as_deref().is_none_or(runs_nothing))
}

impl InitUnit {
    /// Returns whether the unit has a main process. The exit of a main process determines the state
    /// of its unit.
    pub(super) fn has_main(&self) -> bool {
        !matches!(self.kind, ServiceType::BackgroundScripted | ServiceType::Virtual)
    }
}

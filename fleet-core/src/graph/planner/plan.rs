//! Actions that follow from the state, and the transitions that they cause.

use std::sync::Arc;
use std::time::Duration;

use super::InitState;
use super::event::{ActionKind, Incarnation, ObservedUnit, StartRateLimit, UnitAction};
use super::node::Node;
use super::phase::{Activity, FailureCause, Phase, StopOutcome, StopReason};
use crate::Timestamp;
use crate::graph::model::{EdgeKind, Exit, InitUnit, ServiceType, Target};

impl InitState {
    /// Returns the actions that are due and records them as done. The caller has to carry out the
    /// actions and report their results as events. Kills come first, then stops, reloads and
    /// starts. Of the starts, the most urgent come first: those with the longest chain of waiting
    /// dependents.
    pub fn next_actions(&mut self, now: Timestamp) -> Vec<UnitAction> {
        let mut actions = std::mem::take(&mut self.pending_actions);
        loop {
            let retries = self.expire(now, &mut actions);
            self.settle(now, &mut actions);
            // Units that wait for a failed unit go on before it restarts, even without a delay.
            // Otherwise they would wait forever for a unit that keeps failing.
            if retries.is_empty() {
                break;
            }
            retries.into_iter().for_each(|at| self.retry(at, now));
        }
        actions.sort_by(|a, b| rank(a).cmp(&rank(b)));
        actions
    }

    /// Returns whether no action is pending and no unit is starting or stopping.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let queues = &self.queues;
        let in_flux = |phase| matches!(phase, Phase::Starting | Phase::Stopping);
        self.pending_actions.is_empty()
            && queues.stops.is_empty()
            && queues.unlimited_starts.is_empty()
            && queues.starts.is_empty()
            && !self.nodes.iter().any(|node| in_flux(node.observed.phase))
    }

    /// Takes all steps to which `max_starting` does not apply (such as stops and reloads). Then
    /// starts units while fewer than `max_starting` units are starting.
    ///
    /// All stops come before these starts. Otherwise a start could make a lost dependency active
    /// again, and the units that have to stop because of the loss would keep running. The order
    /// among stops, and among starts, does not matter.
    fn settle(&mut self, now: Timestamp, actions: &mut Vec<UnitAction>) {
        self.propagate();
        while self.step(now, actions) {
            self.propagate();
        }
        while let Some(&(_, at)) = self.queues.starts.first() {
            if self.max_starting.is_some_and(|most| self.starting >= most.get()) {
                break;
            }
            actions.extend(self.start(at, now));
            self.propagate();
        }
    }

    fn step(&mut self, now: Timestamp, actions: &mut Vec<UnitAction>) -> bool {
        if let Some(&at) = self.queues.resets.first() {
            self.clear_result(at, now);
        } else if let Some(&at) = self.queues.stops.first() {
            actions.extend(self.stop(at, now));
        } else if let Some(&at) = self.queues.reloads.first() {
            actions.push(self.begin_reload(at, now));
        } else if let Some(&at) = self.queues.unlimited_starts.first() {
            actions.extend(self.start(at, now));
        } else {
            return false;
        }
        true
    }

    /// Handles expired deadlines, and returns the units that are to be restarted.
    fn expire(&mut self, now: Timestamp, actions: &mut Vec<UnitAction>) -> Vec<u32> {
        self.propagate();
        let due = |&&(timer, _): &&(Timestamp, u32)| timer <= now;
        let due: Vec<u32> = self.queues.timers.iter().take_while(due).map(|&(_, at)| at).collect();
        let (retries, late): (Vec<u32>, Vec<u32>) = due.into_iter().partition(|&at| {
            matches!(self.node(at).observed.phase, Phase::Failed | Phase::Completed)
        });
        for at in late {
            self.escalate(at, now, actions);
        }
        actions.append(&mut self.pending_actions);
        retries
    }

    fn escalate(&mut self, at: u32, now: Timestamp, actions: &mut Vec<UnitAction>) {
        let observed = &self.node(at).observed;
        match observed.phase {
            Phase::Starting => self.fail(at, FailureCause::StartTimeout, now),
            Phase::Active(_) if self.exceeds_runtime(at, now) => {
                self.fail(at, FailureCause::RuntimeMax, now);
            }
            Phase::Active(_) => self.end_reload(at, false, now),
            Phase::Stopping if observed.killed => {
                self.enter_failed(at, FailureCause::Unkillable, now);
            }
            Phase::Stopping => actions.push(self.kill(at, now)),
            Phase::Inactive | Phase::Failed | Phase::Completed => {}
        }
    }

    fn exceeds_runtime(&self, at: u32, now: Timestamp) -> bool {
        let observed = &self.node(at).observed;
        let most = observed.definition.as_ref().and_then(|definition| definition.run.runtime_max);
        let most = most.filter(|_| !observed.exited);
        observed.active_since.zip(most).is_some_and(|(since, most)| since.after(most) <= now)
    }

    fn retry(&mut self, at: u32, now: Timestamp) {
        if self.node(at).exceeds_start_limit(now) {
            let observed = &mut self.node_mut(at).observed;
            (observed.retry_at, observed.gave_up) = (None, true);
            self.touch(at);
        } else {
            self.enter_inactive(at, now);
        }
    }
}

/// Returns the sort key of an action: first the kind, then the name. Starts have no name in the
/// key, so they keep the order in which they were decided.
fn rank(action: &UnitAction) -> (u8, Option<&str>) {
    let name = Some(action.unit.as_str());
    match action.kind {
        ActionKind::Kill => (0, name),
        ActionKind::Stop { .. } => (1, name),
        ActionKind::Reload => (2, name),
        ActionKind::Start => (3, None),
    }
}

/// Time within which a killed unit has to exit. After this time, the remaining processes count as
/// unkillable, and nothing waits for them.
const KILL_GRACE: Duration = Duration::from_secs(10);

impl InitState {
    /// Changes the phase of a unit and marks the unit for evaluation.
    fn enter(&mut self, at: u32, phase: Phase, now: Timestamp) {
        let node = self.node_mut(at);
        let takes_room = !node.unlimited_start;
        let starting = |phase| u32::from(takes_room && phase == Phase::Starting);
        let before = starting(node.observed.phase);
        node.observed.phase = phase;
        node.observed.since = now;
        node.observed.deadline = None;
        self.starting = self.starting + starting(phase) - before;
        self.touch(at);
    }

    /// Starts a unit.
    pub(super) fn start(&mut self, at: u32, now: Timestamp) -> Option<UnitAction> {
        let unit = Arc::clone(&self.node(at).unit);
        self.node_mut(at).definition_changed = false;
        self.node_mut(at).observed.definition = Some(Arc::clone(&unit));
        if unit.is_virtual() {
            self.node_mut(at).observed.incarnation = None;
            self.activate(at, Activity::Running, now);
            return None;
        }
        self.enter(at, Phase::Starting, now);
        self.last_incarnation = Incarnation(self.last_incarnation.0 + 1);
        let incarnation = self.last_incarnation;
        let node = self.node_mut(at);
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
        self.node_mut(at).take_over_definition();
        let observed = &mut self.node_mut(at).observed;
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
        let node = self.node(at);
        if !node.observed.processes && needs_no_stop(&node.observed) {
            self.node_mut(at).clear_attempts_if_stable(now);
            self.enter_inactive(at, now);
            return None;
        }
        let reason = self.stop_reason(at);
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
        let was_active = self.node(at).observed.phase.is_active();
        self.enter_stopping(at, outcome, now);
        self.action(at, ActionKind::Stop { reason, was_active })
    }

    fn enter_stopping(&mut self, at: u32, outcome: StopOutcome, now: Timestamp) {
        self.node_mut(at).clear_attempts_if_stable(now);
        self.enter(at, Phase::Stopping, now);
        let observed = &mut self.node_mut(at).observed;
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
        let exited = self.node(at).observed.exited;
        self.activate(at, if exited { Activity::Exited } else { Activity::Running }, now);
        self.node_mut(at).observed.reload_failed = !well;
    }

    /// Reloads a unit.
    pub(super) fn begin_reload(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.node_mut(at).observed.reload_requested = false;
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
        let observed = &mut self.node_mut(at).observed;
        observed.killed = true;
        observed.deadline = Some(now.after(KILL_GRACE));
        if !matches!(observed.outcome, Some(StopOutcome::Failed(_))) {
            observed.outcome = Some(StopOutcome::Failed(FailureCause::StopTimeout));
        }
        self.touch(at);
    }

    /// Handles the exit of a unit's last process.
    pub(super) fn on_processes_gone(&mut self, at: u32, now: Timestamp) {
        self.node_mut(at).observed.processes = false;
        match self.node_mut(at).observed.outcome.take() {
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
        let restarts = self.node(at).restarts_after_stop();
        self.enter_rest(at, Phase::Completed, now);
        follow(self.node_mut(at));
        if restarts {
            self.retry_immediately(at, now);
        }
    }

    /// Sets a unit to `Failed`, because its processes have exited or cannot be killed.
    pub(super) fn enter_failed(&mut self, at: u32, cause: FailureCause, now: Timestamp) {
        let restarts = self.node(at).restarts_after_stop();
        self.node_mut(at).clear_attempts_if_stable(now);
        let exit = match cause {
            FailureCause::Exit(exit) => Some(exit),
            _ => self.node(at).observed.exit,
        };
        self.enter_rest(at, Phase::Failed, now);
        self.node_mut(at).observed.cause = Some(cause);
        self.node_mut(at).schedule(Some(cause), exit, now);
        if restarts {
            self.retry_immediately(at, now);
        }
    }

    /// Restarts a failed or completed unit regardless of its result and limits. If the unit still
    /// has processes, the restart follows once they have exited. A unit with lost processes stays
    /// failed, because no event would report the exit of these processes.
    pub(super) fn retry_immediately(&mut self, at: u32, now: Timestamp) {
        let observed = &mut self.node_mut(at).observed;
        if observed.processes && observed.cause == Some(FailureCause::Lost) {
            return;
        }
        observed.clear_attempts();
        observed.starts = StartRateLimit::default();
        (observed.retry_at, observed.gave_up) = (Some(now), false);
        self.touch(at);
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
        let observed = &mut self.node_mut(at).observed;
        match observed.phase {
            Phase::Stopping => observed.restart_requested = true,
            Phase::Failed if observed.processes => self.retry_immediately(at, now),
            _ => self.clear_result(at, now),
        }
    }

    /// Makes a unit inactive.
    pub(super) fn enter_inactive(&mut self, at: u32, now: Timestamp) {
        self.enter_rest(at, Phase::Inactive, now);
        let observed = &mut self.node_mut(at).observed;
        observed.retry_at = None;
        observed.gave_up = false;
    }

    /// Clears the result of a unit's last run.
    pub(super) fn clear_result(&mut self, at: u32, now: Timestamp) {
        if self.node(at).observed.phase != Phase::Inactive {
            self.enter_inactive(at, now);
        }
        let observed = &mut self.node_mut(at).observed;
        observed.clear_attempts();
        observed.cause = None;
        observed.starts = StartRateLimit::default();
        self.touch(at);
    }

    fn enter_rest(&mut self, at: u32, phase: Phase, now: Timestamp) {
        self.enter(at, phase, now);
        let node = self.node_mut(at);
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
        let ObservedUnit { incarnation, definition, .. } = &self.node(at).observed;
        let definition = definition.as_ref().unwrap_or(&self.node(at).unit);
        UnitAction {
            unit: definition.name.clone(),
            incarnation: incarnation.unwrap_or_default(),
            kind,
            definition: Arc::clone(definition),
        }
    }

    pub(super) fn stop_reason(&self, at: u32) -> StopReason {
        let node = self.node(at);
        if !node.needed {
            return if node.masked { StopReason::Masked } else { StopReason::Unneeded };
        }
        if node.observed.restart_requested {
            return StopReason::RestartRequested;
        }
        if node.definition_changed {
            return StopReason::DefinitionChanged;
        }
        let on = node.unit.edges.iter().filter(|(kind, _)| *kind == EdgeKind::DependsOn);
        let lost = on.map(|(_, target)| target).filter(|target| !self.stays_active(target));
        lost.min().cloned().map_or(StopReason::DefinitionChanged, StopReason::DependencyLost)
    }

    fn stays_active(&self, target: &Target) -> bool {
        self.provider(target).is_some_and(|at| self.node(at).view.stays_active())
    }
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

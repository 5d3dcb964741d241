//! The steps by which a unit changes: all that sets a phase is here.

use std::sync::Arc;
use std::time::Duration;

use super::InitState;
use super::node::Node;
use crate::Timestamp;
use crate::graph::{
    ActionKind, Activity, EdgeKind, Exit, FailureCause, Incarnation, InitUnit, ObservedUnit, Phase,
    ServiceType, StartRateLimit, StopOutcome, StopReason, Target, UnitAction,
};

/// How long a unit that was killed has to end. What is left of it then does not end at all, and
/// nobody waits for it any more.
const KILL_GRACE: Duration = Duration::from_secs(10);

impl InitState {
    /// Changes the phase of a unit, and lets it be looked at again.
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

    /// A unit is up.
    pub(super) fn activate(&mut self, at: u32, activity: Activity, now: Timestamp) {
        self.enter(at, Phase::Active(activity), now);
        let observed = &mut self.node_mut(at).observed;
        observed.up_since = Some(observed.up_since.unwrap_or(now));
        observed.exited |= activity == Activity::Exited;
        observed.outcome = None;
        observed.cause = None;
        observed.retry_at = None;
        let definition = observed.definition.as_deref();
        let runtime = definition.and_then(|definition| definition.run.runtime_max);
        let runtime = runtime.filter(|_| !observed.exited);
        let over = observed.up_since.zip(runtime).map(|(since, most)| since.after(most));
        let reload = definition.and_then(|definition| definition.timeouts.reload);
        let reload = reload.filter(|_| activity == Activity::Reloading);
        observed.deadline =
            over.into_iter().chain(reload.map(|most| deadline_after(now, most))).min();
    }

    /// Stops a unit that has to.
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

    /// A unit failed: whatever is left of it has to go.
    pub(super) fn fail(&mut self, at: u32, cause: FailureCause, now: Timestamp) {
        let action =
            self.begin_stop(at, StopOutcome::Failed(cause), StopReason::Failed(cause), now);
        self.pending_actions.push(action);
    }

    /// A unit is over, well: whatever is left of it has to go.
    pub(super) fn finish(&mut self, at: u32, ending: StopOutcome, now: Timestamp) {
        let skipped = ending == StopOutcome::Skipped;
        let reason = if skipped { StopReason::Skipped } else { StopReason::Completed };
        let action = self.begin_stop(at, ending, reason, now);
        self.pending_actions.push(action);
    }

    /// A unit says that it stops.
    pub(super) fn begin_self_stop(&mut self, at: u32, now: Timestamp) {
        self.enter_stopping(at, StopOutcome::SelfInitiated, now);
    }

    fn begin_stop(
        &mut self,
        at: u32,
        ending: StopOutcome,
        reason: StopReason,
        now: Timestamp,
    ) -> UnitAction {
        let was_up = self.node(at).observed.phase.is_active();
        self.enter_stopping(at, ending, now);
        self.action(at, ActionKind::Stop { reason, was_up })
    }

    fn enter_stopping(&mut self, at: u32, ending: StopOutcome, now: Timestamp) {
        self.node_mut(at).clear_attempts_if_stable(now);
        self.enter(at, Phase::Stopping, now);
        let observed = &mut self.node_mut(at).observed;
        observed.outcome = Some(ending);
        (observed.up_since, observed.exited) = (None, false);
        // What is run to end it belongs to it as well, even if nothing else was left.
        observed.processes = true;
        observed.killed = false;
        observed.reload_wanted = false;
        let most = observed.definition.as_ref().and_then(|definition| definition.timeouts.stop);
        observed.deadline = most.map(|most| deadline_after(now, most));
    }

    /// A unit that has reloaded is as it was before.
    pub(super) fn end_reload(&mut self, at: u32, well: bool, now: Timestamp) {
        let exited = self.node(at).observed.exited;
        self.activate(at, if exited { Activity::Exited } else { Activity::Running }, now);
        self.node_mut(at).observed.reload_failed = !well;
    }

    /// Has a unit read its configuration again.
    pub(super) fn begin_reload(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.node_mut(at).observed.reload_wanted = false;
        self.activate(at, Activity::Reloading, now);
        self.action(at, ActionKind::Reload)
    }

    /// Kills a unit that did not end in time.
    pub(super) fn kill(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.mark_killed(at, now);
        self.action(at, ActionKind::Kill)
    }

    /// A unit that did not end in time is killed, by whom ever.
    pub(super) fn mark_killed(&mut self, at: u32, now: Timestamp) {
        let observed = &mut self.node_mut(at).observed;
        observed.killed = true;
        observed.deadline = Some(now.after(KILL_GRACE));
        if !matches!(observed.outcome, Some(StopOutcome::Failed(_))) {
            observed.outcome = Some(StopOutcome::Failed(FailureCause::StopTimeout));
        }
        self.touch(at);
    }

    /// None of the processes of a unit is left.
    pub(super) fn on_processes_gone(&mut self, at: u32, now: Timestamp) {
        self.node_mut(at).observed.processes = false;
        match self.node_mut(at).observed.outcome.take() {
            Some(StopOutcome::Inactive(_)) | None => self.enter_inactive(at, now),
            Some(StopOutcome::Failed(cause)) => self.enter_failed(at, cause, now),
            Some(StopOutcome::SelfInitiated) => {
                self.enter_failed(at, FailureCause::Exit(Exit::Unknown), now)
            }
            Some(StopOutcome::Completed(exit)) => {
                self.enter_completed(at, now, |it| it.schedule(None, exit, now))
            }
            Some(StopOutcome::Skipped) => self.enter_completed(at, now, |_| {}),
        }
    }

    /// A unit has ended well, and this is what follows if it is not to be started restarts.
    fn enter_completed(&mut self, at: u32, now: Timestamp, follow: impl FnOnce(&mut Node)) {
        let restarts = self.node(at).restarts_after_stop();
        self.enter_rest(at, Phase::Completed, now);
        follow(self.node_mut(at));
        if restarts {
            self.retry_immediately(at, now);
        }
    }

    /// A unit has failed, and nothing of it is left, or nothing that would ever end.
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

    /// Has a unit that is over tried again at once, or as deadline_after as its processes are gone, however
    /// it ended and however often. Of one that is lost nobody hears when they are: it stays so.
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

    /// Something else is wanted, so what became of a unit that was not needed is of no use any
    /// more: if it is needed now, or later, it is started. One that is stopping still ends first.
    pub(super) fn expire_result(&mut self, at: u32, now: Timestamp) {
        let observed = &mut self.node_mut(at).observed;
        match observed.phase {
            Phase::Stopping => observed.restart_requested = true,
            Phase::Failed if observed.processes => self.retry_immediately(at, now),
            _ => self.forget_result(at, now),
        }
    }

    /// A unit is off, for whatever reason.
    pub(super) fn enter_inactive(&mut self, at: u32, now: Timestamp) {
        self.enter_rest(at, Phase::Inactive, now);
        let observed = &mut self.node_mut(at).observed;
        observed.retry_at = None;
        observed.gave_up = false;
    }

    /// What is known of an end is forgotten.
    pub(super) fn forget_result(&mut self, at: u32, now: Timestamp) {
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
        (observed.up_since, observed.exited) = (None, false);
        observed.restart_requested = false;
        observed.reload_wanted = false;
        observed.reload_failed = false;
        if !observed.processes {
            observed.definition = None;
        }
    }

    /// What is to be done for the present incarnation of a unit.
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

/// So much later, but later: what has no time at all still has the chance to be quick.
fn deadline_after(now: Timestamp, most: Duration) -> Timestamp {
    now.after(most.max(Duration::from_millis(1)))
}

/// Whether nothing has to be done to end what was started, once its processes are gone.
fn needs_no_stop(observed: &ObservedUnit) -> bool {
    let runs_nothing = |unit: &InitUnit| unit.run.stop.is_empty() && unit.run.stop_post.is_empty();
    let is_virtual = observed.definition.as_deref().is_some_and(InitUnit::is_virtual);
    let exited = observed.phase == Phase::Active(Activity::Exited);
    is_virtual || (exited && observed.definition.as_deref().is_none_or(runs_nothing))
}

impl InitUnit {
    /// Whether it has a main process, whose end is its own.
    pub(super) fn has_main(&self) -> bool {
        !matches!(self.kind, ServiceType::BackgroundScripted | ServiceType::Virtual)
    }
}

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
        let before = starting(node.seen.phase);
        node.seen.phase = phase;
        node.seen.since = now;
        node.seen.deadline = None;
        self.starting = self.starting + starting(phase) - before;
        self.touch(at);
    }

    /// Starts a unit.
    pub(super) fn start(&mut self, at: u32, now: Timestamp) -> Option<UnitAction> {
        let unit = Arc::clone(&self.node(at).unit);
        self.node_mut(at).redefined = false;
        self.node_mut(at).seen.definition = Some(Arc::clone(&unit));
        if unit.is_virtual() {
            self.node_mut(at).seen.incarnation = None;
            self.come_up(at, Activity::Running, now);
            return None;
        }
        self.enter(at, Phase::Starting, now);
        self.last = Incarnation(self.last.0 + 1);
        let incarnation = self.last;
        let node = self.node_mut(at);
        node.count_start(now);
        node.seen.incarnation = Some(incarnation);
        node.seen.processes = true;
        node.seen.deadline = unit.timeouts.start.map(|most| soon(now, most));
        Some(UnitAction {
            unit: unit.name.clone(),
            incarnation,
            kind: ActionKind::Start,
            definition: unit,
        })
    }

    /// A unit is up.
    pub(super) fn come_up(&mut self, at: u32, activity: Activity, now: Timestamp) {
        self.enter(at, Phase::Active(activity), now);
        let seen = &mut self.node_mut(at).seen;
        seen.up_since = Some(seen.up_since.unwrap_or(now));
        seen.exited |= activity == Activity::Exited;
        seen.outcome = None;
        seen.cause = None;
        seen.retry_at = None;
        let definition = seen.definition.as_deref();
        let runtime = definition.and_then(|definition| definition.run.runtime_max);
        let runtime = runtime.filter(|_| !seen.exited);
        let over = seen.up_since.zip(runtime).map(|(since, most)| since.after(most));
        let reload = definition.and_then(|definition| definition.timeouts.reload);
        let reload = reload.filter(|_| activity == Activity::Reloading);
        seen.deadline = over.into_iter().chain(reload.map(|most| soon(now, most))).min();
    }

    /// Stops a unit that has to.
    pub(super) fn stop(&mut self, at: u32, now: Timestamp) -> Option<UnitAction> {
        let node = self.node(at);
        if !node.seen.processes && has_no_end_of_its_own(&node.seen) {
            self.node_mut(at).forgive(now);
            self.be_off(at, now);
            return None;
        }
        let reason = self.stop_reason(at);
        Some(self.begin_end(at, StopOutcome::Inactive(reason.clone()), reason, now))
    }

    /// A unit failed: whatever is left of it has to go.
    pub(super) fn fail(&mut self, at: u32, cause: FailureCause, now: Timestamp) {
        let action = self.begin_end(at, StopOutcome::Failed(cause), StopReason::Failed(cause), now);
        self.owed.push(action);
    }

    /// A unit is over, well: whatever is left of it has to go.
    pub(super) fn finish(&mut self, at: u32, ending: StopOutcome, now: Timestamp) {
        let skipped = ending == StopOutcome::Skipped;
        let reason = if skipped { StopReason::Skipped } else { StopReason::Completed };
        let action = self.begin_end(at, ending, reason, now);
        self.owed.push(action);
    }

    /// A unit says that it stops.
    pub(super) fn stop_by_itself(&mut self, at: u32, now: Timestamp) {
        self.await_end(at, StopOutcome::SelfInitiated, now);
    }

    fn begin_end(
        &mut self,
        at: u32,
        ending: StopOutcome,
        reason: StopReason,
        now: Timestamp,
    ) -> UnitAction {
        let was_up = self.node(at).seen.phase.is_active();
        self.await_end(at, ending, now);
        self.order(at, ActionKind::Stop { reason, was_up })
    }

    fn await_end(&mut self, at: u32, ending: StopOutcome, now: Timestamp) {
        self.node_mut(at).forgive(now);
        self.enter(at, Phase::Stopping, now);
        let seen = &mut self.node_mut(at).seen;
        seen.outcome = Some(ending);
        (seen.up_since, seen.exited) = (None, false);
        // What is run to end it belongs to it as well, even if nothing else was left.
        seen.processes = true;
        seen.killed = false;
        seen.reload_wanted = false;
        let most = seen.definition.as_ref().and_then(|definition| definition.timeouts.stop);
        seen.deadline = most.map(|most| soon(now, most));
    }

    /// A unit that has reloaded is as it was before.
    pub(super) fn be_as_before(&mut self, at: u32, well: bool, now: Timestamp) {
        let exited = self.node(at).seen.exited;
        self.come_up(at, if exited { Activity::Exited } else { Activity::Running }, now);
        self.node_mut(at).seen.reload_failed = !well;
    }

    /// Has a unit read its configuration again.
    pub(super) fn reread(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.node_mut(at).seen.reload_wanted = false;
        self.come_up(at, Activity::Reloading, now);
        self.order(at, ActionKind::Reload)
    }

    /// Kills a unit that did not end in time.
    pub(super) fn kill(&mut self, at: u32, now: Timestamp) -> UnitAction {
        self.be_killed(at, now);
        self.order(at, ActionKind::Kill)
    }

    /// A unit that did not end in time is killed, by whom ever.
    pub(super) fn be_killed(&mut self, at: u32, now: Timestamp) {
        let seen = &mut self.node_mut(at).seen;
        seen.killed = true;
        seen.deadline = Some(now.after(KILL_GRACE));
        if !matches!(seen.outcome, Some(StopOutcome::Failed(_))) {
            seen.outcome = Some(StopOutcome::Failed(FailureCause::StopTimeout));
        }
        self.touch(at);
    }

    /// None of the processes of a unit is left.
    pub(super) fn be_gone(&mut self, at: u32, now: Timestamp) {
        self.node_mut(at).seen.processes = false;
        match self.node_mut(at).seen.outcome.take() {
            Some(StopOutcome::Inactive(_)) | None => self.be_off(at, now),
            Some(StopOutcome::Failed(cause)) => self.have_failed(at, cause, now),
            Some(StopOutcome::SelfInitiated) => {
                self.have_failed(at, FailureCause::Exit(Exit::Unknown), now)
            }
            Some(StopOutcome::Completed(exit)) => {
                self.have_ended(at, now, |it| it.schedule(None, exit, now))
            }
            Some(StopOutcome::Skipped) => self.have_ended(at, now, |_| {}),
        }
    }

    /// A unit has ended well, and this is what follows if it is not to be started anew.
    fn have_ended(&mut self, at: u32, now: Timestamp, follow: impl FnOnce(&mut Node)) {
        let anew = self.node(at).starts_anew();
        self.leave(at, Phase::Completed, now);
        follow(self.node_mut(at));
        if anew {
            self.try_at_once(at, now);
        }
    }

    /// A unit has failed, and nothing of it is left, or nothing that would ever end.
    pub(super) fn have_failed(&mut self, at: u32, cause: FailureCause, now: Timestamp) {
        let anew = self.node(at).starts_anew();
        self.node_mut(at).forgive(now);
        let exit = match cause {
            FailureCause::Exit(exit) => Some(exit),
            _ => self.node(at).seen.exit,
        };
        self.leave(at, Phase::Failed, now);
        self.node_mut(at).seen.cause = Some(cause);
        self.node_mut(at).schedule(Some(cause), exit, now);
        if anew {
            self.try_at_once(at, now);
        }
    }

    /// Has a unit that is over tried again at once, or as soon as its processes are gone, however
    /// it ended and however often. Of one that is lost nobody hears when they are: it stays so.
    pub(super) fn try_at_once(&mut self, at: u32, now: Timestamp) {
        let seen = &mut self.node_mut(at).seen;
        if seen.processes && seen.cause == Some(FailureCause::Lost) {
            return;
        }
        seen.forgive();
        seen.starts = StartRateLimit::default();
        (seen.retry_at, seen.gave_up) = (Some(now), false);
        self.touch(at);
    }

    /// Something else is wanted, so what became of a unit that was not needed is of no use any
    /// more: if it is needed now, or later, it is started. One that is stopping still ends first.
    pub(super) fn lapse(&mut self, at: u32, now: Timestamp) {
        let seen = &mut self.node_mut(at).seen;
        match seen.phase {
            Phase::Stopping => seen.restart_requested = true,
            Phase::Failed if seen.processes => self.try_at_once(at, now),
            _ => self.forget(at, now),
        }
    }

    /// A unit is off, for whatever reason.
    pub(super) fn be_off(&mut self, at: u32, now: Timestamp) {
        self.leave(at, Phase::Inactive, now);
        let seen = &mut self.node_mut(at).seen;
        seen.retry_at = None;
        seen.gave_up = false;
    }

    /// What is known of an end is forgotten.
    pub(super) fn forget(&mut self, at: u32, now: Timestamp) {
        if self.node(at).seen.phase != Phase::Inactive {
            self.be_off(at, now);
        }
        let seen = &mut self.node_mut(at).seen;
        seen.forgive();
        seen.cause = None;
        seen.starts = StartRateLimit::default();
        self.touch(at);
    }

    fn leave(&mut self, at: u32, phase: Phase, now: Timestamp) {
        self.enter(at, phase, now);
        let node = self.node_mut(at);
        node.redefined = false;
        let seen = &mut node.seen;
        (seen.outcome, seen.exit) = (None, None);
        seen.killed = false;
        (seen.up_since, seen.exited) = (None, false);
        seen.restart_requested = false;
        seen.reload_wanted = false;
        seen.reload_failed = false;
        if !seen.processes {
            seen.definition = None;
        }
    }

    /// What is to be done for the present incarnation of a unit.
    fn order(&self, at: u32, kind: ActionKind) -> UnitAction {
        let ObservedUnit { incarnation, definition, .. } = &self.node(at).seen;
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
        if node.seen.restart_requested {
            return StopReason::RestartRequested;
        }
        if node.redefined {
            return StopReason::DefinitionChanged;
        }
        let on = node.unit.edges.iter().filter(|(kind, _)| *kind == EdgeKind::DependsOn);
        let lost = on.map(|(_, target)| target).filter(|target| !self.stays(target));
        lost.min().cloned().map_or(StopReason::DefinitionChanged, StopReason::DependencyLost)
    }

    fn stays(&self, target: &Target) -> bool {
        self.provider(target).is_some_and(|at| self.node(at).face.stays())
    }
}

/// So much later, but later: what has no time at all still has the chance to be quick.
fn soon(now: Timestamp, most: Duration) -> Timestamp {
    now.after(most.max(Duration::from_millis(1)))
}

/// Whether nothing has to be done to end what was started, once its processes are gone.
fn has_no_end_of_its_own(seen: &ObservedUnit) -> bool {
    let runs_nothing = |unit: &InitUnit| unit.run.stop.is_empty() && unit.run.stop_post.is_empty();
    let is_virtual = seen.definition.as_deref().is_some_and(InitUnit::is_virtual);
    let exited = seen.phase == Phase::Active(Activity::Exited);
    is_virtual || (exited && seen.definition.as_deref().is_none_or(runs_nothing))
}

impl InitUnit {
    /// Whether it has a main process, whose end is its own.
    pub(super) fn has_main(&self) -> bool {
        !matches!(self.kind, ServiceType::BackgroundScripted | ServiceType::Virtual)
    }
}

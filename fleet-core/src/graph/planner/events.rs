//! Events of the units, and their effect on the units around.

use std::sync::Arc;

use super::InitState;
use super::event::{EventKind, UnitEvent};
use super::node::{DependencyEffect, NeighbourView};
use super::phase::{Activity, FailureCause, Phase, StopOutcome};
use crate::Timestamp;
use crate::graph::build::adjacency::Adjacency;
use crate::graph::model::{Exit, InitUnit, OnCleanExit, Restart, ServiceType, Signal};

impl InitState {
    /// Handles an event and returns whether it had an effect. An event that is impossible in the
    /// current phase is ignored. An event of a past incarnation or of an unknown unit is ignored
    /// and counted.
    pub fn on_event(&mut self, event: &UnitEvent, now: Timestamp) -> bool {
        let at = self.find(&event.unit);
        let is_current = |&at: &u32| self.node(at).observed.incarnation == Some(event.incarnation);
        let Some(at) = at.filter(is_current) else {
            self.stale_events = self.stale_events.saturating_add(1);
            return false;
        };
        let handled = match self.node(at).observed.phase {
            Phase::Inactive | Phase::Completed => false,
            Phase::Starting => self.on_starting(at, event.kind, now),
            Phase::Active(activity) => self.on_active(at, activity, event.kind, now),
            Phase::Stopping => self.on_stopping(at, event.kind, now),
            Phase::Failed => self.on_failed(at, event.kind),
        };
        if let (true, EventKind::MainExited(exit)) = (handled, event.kind) {
            self.node_mut(at).observed.exit = Some(exit);
        }
        self.propagate();
        handled
    }

    fn on_starting(&mut self, at: u32, kind: EventKind, now: Timestamp) -> bool {
        match kind {
            EventKind::Ready if self.signals_readiness(at) => {
                self.activate(at, Activity::Running, now);
            }
            EventKind::Failed(cause) => self.fail(at, cause, now),
            EventKind::Skipped => self.finish(at, StopOutcome::Skipped, now),
            EventKind::Stopping => self.begin_self_stop(at, now),
            EventKind::MainExited(exit) => self.on_exit_before_ready(at, exit, now),
            EventKind::Extend(more) => return self.extend(at, now.after(more)),
            EventKind::AllGone => self.on_main_lost(at, now),
            EventKind::Ready | EventKind::Reloading | EventKind::ReloadEnded { .. } => {
                return false;
            }
        }
        true
    }

    fn on_active(&mut self, at: u32, activity: Activity, kind: EventKind, now: Timestamp) -> bool {
        match (activity, kind) {
            (Activity::Running, EventKind::Reloading) => {
                self.activate(at, Activity::Reloading, now);
            }
            (Activity::Reloading, EventKind::Ready) => self.end_reload(at, true, now),
            (Activity::Reloading, EventKind::ReloadEnded { well }) => {
                self.end_reload(at, well, now);
            }
            (_, EventKind::AllGone) if self.node(at).observed.exited => self.forget_processes(at),
            (Activity::Exited, _) => return false,
            (_, EventKind::MainExited(_)) if self.node(at).observed.exited => return false,
            (_, EventKind::Failed(cause)) => self.fail(at, cause, now),
            (_, EventKind::Stopping) => self.begin_self_stop(at, now),
            (_, EventKind::MainExited(exit)) => self.on_exit(at, exit, now),
            (_, EventKind::Extend(more)) => return self.extend(at, now.after(more)),
            (_, EventKind::AllGone) if self.running_definition(at).has_main() => {
                self.on_main_lost(at, now);
            }
            (_, EventKind::AllGone) => self.forget_processes(at),
            (
                _,
                EventKind::Ready
                | EventKind::Skipped
                | EventKind::Reloading
                | EventKind::ReloadEnded { .. },
            ) => return false,
        }
        true
    }

    fn on_stopping(&mut self, at: u32, kind: EventKind, now: Timestamp) -> bool {
        match kind {
            EventKind::AllGone => self.on_processes_gone(at, now),
            EventKind::MainExited(exit) if self.is_self_stop(at) => self.on_exit(at, exit, now),
            // The outcome is decided already; the exit only counts for the restart policy.
            EventKind::MainExited(_) => {}
            EventKind::Failed(cause) => return self.on_failing_end(at, cause, now),
            // Commands that run after a kill have a timeout of their own.
            EventKind::Extend(more) => return self.extend(at, now.after(more)),
            _ => return false,
        }
        true
    }

    /// Handles a failure that is reported while the unit is stopping. Returns whether the failure
    /// had an effect.
    ///
    /// - A stop timeout means that the supervisor has killed the unit, so the unit will fail. A
    ///   second stop timeout may follow, for the commands that run after the stop.
    /// - A failed stop command makes a unit fail that is not needed any more.
    /// - Any other failure has an effect only if the unit stops by itself. A requested stop does
    ///   not become a failure.
    fn on_failing_end(&mut self, at: u32, cause: FailureCause, now: Timestamp) -> bool {
        if cause == FailureCause::StopTimeout {
            self.mark_killed(at, now);
            return true;
        }
        // A unit that is still needed starts again after its stop, as after any requested stop.
        let is_needed = self.node(at).needed;
        let observed = &mut self.node_mut(at).observed;
        let handled = match observed.outcome {
            Some(StopOutcome::Completed(_) | StopOutcome::SelfInitiated) => true,
            Some(StopOutcome::Inactive(_)) if !is_needed => {
                matches!(cause, FailureCause::StopCommand(_) | FailureCause::StopCommandTimeout)
            }
            Some(StopOutcome::Inactive(_) | StopOutcome::Failed(_) | StopOutcome::Skipped)
            | None => false,
        };
        if handled {
            observed.outcome = Some(StopOutcome::Failed(cause));
            self.touch(at);
        }
        handled
    }

    fn on_failed(&mut self, at: u32, kind: EventKind) -> bool {
        let handled = kind == EventKind::AllGone && self.node(at).observed.processes;
        if handled {
            self.forget_processes(at);
            self.node_mut(at).observed.definition = None;
        }
        handled
    }

    /// Handles the exit of the main process before the unit was active.
    fn on_exit_before_ready(&mut self, at: u32, exit: Exit, now: Timestamp) {
        let may_end = matches!(
            self.running_definition(at).kind,
            ServiceType::Oneshot { .. } | ServiceType::ForegroundSupervised(_)
        );
        if may_end {
            self.on_exit(at, exit, now);
        } else {
            self.fail(at, FailureCause::Exit(exit), now);
        }
    }

    /// Handles an unrequested exit of the main process.
    fn on_exit(&mut self, at: u32, exit: Exit, now: Timestamp) {
        let unit = self.running_definition(at);
        if !unit.is_success(exit) {
            self.fail(at, FailureCause::Exit(exit), now);
        } else if unit.stays_active() && !self.node(at).unit.restart.follows_success(exit) {
            self.activate(at, Activity::Exited, now);
        } else {
            self.finish(at, StopOutcome::Completed(Some(exit)), now);
        }
    }

    /// Handles the case that all processes have exited, but the exit of the main process was not
    /// reported. The unit fails with an unknown exit.
    fn on_main_lost(&mut self, at: u32, now: Timestamp) {
        self.node_mut(at).observed.processes = false;
        self.enter_failed(at, FailureCause::Exit(Exit::Unknown), now);
    }

    fn extend(&mut self, at: u32, until: Timestamp) -> bool {
        let Some(deadline) = &mut self.node_mut(at).observed.deadline else { return false };
        *deadline = until.max(*deadline);
        self.touch(at);
        true
    }

    fn forget_processes(&mut self, at: u32) {
        self.node_mut(at).observed.processes = false;
        self.touch(at);
    }

    fn is_self_stop(&self, at: u32) -> bool {
        self.node(at).observed.outcome == Some(StopOutcome::SelfInitiated)
    }

    /// Returns whether a readiness notification makes the unit active. For a oneshot it does not,
    /// because a oneshot becomes active only once its commands have ended.
    fn signals_readiness(&self, at: u32) -> bool {
        !matches!(self.running_definition(at).kind, ServiceType::Oneshot { .. })
    }

    /// Returns the definition of the current incarnation.
    pub(super) fn running_definition(&self, at: u32) -> &InitUnit {
        let node = self.node(at);
        node.observed.definition.as_ref().unwrap_or(&node.unit)
    }
}

impl InitUnit {
    /// Returns whether this exit of the main process is a success. These exits are:
    ///
    /// - an exit that the unit lists as successful
    /// - any known exit, if the failures of all start commands are ignored
    /// - status 0, unless the unit treats every clean exit as a failure; for a oneshot, always
    /// - a signal that usually ends a process deliberately (such as SIGTERM), unless the unit is a
    ///   oneshot or treats every clean exit as a failure
    #[must_use]
    pub fn is_success(&self, exit: Exit) -> bool {
        let is_oneshot = matches!(self.kind, ServiceType::Oneshot { .. });
        let may_end = self.run.on_clean_exit != OnCleanExit::Fail;
        let start = &self.run.start;
        let may_fail = !start.is_empty() && start.iter().all(|command| command.ignore_failure);
        self.run.success.contains(exit)
            || (may_fail && exit != Exit::Unknown)
            || match exit {
                Exit::Status(0) => may_end || is_oneshot,
                Exit::Signal(number) => may_end && !is_oneshot && Signal::USUAL.contains(&number),
                Exit::Status(_) | Exit::Unknown => false,
            }
    }

    /// Returns whether the unit stays active after its main process exited successfully.
    #[must_use]
    pub fn stays_active(&self) -> bool {
        match self.kind {
            ServiceType::Oneshot { remain } => remain,
            _ => self.run.on_clean_exit != OnCleanExit::Complete,
        }
    }
}

impl Restart {
    fn follows_success(&self, exit: Exit) -> bool {
        self.applies(None, Some(exit))
    }
}

impl InitState {
    /// Marks a unit for evaluation.
    pub(super) fn touch(&mut self, at: u32) {
        self.dirty.insert(self.adjacency.rank(at));
    }

    /// Evaluates the marked units, and all units to which their changes matter. Dependencies are
    /// evaluated before their dependents, so each unit is evaluated once. Only `pulls` edges, which
    /// have no order, may cause a second evaluation.
    pub(super) fn propagate(&mut self) {
        let adjacency = Arc::clone(&self.adjacency);
        while let Some(rank) = self.dirty.pop() {
            self.refresh(&adjacency, adjacency.order()[rank as usize]);
        }
        self.degraded.propagate(&adjacency, |at| self.changed.insert(at));
    }

    fn refresh(&mut self, adjacency: &Adjacency, at: u32) {
        let node = self.node_mut(at);
        let (before, after) = (node.view, node.next_view());
        node.view = after;
        self.changed.insert(at);
        if before != after {
            for link in adjacency.dependents(at) {
                let effects = (before.effect(link.kind), after.effect(link.kind));
                if effects.0 != effects.1 {
                    self.count(link.node, effects);
                }
            }
            if before.stop_state() != after.stop_state() {
                self.unblock(adjacency, at, before, after);
            }
            self.degraded.update(adjacency, at, after.active, after.fulfils_dependents());
        }
        self.update_queues(at);
    }

    /// Updates the counts of a unit after the effect of one dependency has changed. Marks the unit
    /// for evaluation if the change matters to it. For an inactive unit every change matters, for
    /// any other unit only the loss or the return of a dependency.
    fn count(&mut self, at: u32, (before, after): (DependencyEffect, DependencyEffect)) {
        let node = self.node_mut(at);
        let was_lost = node.has_lost_dependency();
        node.counts.replace(before, after);
        if node.observed.phase == Phase::Inactive || node.has_lost_dependency() != was_lost {
            self.touch(at);
        }
    }

    /// Updates, for each dependency of the unit `at`, the number of dependents that have to stop
    /// before it. Called when `at` has begun or ceased to be one of these dependents.
    fn unblock(
        &mut self,
        adjacency: &Adjacency,
        at: u32,
        before: NeighbourView,
        after: NeighbourView,
    ) {
        for link in adjacency.dependencies(at) {
            let blocks = (before.delays_stop_of(link.kind), after.delays_stop_of(link.kind));
            if blocks.0 != blocks.1 {
                self.node_mut(link.node).counts.replace_dependent_to_stop(blocks.0, blocks.1);
                self.update_queues(link.node);
            }
        }
    }

    /// Moves a unit into the queues that should contain it.
    fn update_queues(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        let (before, after) = (node.queues, node.next_membership());
        if before != after {
            node.queues = after;
            self.queues.update(at, before, after);
        }
    }
}

//! The events of units, and the transitions that they cause.

use super::event::{EventKind, UnitEvent};
use super::phase::{Activity, FailureCause, Phase, StopOutcome};
use super::transitions::Units;
use crate::Timestamp;
use crate::graph::model::{Exit, InitUnit, OnCleanExit, Restart, ServiceType, Signal};

impl Units {
    /// Handles an event, as [`InitState::on_event`](super::InitState::on_event) describes.
    pub(super) fn on_event(&mut self, event: &UnitEvent, now: Timestamp) -> bool {
        let at = self.nodes.find(&event.unit);
        let is_current =
            |&at: &u32| self.nodes.node(at).observed.incarnation == Some(event.incarnation);
        let Some(at) = at.filter(is_current) else {
            self.stale_events = self.stale_events.saturating_add(1);
            return false;
        };
        let handled = match self.nodes.node(at).observed.phase {
            Phase::Inactive | Phase::Completed => false,
            Phase::Starting => self.on_starting(at, event.kind, now),
            Phase::Active(activity) => self.on_active(at, activity, event.kind, now),
            Phase::Stopping => self.on_stopping(at, event.kind, now),
            Phase::Failed => self.on_failed(at, event.kind),
        };
        if let (true, EventKind::MainExited(exit)) = (handled, event.kind) {
            self.nodes.node_mut(at).observed.exit = Some(exit);
        }
        self.nodes.propagate();
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
            (_, EventKind::AllGone) if self.nodes.node(at).observed.exited => {
                self.forget_processes(at);
            }
            (Activity::Exited, _) => return false,
            (_, EventKind::MainExited(_)) if self.nodes.node(at).observed.exited => return false,
            (_, EventKind::Failed(cause)) => self.fail(at, cause, now),
            (_, EventKind::Stopping) => self.begin_self_stop(at, now),
            (_, EventKind::MainExited(exit)) => self.on_exit(at, exit, now),
            (_, EventKind::Extend(more)) => return self.extend(at, now.after(more)),
            (_, EventKind::AllGone) if self.nodes.node(at).running_definition().has_main() => {
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
        let is_needed = self.nodes.node(at).needed;
        let observed = &mut self.nodes.node_mut(at).observed;
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
            self.nodes.touch(at);
        }
        handled
    }

    fn on_failed(&mut self, at: u32, kind: EventKind) -> bool {
        let handled = kind == EventKind::AllGone && self.nodes.node(at).observed.processes;
        if handled {
            self.forget_processes(at);
            self.nodes.node_mut(at).observed.definition = None;
        }
        handled
    }

    /// Handles the exit of the main process before the unit was active.
    fn on_exit_before_ready(&mut self, at: u32, exit: Exit, now: Timestamp) {
        let may_end = matches!(
            self.nodes.node(at).running_definition().kind,
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
        let unit = self.nodes.node(at).running_definition();
        if !unit.is_success(exit) {
            self.fail(at, FailureCause::Exit(exit), now);
        } else if unit.stays_active() && !self.nodes.node(at).unit.restart.follows_success(exit) {
            self.activate(at, Activity::Exited, now);
        } else {
            self.finish(at, StopOutcome::Completed(Some(exit)), now);
        }
    }

    /// Handles the case that all processes have exited, but the exit of the main process was not
    /// reported. The unit fails with an unknown exit.
    fn on_main_lost(&mut self, at: u32, now: Timestamp) {
        self.nodes.node_mut(at).observed.processes = false;
        self.enter_failed(at, FailureCause::Exit(Exit::Unknown), now);
    }

    fn extend(&mut self, at: u32, until: Timestamp) -> bool {
        let Some(deadline) = &mut self.nodes.node_mut(at).observed.deadline else { return false };
        *deadline = until.max(*deadline);
        self.nodes.touch(at);
        true
    }

    fn forget_processes(&mut self, at: u32) {
        self.nodes.node_mut(at).observed.processes = false;
        self.nodes.touch(at);
    }

    fn is_self_stop(&self, at: u32) -> bool {
        self.nodes.node(at).observed.outcome == Some(StopOutcome::SelfInitiated)
    }

    /// Returns whether a readiness notification makes the unit active. For a oneshot it does not,
    /// because a oneshot becomes active only once its commands have ended.
    fn signals_readiness(&self, at: u32) -> bool {
        !matches!(self.nodes.node(at).running_definition().kind, ServiceType::Oneshot { .. })
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

//! Pure: no I/O, no clock. Translates the phases of a run into events of the dependency graph.
//!
//! The graph distinguishes fewer phases ([`GraphPhase`]) than a run has. A change of phase within
//! one [`GraphPhase`] causes no event, apart from the exit of the main process of a running
//! service. If a failure stops the service, the event reports the first failure.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, Exit, FailureCause, ServiceType};

use super::ServiceRun;
use super::outcome::{RunOutcome, is_oneshot};
use super::state::ServicePhase;
use crate::native::linux::exit::ProcessExit;

/// Span that stands for no time limit.
const UNLIMITED: Duration = Duration::from_secs(u32::MAX as u64);

/// Extra time that the planner grants for the main process to be named.
const PID_FILE_GRACE: Duration = Duration::from_secs(10);

/// Phase of the graph that a [`ServicePhase`] belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GraphPhase {
    Starting,
    Up,
    Reloading,
    Stopping,
    Over,
}

impl ServiceRun {
    /// Returns whether there are events to take.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the events so far, in order.
    pub(crate) fn take_events(&mut self) -> Vec<EventKind> {
        std::mem::take(&mut self.events)
    }

    /// Emits the events of a transition to the next phase.
    pub(crate) fn emit_transition(&mut self, next: ServicePhase) {
        use GraphPhase::{Over, Reloading, Starting, Stopping, Up};
        match (stage(self.state.phase), stage(next)) {
            (Starting, Up) => self.emit_up(next),
            (Up, Up) if next == ServicePhase::Exited => self.emit_exit(),
            (Reloading, Up) => match self.state.reloaded {
                Some(outcome) => {
                    self.emit(EventKind::ReloadEnded { well: is_success(outcome) });
                    if next == ServicePhase::Exited {
                        self.emit_exit();
                    }
                }
                None => self.emit_exit(),
            },
            (Starting | Up | Reloading, Stopping) => self.emit_cause(),
            (Starting, Over) => {
                self.emit_cause();
                self.emit(EventKind::AllGone);
            }
            (Stopping, Over) => self.emit(EventKind::AllGone),
            _ => {}
        }
    }

    /// Emits the time limit of the current command or phase. The planner has a time limit of its
    /// own, and this event extends it. So the planner does not act before the run has reached its
    /// limit.
    pub(crate) fn emit_time_limit(&mut self) {
        let limits = &self.spec.timeouts;
        let (limit, times) = match self.state.phase {
            phase if phase.is_starting() => (limits.start, 1),
            // The planner has started the limit of the first command.
            ServicePhase::Reload if self.state.step > 0 => (limits.reload, 1),
            ServicePhase::StopWatchdog => (self.spec.run.watchdog_action.timeout, 1),
            ServicePhase::StopSigterm | ServicePhase::FinalSigterm => (limits.stop, 1),
            // The phases after these commands have their own limit, and are not a failure of the
            // commands.
            ServicePhase::Stop | ServicePhase::StopPost => (limits.stop, 2),
            _ => return,
        };
        let span = limit.map_or(UNLIMITED, |limit| limit.saturating_mul(times).min(UNLIMITED));
        self.emit(EventKind::Extend(span));
    }

    /// Emits the time limit within which a pid file has to name the main process. The planner gets
    /// [`PID_FILE_GRACE`] more, so that the run times out first. The run reports the missing main
    /// process, whereas the planner would only report a start timeout.
    pub(crate) fn emit_pid_file_limit(&mut self, now: Timestamp) {
        let span = self.deadline.map(|until| until.since(now).saturating_add(PID_FILE_GRACE));
        self.emit(EventKind::Extend(span.unwrap_or(UNLIMITED).min(UNLIMITED)));
    }

    pub(crate) fn emit(&mut self, what: EventKind) {
        self.events.push(what);
    }

    /// Records a failure as the reason why the service stops. If the service is already stopping,
    /// emits the failure at once, except for a stop timeout.
    pub(crate) fn record_failure(&mut self, what: EventKind) {
        let what = match what {
            EventKind::Failed(FailureCause::Resources) if self.is_unrecorded => {
                EventKind::Failed(FailureCause::Unrecorded)
            }
            what => what,
        };
        if stage(self.state.phase) != GraphPhase::Stopping {
            self.failure = Some(what);
        } else if what != EventKind::Failed(FailureCause::StopTimeout) {
            self.emit(what);
        }
    }

    fn emit_up(&mut self, next: ServicePhase) {
        if !is_oneshot(&self.spec) {
            self.emit(EventKind::Ready);
        }
        if next == ServicePhase::Exited {
            self.emit_exit();
        }
    }

    /// Emits the successful exit of the main process.
    pub(crate) fn emit_exit(&mut self) {
        self.emit(EventKind::MainExited(self.good_exit()));
    }

    /// Emits the exit of the main process in a run that has failed for another reason, because
    /// restart rules depend on this exit.
    pub(crate) fn emit_main_exit(&mut self) {
        let exit = self.state.exit.map(ProcessExit::exit).filter(|exit| *exit != Exit::Unknown);
        if let Some(exit) = exit {
            self.emit(EventKind::MainExited(exit));
        }
    }

    fn emit_cause(&mut self) {
        if self.state.stop_requested || self.stopping_itself {
            return;
        }
        match self.failure {
            Some(what @ EventKind::MainExited(_)) => self.emit(what),
            Some(what) => {
                self.emit(what);
                self.emit_main_exit();
            }
            None if self.state.outcome == Some(RunOutcome::Condition) => {
                self.emit(EventKind::Skipped);
            }
            None => self.emit_exit(),
        }
    }

    fn good_exit(&self) -> Exit {
        let exit = self.state.exit.map_or(Exit::Status(0), ProcessExit::exit);
        // Another exit only counts as success because the command ignores failures.
        if self.spec.is_success(exit) { exit } else { Exit::Status(0) }
    }

    /// Returns the failure for a timeout in the current phase.
    pub(crate) fn timeout_event(&self) -> EventKind {
        EventKind::Failed(match stage(self.state.phase) {
            GraphPhase::Starting if self.state.awaits_main => FailureCause::Pidfile,
            GraphPhase::Starting => FailureCause::StartTimeout,
            GraphPhase::Stopping if self.is_ending() => FailureCause::StopTimeout,
            GraphPhase::Stopping => FailureCause::StopCommandTimeout,
            _ => FailureCause::RuntimeMax,
        })
    }
}

fn stage(phase: ServicePhase) -> GraphPhase {
    match phase {
        phase if phase.is_starting() => GraphPhase::Starting,
        phase if phase.is_reloading() => GraphPhase::Reloading,
        ServicePhase::Running | ServicePhase::Exited => GraphPhase::Up,
        phase if phase.is_stopping() => GraphPhase::Stopping,
        _ => GraphPhase::Over,
    }
}

fn is_success(outcome: RunOutcome) -> bool {
    outcome == RunOutcome::Success
}

impl ServiceRun {
    /// Returns whether the service has no main process, only start and stop commands.
    pub(crate) fn is_scripted(&self) -> bool {
        self.spec.kind == ServiceType::BackgroundScripted
    }
}

//! Pure: no I/O, no clock. Translates the phases of a run into events of the dependency graph.
//!
//! The graph distinguishes fewer phases ([`GraphPhase`]) than a run has. A change of phase within
//! one [`GraphPhase`] causes no event, apart from the exit of the main process of a running
//! service. If a failure stops the service, the event reports the first failure.

use std::time::Duration;

use fleet_core::graph::{EventKind, Exit, FailureCause, InitUnit};

use super::state::{RunOutcome, RunState, ServicePhase, is_oneshot};
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

/// Events of a run for the planner.
#[derive(Debug, Clone, Default)]
pub(super) struct GraphEvents {
    /// Events that the planner has not taken yet.
    pending: Vec<EventKind>,
    /// First failure of the run.
    failure: Option<EventKind>,
}

impl GraphEvents {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes the events so far, in order.
    pub(super) fn take(&mut self) -> Vec<EventKind> {
        std::mem::take(&mut self.pending)
    }

    pub(super) fn emit(&mut self, what: EventKind) {
        self.pending.push(what);
    }

    /// Emits the events of a transition to the next phase. `stops_itself` is whether the service
    /// has announced that it stops.
    pub(super) fn emit_transition(
        &mut self,
        spec: &InitUnit,
        state: &RunState,
        next: ServicePhase,
        stops_itself: bool,
    ) {
        use GraphPhase::{Over, Reloading, Starting, Stopping, Up};
        let is_expected = state.stop_requested || stops_itself;
        match (graph_phase(state.phase), graph_phase(next)) {
            (Starting, Up) => {
                if !is_oneshot(spec) {
                    self.emit(EventKind::Ready);
                }
                if next == ServicePhase::Exited {
                    self.emit_exit(spec, state);
                }
            }
            (Up, Up) if next == ServicePhase::Exited => self.emit_exit(spec, state),
            (Reloading, Up) => match state.reloaded {
                Some(outcome) => {
                    let well = outcome == RunOutcome::Success;
                    self.emit(EventKind::ReloadEnded { well });
                    if next == ServicePhase::Exited {
                        self.emit_exit(spec, state);
                    }
                }
                None => self.emit_exit(spec, state),
            },
            (Starting | Up | Reloading, Stopping) if is_expected => {}
            (Starting | Up | Reloading, Stopping) => self.emit_cause(spec, state),
            (Starting, Over) => {
                if !is_expected {
                    self.emit_cause(spec, state);
                }
                self.emit(EventKind::AllGone);
            }
            (Stopping, Over) => self.emit(EventKind::AllGone),
            _ => {}
        }
    }

    /// Emits the time limit of the current command or phase. The planner has a time limit of its
    /// own, and this event extends it. So the planner does not act before the run has reached its
    /// limit.
    pub(super) fn emit_time_limit(&mut self, spec: &InitUnit, state: &RunState) {
        let limits = &spec.timeouts;
        let (limit, times) = match state.phase {
            phase if phase.is_starting() => (limits.start, 1),
            // The planner has started the limit of the first command.
            ServicePhase::Reload if state.step > 0 => (limits.reload, 1),
            ServicePhase::StopWatchdog => (spec.run.watchdog_action.timeout, 1),
            ServicePhase::StopSigterm | ServicePhase::FinalSigterm => (limits.stop, 1),
            // The phases after these commands have their own limit, and are not a failure of the
            // commands.
            ServicePhase::Stop | ServicePhase::StopPost => (limits.stop, 2),
            _ => return,
        };
        let span = limit.map_or(UNLIMITED, |limit| limit.saturating_mul(times).min(UNLIMITED));
        self.emit(EventKind::Extend(span));
    }

    /// Emits the time within which a pid file has to name the main process; `None` if there is no
    /// limit. The planner gets [`PID_FILE_GRACE`] more, so that the run times out first. The run
    /// reports the missing main process, whereas the planner would only report a start timeout.
    pub(super) fn emit_pid_file_limit(&mut self, left: Option<Duration>) {
        let span = left.map(|left| left.saturating_add(PID_FILE_GRACE));
        self.emit(EventKind::Extend(span.unwrap_or(UNLIMITED).min(UNLIMITED)));
    }

    /// Records a failure as the reason why the service stops. If the service is already stopping,
    /// emits the failure at once, except for a stop timeout.
    pub(super) fn record_failure(&mut self, phase: ServicePhase, what: EventKind) {
        if graph_phase(phase) != GraphPhase::Stopping {
            self.failure = Some(what);
        } else if what != EventKind::Failed(FailureCause::StopTimeout) {
            self.emit(what);
        }
    }

    /// Emits the successful exit of the main process.
    pub(super) fn emit_exit(&mut self, spec: &InitUnit, state: &RunState) {
        let exit = state.exit.map_or(Exit::Status(0), ProcessExit::exit);
        // Another exit only counts as success because the command ignores failures.
        let exit = if spec.is_success(exit) { exit } else { Exit::Status(0) };
        self.emit(EventKind::MainExited(exit));
    }

    /// Emits the exit of the main process in a run that has failed for another reason, because
    /// restart rules depend on this exit.
    pub(super) fn emit_main_exit(&mut self, state: &RunState) {
        let exit = state.exit.map(ProcessExit::exit).filter(|exit| *exit != Exit::Unknown);
        if let Some(exit) = exit {
            self.emit(EventKind::MainExited(exit));
        }
    }

    fn emit_cause(&mut self, spec: &InitUnit, state: &RunState) {
        match self.failure {
            Some(what @ EventKind::MainExited(_)) => self.emit(what),
            Some(what) => {
                self.emit(what);
                self.emit_main_exit(state);
            }
            None if state.outcome == Some(RunOutcome::Condition) => self.emit(EventKind::Skipped),
            None => self.emit_exit(spec, state),
        }
    }
}

/// Returns the failure for a timeout in the current phase. `is_ending` is whether the run is in one
/// of the phases that signal its processes.
pub(super) fn timeout_event(state: &RunState, is_ending: bool) -> EventKind {
    EventKind::Failed(match graph_phase(state.phase) {
        GraphPhase::Starting if state.awaits_main => FailureCause::Pidfile,
        GraphPhase::Starting => FailureCause::StartTimeout,
        GraphPhase::Stopping if is_ending => FailureCause::StopTimeout,
        GraphPhase::Stopping => FailureCause::StopCommandTimeout,
        _ => FailureCause::RuntimeMax,
    })
}

fn graph_phase(phase: ServicePhase) -> GraphPhase {
    match phase {
        phase if phase.is_starting() => GraphPhase::Starting,
        phase if phase.is_reloading() => GraphPhase::Reloading,
        ServicePhase::Running | ServicePhase::Exited => GraphPhase::Up,
        phase if phase.is_stopping() => GraphPhase::Stopping,
        _ => GraphPhase::Over,
    }
}

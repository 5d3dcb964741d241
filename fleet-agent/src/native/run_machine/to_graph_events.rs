//! Pure: no I/O, no clock. What a run tells whoever decides about units.
//!
//! The phases here are finer than those of the graph. What is told follows from the step between
//! two of them, and from what has gone wrong, so that a run tells the same however it came about.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, Exit, FailureCause, ServiceType};

use super::ServiceRun;
use crate::native::outcome::{ProcessExit, RunOutcome, is_oneshot};
use crate::native::run_state::ServicePhase;

/// What stands for a time without an end.
const UNLIMITED: Duration = Duration::from_secs(u32::MAX as u64);

/// How much longer than the run itself whoever decides waits for its main process to be named.
const PID_FILE_GRACE: Duration = Duration::from_secs(10);

/// What a phase is to the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GraphPhase {
    Starting,
    Up,
    Reloading,
    Stopping,
    Over,
}

impl ServiceRun {
    /// Whether anything has happened since it was last taken.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What has happened since it was last taken, in order.
    pub(crate) fn take_events(&mut self) -> Vec<EventKind> {
        std::mem::take(&mut self.events)
    }

    /// Tells of a step into another phase.
    pub(super) fn emit_transition(&mut self, next: ServicePhase) {
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

    /// Asks for the time that a phase may take: whoever decides must not lose patience before.
    pub(super) fn emit_time_limit(&mut self) {
        let limits = &self.spec.timeouts;
        let (limit, times) = match self.state.phase {
            phase if phase.is_starting() => (limits.start, 1),
            ServicePhase::StopWatchdog => (self.spec.run.watchdog_action.timeout, 1),
            ServicePhase::StopSigterm | ServicePhase::FinalSigterm => (limits.stop, 1),
            // What follows has its own time, and is not a failure of these commands.
            ServicePhase::Stop | ServicePhase::StopPost => (limits.stop, 2),
            _ => return,
        };
        let span = limit.map_or(UNLIMITED, |limit| limit.saturating_mul(times).min(UNLIMITED));
        self.emit(EventKind::Extend(span));
    }

    /// Only the run knows that it has come to that, so it has to be the first to say that the time
    /// is over: to whoever decides the unit would be merely late.
    pub(super) fn emit_pid_file_limit(&mut self, now: Timestamp) {
        let span = self.deadline.map(|until| until.since(now).saturating_add(PID_FILE_GRACE));
        self.emit(EventKind::Extend(span.unwrap_or(UNLIMITED).min(UNLIMITED)));
    }

    pub(super) fn emit(&mut self, what: EventKind) {
        self.events.push(what);
    }

    /// The first thing that goes wrong is why a run ends. One that goes wrong while it ends is told
    /// at once.
    pub(super) fn record_failure(&mut self, what: EventKind) {
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

    /// Its main process has ended well.
    pub(super) fn emit_exit(&mut self) {
        self.emit(EventKind::MainExited(self.good_exit()));
    }

    /// How its main process has ended in a run that failed by something else: it counts for whether
    /// the unit is started again.
    pub(super) fn emit_main_exit(&mut self) {
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
                self.emit(EventKind::Skipped)
            }
            None => self.emit_exit(),
        }
    }

    fn good_exit(&self) -> Exit {
        let exit = self.state.exit.map_or(Exit::Status(0), ProcessExit::exit);
        // Another end is a good one only because its command says that it does not matter.
        if self.spec.is_success(exit) { exit } else { Exit::Status(0) }
    }

    /// What a time-out of the present phase is a failure of.
    pub(super) fn timeout_event(&self) -> EventKind {
        EventKind::Failed(match stage(self.state.phase) {
            GraphPhase::Starting if self.state.awaits_main => FailureCause::Pidfile,
            GraphPhase::Starting => FailureCause::StartTimeout,
            GraphPhase::Stopping if self.is_ending() => FailureCause::StopTimeout,
            GraphPhase::Stopping => FailureCause::Script(Exit::Unknown),
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
    /// Whether it is up without a main process, as one that only its commands start and end.
    pub(super) fn is_scripted(&self) -> bool {
        self.spec.kind == ServiceType::BackgroundScripted
    }
}

//! Pure: no I/O, no clock. What a run tells whoever decides about units.
//!
//! The phases here are finer than those of the graph. What is told follows from the step between
//! two of them, and from what has gone wrong, so that a run tells the same however it came about.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{Cause, Exit, Happening, Kind};

use super::Service;
use crate::native::life::Phase;
use crate::native::outcome::{End, Outcome, is_oneshot};

/// What stands for a time without an end.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How much longer than the run itself whoever decides waits for its main process to be named.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a phase is to the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Up,
    Reloading,
    Stopping,
    Over,
}

impl Service {
    /// Whether anything has happened since it was last taken.
    pub(crate) fn has_happenings(&self) -> bool {
        !self.happenings.is_empty()
    }

    /// What has happened since it was last taken, in order.
    pub(crate) fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    /// Tells of a step into another phase.
    pub(super) fn tell_step(&mut self, next: Phase) {
        use Stage::{Over, Reloading, Starting, Stopping, Up};
        match (stage(self.now.phase), stage(next)) {
            (Starting, Up) => self.tell_up(next),
            (Up, Up) if next == Phase::Exited => self.tell_exit(),
            (Reloading, Up) => match self.now.reloaded {
                Some(outcome) => {
                    self.tell(Happening::ReloadEnded { well: is_good(outcome) });
                    if next == Phase::Exited {
                        self.tell_exit();
                    }
                }
                None => self.tell_exit(),
            },
            (Starting | Up | Reloading, Stopping) => self.tell_why(),
            (Starting, Over) => {
                self.tell_why();
                self.tell(Happening::AllGone);
            }
            (Stopping, Over) => self.tell(Happening::AllGone),
            _ => {}
        }
    }

    /// Asks for the time that a phase may take: whoever decides must not lose patience before.
    pub(super) fn tell_time(&mut self) {
        let limits = &self.spec.time_outs;
        let (limit, times) = match self.now.phase {
            phase if phase.is_starting() => (limits.start, 1),
            Phase::StopWatchdog => (self.spec.run.abort.time_out, 1),
            Phase::StopSigterm | Phase::FinalSigterm => (limits.stop, 1),
            // What follows has its own time, and is not a failure of these commands.
            Phase::Stop | Phase::StopPost => (limits.stop, 2),
            _ => return,
        };
        let span = limit.map_or(FOR_EVER, |limit| limit.saturating_mul(times).min(FOR_EVER));
        self.tell(Happening::Extend(span));
    }

    /// Only the run knows that it has come to that, so it has to be the first to say that the time
    /// is over: to whoever decides the unit would be merely late.
    pub(super) fn tell_time_to_await_main(&mut self, now: Timestamp) {
        let span = self.deadline.map(|until| until.since(now).saturating_add(PATIENCE));
        self.tell(Happening::Extend(span.unwrap_or(FOR_EVER).min(FOR_EVER)));
    }

    pub(super) fn tell(&mut self, what: Happening) {
        self.happenings.push(what);
    }

    /// The first thing that goes wrong is why a run ends. One that goes wrong while it ends is told
    /// at once.
    pub(super) fn note_failure(&mut self, what: Happening) {
        if stage(self.now.phase) != Stage::Stopping {
            self.blamed = Some(what);
        } else if what != Happening::Failed(Cause::StopTimeOut) {
            self.tell(what);
        }
    }

    fn tell_up(&mut self, next: Phase) {
        if !is_oneshot(&self.spec) {
            self.tell(Happening::Ready);
        }
        if next == Phase::Exited {
            self.tell_exit();
        }
    }

    /// Its main process has ended well.
    pub(super) fn tell_exit(&mut self) {
        self.tell(Happening::MainExited(self.good_exit()));
    }

    /// How its main process has ended in a run that failed by something else: it counts for whether
    /// the unit is started again.
    pub(super) fn tell_end(&mut self) {
        let exit = self.now.exit.map(End::exit).filter(|exit| *exit != Exit::Unknown);
        if let Some(exit) = exit {
            self.tell(Happening::MainExited(exit));
        }
    }

    fn tell_why(&mut self) {
        if self.now.stop_asked || self.leaving {
            return;
        }
        match self.blamed {
            Some(what @ Happening::MainExited(_)) => self.tell(what),
            Some(what) => {
                self.tell(what);
                self.tell_end();
            }
            None if self.now.outcome == Some(Outcome::Condition) => self.tell(Happening::Skipped),
            None => self.tell_exit(),
        }
    }

    fn good_exit(&self) -> Exit {
        let exit = self.now.exit.map_or(Exit::Status(0), End::exit);
        // Another end is a good one only because its command says that it does not matter.
        if self.spec.is_success(exit) { exit } else { Exit::Status(0) }
    }

    /// What a time-out of the present phase is a failure of.
    pub(super) fn late(&self) -> Happening {
        Happening::Failed(match stage(self.now.phase) {
            Stage::Starting if self.now.awaits_main => Cause::Pidfile,
            Stage::Starting => Cause::StartTimeOut,
            Stage::Stopping if self.is_ending() => Cause::StopTimeOut,
            Stage::Stopping => Cause::Script(Exit::Unknown),
            _ => Cause::RuntimeMax,
        })
    }
}

fn stage(phase: Phase) -> Stage {
    match phase {
        phase if phase.is_starting() => Stage::Starting,
        phase if phase.is_reloading() => Stage::Reloading,
        Phase::Running | Phase::Exited => Stage::Up,
        phase if phase.is_stopping() => Stage::Stopping,
        _ => Stage::Over,
    }
}

fn is_good(outcome: Outcome) -> bool {
    outcome == Outcome::Success
}

impl Service {
    /// Whether it is up without a main process, as one that only its commands start and end.
    pub(super) fn is_scripted(&self) -> bool {
        self.spec.kind == Kind::BackgroundScripted
    }
}

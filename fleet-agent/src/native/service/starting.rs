//! Pure: no I/O, no clock. Whether a service starts at all, and when one is ready that does not say
//! so itself.

use fleet_core::Timestamp;
use fleet_core::graph::{Cause, Happening, Kind, NotifyAccess, Readiness};

use super::Service;
use crate::native::life::{Action, Phase};
use crate::native::outcome::{End, Outcome, command_outcome};

impl Service {
    /// Something is not so that has to be so for it to start.
    pub(crate) fn on_condition(&mut self, is_failure: bool, now: Timestamp) {
        self.actions.clear();
        self.now.spawning = None;
        let (outcome, phase) = match is_failure {
            true => (Outcome::Assert, Phase::Failed),
            false => (Outcome::Condition, Phase::Dead),
        };
        self.now.outcome = Some(outcome);
        if is_failure {
            self.blamed = Some(Happening::Failed(Cause::Assertion));
        }
        self.enter(phase, now);
    }

    /// Whether what it does first lasts, so that it is seen. One that is up as soon as its program
    /// is executed is down until then, and so is one that a condition may keep from starting.
    pub(crate) fn is_seen_to_start(&self) -> bool {
        let is_up_at_once = self.now.phase == Phase::Start
            && self.spec.kind == Kind::ForegroundSupervised(Readiness::Executed);
        self.spec.run.conditions.is_empty() && !is_up_at_once
    }

    /// A line of its output says that it is ready.
    pub(crate) fn on_line(&mut self, now: Timestamp) {
        if self.now.phase == Phase::Start && self.now.main.is_some() {
            self.enter_list(Phase::StartPost, now);
        }
    }

    /// What the end of one of its commands means; those of `ExecCondition=` decide.
    pub(super) fn verdict_of(&self, end: End) -> Outcome {
        match (self.now.phase, end, command_outcome(&self.spec, end)) {
            (Phase::Condition, End::Code(1..=254), Outcome::ExitCode) => Outcome::Condition,
            (.., outcome) => outcome,
        }
    }

    /// Its main process runs; it may be ready by that alone.
    pub(super) fn begin_to_be_ready(&mut self, now: Timestamp) {
        match &self.spec.kind {
            Kind::ForegroundSupervised(Readiness::Executed) => {
                self.enter_list(Phase::StartPost, now);
            }
            Kind::ForegroundSupervised(Readiness::Alive(span)) => {
                self.ready_at = Some(now.after(*span));
            }
            Kind::ForegroundSupervised(Readiness::Line(_)) => {
                self.actions.push_back(Action::AwaitLine);
            }
            _ => {}
        }
    }

    /// When it has lived for long enough to be ready.
    pub(super) fn ready_at(&self) -> Option<Timestamp> {
        self.ready_at.filter(|_| self.now.phase == Phase::Start && self.now.main.is_some())
    }

    /// Whether it is not ready before others than its main process have done something: it is over
    /// once none of them is left.
    pub(crate) fn awaits_others(&self) -> bool {
        self.now.awaits_main || self.outlives_main()
    }

    /// Whether it is yet to be said to be ready, by others than its main process, which has ended.
    pub(super) fn outlives_main(&self) -> bool {
        let runs_main = self.now.main.is_some() || self.now.spawning.is_some();
        let others_speak =
            matches!(self.spec.run.notify_access, NotifyAccess::Exec | NotifyAccess::All);
        let notified = self.spec.kind == Kind::ForegroundNotified;
        self.now.phase == Phase::Start && notified && !runs_main && others_speak && self.remains()
    }

    /// None is left that could say that it is ready, or be its main process.
    pub(super) fn give_up_ready(&mut self, now: Timestamp) {
        self.now.awaits_main = false;
        self.blame(Outcome::Protocol, Happening::Failed(Cause::Protocol));
        self.enter_stop_post(now);
    }

    /// Whether its start is over by something else than the end of its command.
    pub(super) fn promises(&self) -> bool {
        matches!(self.spec.kind, Kind::BackgroundPidfile { .. } | Kind::ForegroundNotified)
    }
}

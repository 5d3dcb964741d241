//! Pure: no I/O, no clock. Whether a service starts at all, and when one is ready that does not say
//! so itself.

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, FailureCause, NotifyAccess, Readiness, ServiceType};

use super::ServiceRun;
use crate::native::outcome::{ProcessExit, RunOutcome, command_outcome};
use crate::native::run_state::{RunAction, ServicePhase};

impl ServiceRun {
    /// Something is not so that has to be so for it to start.
    pub(crate) fn on_condition(&mut self, is_failure: bool, now: Timestamp) {
        self.actions.clear();
        self.state.spawning = None;
        let (outcome, phase) = match is_failure {
            true => (RunOutcome::Assert, ServicePhase::Failed),
            false => (RunOutcome::Condition, ServicePhase::Dead),
        };
        self.state.outcome = Some(outcome);
        if is_failure {
            self.failure = Some(EventKind::Failed(FailureCause::Assertion));
        }
        self.enter(phase, now);
    }

    /// Whether what it does first lasts, so that it is seen. One that is up as soon as its program
    /// is executed is down until then, and so is one that a condition may keep from starting.
    pub(crate) fn has_visible_start(&self) -> bool {
        let is_up_at_once = self.state.phase == ServicePhase::Start
            && self.spec.kind == ServiceType::ForegroundSupervised(Readiness::Executed);
        self.spec.run.conditions.is_empty() && !is_up_at_once
    }

    /// A line of its output says that it is ready.
    pub(crate) fn on_line(&mut self, now: Timestamp) {
        if self.state.phase == ServicePhase::Start && self.state.main.is_some() {
            self.enter_list(ServicePhase::StartPost, now);
        }
    }

    /// What the end of one of its commands means; those of `ExecCondition=` decide.
    pub(super) fn outcome_of(&self, end: ProcessExit) -> RunOutcome {
        match (self.state.phase, end, command_outcome(&self.spec, end)) {
            (ServicePhase::Condition, ProcessExit::Code(1..=254), RunOutcome::ExitCode) => {
                RunOutcome::Condition
            }
            (.., outcome) => outcome,
        }
    }

    /// Its main process runs; it may be ready by that alone.
    pub(super) fn await_readiness(&mut self, now: Timestamp) {
        match &self.spec.kind {
            ServiceType::ForegroundSupervised(Readiness::Executed) => {
                self.enter_list(ServicePhase::StartPost, now);
            }
            ServiceType::ForegroundSupervised(Readiness::Alive(span)) => {
                self.ready_at = Some(now.after(*span));
            }
            ServiceType::ForegroundSupervised(Readiness::Line(_)) => {
                self.actions.push_back(RunAction::AwaitLine);
            }
            _ => {}
        }
    }

    /// When it has lived for long enough to be ready.
    pub(super) fn ready_at(&self) -> Option<Timestamp> {
        self.ready_at
            .filter(|_| self.state.phase == ServicePhase::Start && self.state.main.is_some())
    }

    /// Whether it is not ready before others than its main process have done something: it is over
    /// once none of them is left.
    pub(crate) fn awaits_others(&self) -> bool {
        self.state.awaits_main || self.outlives_main()
    }

    /// Whether it is yet to be said to be ready, by others than its main process, which has ended.
    pub(super) fn outlives_main(&self) -> bool {
        let runs_main = self.state.main.is_some() || self.state.spawning.is_some();
        let others_speak =
            matches!(self.spec.run.notify_access, NotifyAccess::Exec | NotifyAccess::All);
        let notified = self.spec.kind == ServiceType::ForegroundNotified;
        self.state.phase == ServicePhase::Start
            && notified
            && !runs_main
            && others_speak
            && self.remains_after_exit()
    }

    /// None is left that could say that it is ready, or be its main process.
    pub(super) fn fail_readiness(&mut self, now: Timestamp) {
        self.state.awaits_main = false;
        self.record_outcome(RunOutcome::Protocol, EventKind::Failed(FailureCause::Protocol));
        self.enter_stop_post(now);
    }

    /// Whether its start is over by something else than the end of its command.
    pub(super) fn must_announce_ready(&self) -> bool {
        matches!(
            self.spec.kind,
            ServiceType::BackgroundPidfile { .. } | ServiceType::ForegroundNotified
        )
    }
}

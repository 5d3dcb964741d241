//! Pure: no I/O, no clock. Start conditions of a service, and its readiness if it sends no
//! `READY=1`.

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, FailureCause, NotifyAccess, Readiness, ServiceType};

use super::ServiceRun;
use super::outcome::{RunOutcome, command_outcome};
use super::state::{RunAction, ServicePhase};
use crate::native::linux::exit::ProcessExit;

impl ServiceRun {
    /// Handles a condition or assertion that does not hold.
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

    /// Returns whether the new run is published as starting as soon as it begins.
    ///
    /// In two cases the state of the previous run stays published until the first report of the new
    /// run:
    ///
    /// - The service is active as soon as its program is executed.
    /// - The service has conditions, so the start may be skipped.
    pub(crate) fn publishes_start(&self) -> bool {
        let is_up_at_once = self.state.phase == ServicePhase::Start
            && self.spec.kind == ServiceType::ForegroundSupervised(Readiness::Executed);
        self.spec.run.conditions.is_empty() && !is_up_at_once
    }

    /// Handles an output line that signals readiness.
    pub(crate) fn on_line(&mut self, now: Timestamp) {
        if self.state.phase == ServicePhase::Start && self.state.main.is_some() {
            self.enter_list(ServicePhase::StartPost, now);
        }
    }

    /// Returns the outcome that the exit of a control process has for the run. In the condition
    /// phase, an exit code from 1 to 254 means that the start is skipped.
    pub(crate) fn outcome_of(&self, end: ProcessExit) -> RunOutcome {
        match (self.state.phase, end, command_outcome(&self.spec, end)) {
            (ServicePhase::Condition, ProcessExit::Code(1..=254), RunOutcome::ExitCode) => {
                RunOutcome::Condition
            }
            (.., outcome) => outcome,
        }
    }

    /// Handles the start of the main process, which may be enough for readiness.
    pub(crate) fn await_readiness(&mut self, now: Timestamp) {
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

    /// Returns the time at which the service counts as ready, provided that its main process still
    /// runs then.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        self.ready_at
            .filter(|_| self.state.phase == ServicePhase::Start && self.state.main.is_some())
    }

    /// Returns whether the service has no main process, but may still become ready through its
    /// other processes. Once none of these processes is left, the start has failed.
    pub(crate) fn awaits_readiness_without_main(&self) -> bool {
        self.state.awaits_main || self.outlives_main()
    }

    /// Returns whether the main process has exited before the service was ready, and other
    /// processes may still send `READY=1`.
    pub(crate) fn outlives_main(&self) -> bool {
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

    /// Fails the start, because no process is left that could send `READY=1` or become the main
    /// process.
    pub(crate) fn fail_readiness(&mut self, now: Timestamp) {
        self.state.awaits_main = false;
        self.record_outcome(RunOutcome::Protocol, EventKind::Failed(FailureCause::Protocol));
        self.enter_stop_post(now);
    }

    /// Returns whether the start needs more than the exit of its command.
    pub(crate) fn must_announce_ready(&self) -> bool {
        matches!(
            self.spec.kind,
            ServiceType::BackgroundPidfile { .. } | ServiceType::ForegroundNotified
        )
    }
}

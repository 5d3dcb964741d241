//! Pure: no I/O, no clock. Starting, stopping and reloading a service.
//!
//! ```text
//! 1. running ──> reload ──> running
//! 2. running ──> reload ──> reload-notify ──> running
//! 3. running ──> reload-signal ──> reload-notify ──> running
//! 4. running ──> reload-notify ──> running
//! ```
//!
//! 1. The phase `reload` runs the commands of `ExecReload=`.
//! 2. If the service sends `RELOADING=1` meanwhile, the reload lasts until it sends `READY=1`.
//! 3. With `Type=notify-reload`, the reload begins with a signal to the main process. The service
//!    answers with `RELOADING=1`, and later with `READY=1`.
//! 4. The service sends `RELOADING=1` without a request, because it reloads on its own.
//!
//! If a reload fails, the failure is reported and the service keeps running. If the main process
//! exits while reload commands run, its exit is handled after these commands have ended.

use fleet_core::Timestamp;
use fleet_core::graph::{
    EventKind, ExitType, FailureCause, KillMode, NotifyAccess, Readiness, ServiceType, StopReason,
};

use super::ServiceRun;
use super::state::{RunAction, RunOutcome, ServicePhase, SignalScope, command_outcome};
use crate::native::linux::exit::{ProcessExit, Sig};
use crate::native::linux::process_info::ProcessId;

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
            self.record_failure(EventKind::Failed(FailureCause::Assertion));
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
            && (self.remains_after_exit() || self.spec.run.exit_type == ExitType::Cgroup)
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

impl ServiceRun {
    /// Stops the run. One that is stopping already continues to do so.
    pub(crate) fn stop(&mut self, reason: &StopReason, now: Timestamp) {
        match reason {
            StopReason::Failed(cause) if !self.state.phase.is_stopping() => {
                self.record_outcome(RunOutcome::Timeout, EventKind::Failed(*cause));
            }
            StopReason::Failed(_) | StopReason::Completed | StopReason::Skipped => {}
            _ => self.state.stop_requested |= !self.is_idle(),
        }
        match self.state.phase {
            // A command may still run.
            phase if phase.is_starting() || phase == ServicePhase::Reload => {
                self.signal(ServicePhase::StopSigterm, now);
            }
            ServicePhase::Running
            | ServicePhase::Exited
            | ServicePhase::ReloadSignal
            | ServicePhase::ReloadNotify => {
                self.enter_list(ServicePhase::Stop, now);
            }
            _ => {}
        }
    }

    /// Escalates to the final signal: the deadline of the planner has passed.
    pub(crate) fn kill(&mut self, now: Timestamp) {
        if self.is_idle() {
            return;
        }
        self.record_outcome(RunOutcome::Timeout, EventKind::Failed(FailureCause::StopTimeout));
        let may_kill = self.spec.run.kill.send_sigkill;
        match self.state.phase {
            ServicePhase::StopSigkill | ServicePhase::FinalSigkill => {}
            ServicePhase::StopPost | ServicePhase::FinalSigterm if may_kill => {
                self.signal(ServicePhase::FinalSigkill, now);
            }
            ServicePhase::StopPost | ServicePhase::FinalSigterm => self.finish(now),
            _ if may_kill => self.signal(ServicePhase::StopSigkill, now),
            _ => self.enter_stop_post(now),
        }
    }

    /// Enters a phase that sends a signal and waits for its effect.
    pub(crate) fn signal(&mut self, phase: ServicePhase, now: Timestamp) {
        self.enter(phase, now);
        self.all_gone = false;
        self.stopping_itself = false;
        self.state.awaits_main = false;
        self.state.spawning = None;
        let reach = self.reach();
        if reach == SignalScope::Leaders
            && self.state.main.is_none()
            && self.state.control.is_none()
        {
            return self.after_signal(now);
        }
        let kill = self.spec.run.kill;
        let gentle = matches!(phase, ServicePhase::StopSigterm | ServicePhase::FinalSigterm);
        let signal = match phase {
            ServicePhase::StopWatchdog => self.spec.run.watchdog_action.signal,
            _ if gentle => kill.signal,
            _ => kill.final_signal,
        };
        let hangs_up = gentle && kill.send_sighup;
        self.actions.push_back(RunAction::Signal { signal: Sig::from(signal), hangs_up, reach });
    }

    pub(crate) fn end_if_gone(&mut self, now: Timestamp) {
        let leaders_gone = self.state.main.is_none() && self.state.control.is_none();
        if self.is_ending() && leaders_gone && (self.all_gone || self.reach() != SignalScope::All) {
            self.after_signal(now);
        }
    }

    fn after_signal(&mut self, now: Timestamp) {
        let then_kill =
            self.spec.run.kill.mode == KillMode::Mixed && self.spec.run.kill.send_sigkill;
        match self.state.phase {
            ServicePhase::StopWatchdog | ServicePhase::StopSigterm if then_kill => {
                self.signal(ServicePhase::StopSigkill, now);
            }
            ServicePhase::FinalSigterm if then_kill => self.signal(ServicePhase::FinalSigkill, now),
            ServicePhase::StopWatchdog | ServicePhase::StopSigterm | ServicePhase::StopSigkill => {
                self.enter_stop_post(now);
            }
            _ => self.finish(now),
        }
    }

    pub(crate) fn enter_stop_post(&mut self, now: Timestamp) {
        // Processes that survive SIGKILL are given up.
        (self.state.main, self.state.control) = (None, None);
        if self.spec.run.stop_post.is_empty() {
            self.finish(now);
        } else {
            self.enter_list(ServicePhase::StopPost, now);
        }
    }

    pub(crate) fn finish(&mut self, now: Timestamp) {
        (self.state.main, self.state.control) = (None, None);
        let outcome = self.state.outcome.unwrap_or(RunOutcome::Success);
        let failed = !matches!(outcome, RunOutcome::Success | RunOutcome::Condition);
        self.enter(if failed { ServicePhase::Failed } else { ServicePhase::Dead }, now);
    }

    fn reach(&self) -> SignalScope {
        let killing =
            matches!(self.state.phase, ServicePhase::StopSigkill | ServicePhase::FinalSigkill);
        match self.spec.run.kill.mode {
            KillMode::ControlGroup => SignalScope::All,
            KillMode::Mixed if killing => SignalScope::All,
            KillMode::Mixed | KillMode::Process => SignalScope::Leaders,
        }
    }
}

impl ServiceRun {
    /// Starts a reload of the configuration. Does nothing if a reload is already in progress.
    ///
    /// # Errors
    ///
    /// The reason why the service cannot be reloaded, and a remedy.
    pub(crate) fn reload(&mut self, now: Timestamp) -> Result<(), &'static str> {
        match self.state.phase {
            phase if phase.is_reloading() => return Ok(()),
            ServicePhase::Running | ServicePhase::Exited => self.state.reloaded = None,
            _ => return Err("it is not active: start it"),
        }
        match (self.spec.run.reload_signal, self.state.main) {
            (Some(signal), Some(process)) => {
                self.enter(ServicePhase::ReloadSignal, now);
                self.actions.push_back(RunAction::SignalProcess { process, signal: signal.into() });
            }
            _ if self.spec.run.reload.is_empty() => {
                return Err("its file has no ExecReload=: add one, or restart the unit");
            }
            _ => self.enter_list(ServicePhase::Reload, now),
        }
        Ok(())
    }

    /// Starts a reload. If that is impossible, reports a failed reload.
    pub(crate) fn reload_or_report(&mut self, now: Timestamp) {
        if self.reload(now).is_err() {
            self.events.emit(EventKind::ReloadEnded { well: false });
        }
    }

    /// Returns whether this exit ends a successful reload: the last command has succeeded.
    pub(crate) fn ends_reload(&self, process: ProcessId, end: ProcessExit) -> bool {
        let runs = self.state.phase == ServicePhase::Reload && self.state.control == Some(process);
        runs && self.state.step + 1 == self.commands().len() && self.is_success(end)
    }

    /// Handles the success of all reload commands. If the service has sent `RELOADING=1`
    /// meanwhile, the reload goes on until the service sends `READY=1`.
    pub(crate) fn end_commands_of_reload(&mut self, now: Timestamp) {
        if self.reloading {
            self.enter(ServicePhase::ReloadNotify, now);
        } else {
            self.end_reload(RunOutcome::Success, now);
        }
    }

    /// Ends the reload. The service keeps running.
    pub(crate) fn end_reload(&mut self, outcome: RunOutcome, now: Timestamp) {
        self.state.reloaded = Some(outcome);
        self.state.spawning = None;
        if let Some(process) = self.state.control.take() {
            self.actions.push_back(RunAction::SignalProcess { process, signal: Sig::KILL });
        }
        let is_well = self.state.outcome == Some(RunOutcome::Success);
        if is_well && self.has_running_part() {
            self.enter(ServicePhase::Running, now);
        } else {
            // The main process may have exited meanwhile.
            self.enter_running(now);
        }
    }
}

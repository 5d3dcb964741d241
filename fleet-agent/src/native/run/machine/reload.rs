//! Pure: no I/O, no clock. Reloads the configuration of an active service.
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
use fleet_core::graph::EventKind;

use super::ServiceRun;
use super::outcome::RunOutcome;
use super::state::{RunAction, ServicePhase};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;
use crate::native::linux::signals::Sig;

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
            self.emit(EventKind::ReloadEnded { well: false });
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
        if is_well && (self.state.main.is_some() || self.is_scripted()) {
            self.enter(ServicePhase::Running, now);
        } else {
            // The main process may have exited meanwhile.
            self.enter_running(now);
        }
    }
}

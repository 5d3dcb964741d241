//! Pure: no I/O, no clock. How a service that is up reads its configuration again.
//!
//! ```text
//! running ──> reload ────────────┬──> running     commands, as ExecReload= has them
//!    │           └─> reload-notify ──> running    and the service itself says that it is ready
//!    ├──> reload-signal ──> reload-notify ──> running    a signal, as Type=notify-reload has it
//!    └──> reload-notify ──> running                by itself
//! ```
//!
//! A reload that fails is told, and harms nothing: the service runs on as it was. A main process
//! that ends meanwhile does not end the commands; it is looked at once they are over.

use fleet_core::Timestamp;
use fleet_core::graph::EventKind;

use super::ServiceRun;
use crate::native::outcome::{ProcessExit, RunOutcome};
use crate::native::run_state::{ProcessId, RunAction, ServicePhase};
use crate::native::signals::Sig;

impl ServiceRun {
    /// A person wants it to read its configuration again. One that does already is joined.
    ///
    /// # Errors
    ///
    /// Why it cannot, in a person's words.
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
                return Err("its file does not say how: add an ExecReload=, or restart it");
            }
            _ => self.enter_list(ServicePhase::Reload, now),
        }
        Ok(())
    }

    /// Whoever decides has it read its configuration again. What keeps it from that is a reload
    /// that failed.
    pub(crate) fn reload_or_report(&mut self, now: Timestamp) {
        if self.reload(now).is_err() {
            self.emit(EventKind::ReloadEnded { well: false });
        }
    }

    /// Whether this is the end of the last command of a reload that went well.
    pub(super) fn ends_reload(&self, process: ProcessId, end: ProcessExit) -> bool {
        let runs = self.state.phase == ServicePhase::Reload && self.state.control == Some(process);
        runs && self.state.step + 1 == self.commands().len() && self.is_success(end)
    }

    /// The commands have ended well. The service may have said meanwhile that it goes on.
    pub(super) fn end_commands_of_reload(&mut self, now: Timestamp) {
        if self.reloading {
            self.enter(ServicePhase::ReloadNotify, now);
        } else {
            self.end_reload(RunOutcome::Success, now);
        }
    }

    /// The reload is over, and the service runs on.
    pub(super) fn end_reload(&mut self, outcome: RunOutcome, now: Timestamp) {
        self.state.reloaded = Some(outcome);
        self.state.spawning = None;
        if let Some(process) = self.state.control.take() {
            self.actions.push_back(RunAction::SignalProcess { process, signal: Sig::KILL });
        }
        let is_well = self.state.outcome == Some(RunOutcome::Success);
        if is_well && (self.state.main.is_some() || self.is_scripted()) {
            self.enter(ServicePhase::Running, now);
        } else {
            // Its main process may have ended meanwhile.
            self.enter_running(now);
        }
    }
}

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
use fleet_core::graph::Happening;

use super::Service;
use crate::native::life::{Action, Phase, ProcessId};
use crate::native::outcome::{End, Outcome};
use crate::native::signals::Sig;

impl Service {
    /// A person wants it to read its configuration again. One that does already is joined.
    ///
    /// # Errors
    ///
    /// Why it cannot, in a person's words.
    pub(crate) fn reload(&mut self, now: Timestamp) -> Result<(), &'static str> {
        match self.now.phase {
            phase if phase.is_reloading() => return Ok(()),
            Phase::Running | Phase::Exited => self.now.reloaded = None,
            _ => return Err("it is not active: start it"),
        }
        match (self.spec.run.reload_signal, self.now.main) {
            (Some(signal), Some(process)) => {
                self.enter(Phase::ReloadSignal, now);
                self.actions.push_back(Action::Tell { process, signal: signal.into() });
            }
            _ if self.spec.run.reload.is_empty() => {
                return Err("its file does not say how: add an ExecReload=, or restart it");
            }
            _ => self.enter_list(Phase::Reload, now),
        }
        Ok(())
    }

    /// Whoever decides has it read its configuration again. What keeps it from that is a reload
    /// that failed.
    pub(crate) fn obey_reload(&mut self, now: Timestamp) {
        if self.reload(now).is_err() {
            self.tell(Happening::ReloadEnded { well: false });
        }
    }

    /// Whether this is the end of the last command of a reload that went well.
    pub(super) fn ends_reload(&self, process: ProcessId, end: End) -> bool {
        let runs = self.now.phase == Phase::Reload && self.now.control == Some(process);
        runs && self.now.step + 1 == self.commands().len() && self.is_good(end)
    }

    /// The commands have ended well. The service may have said meanwhile that it goes on.
    pub(super) fn end_commands_of_reload(&mut self, now: Timestamp) {
        if self.reloading {
            self.enter(Phase::ReloadNotify, now);
        } else {
            self.end_reload(Outcome::Success, now);
        }
    }

    /// The reload is over, and the service runs on.
    pub(super) fn end_reload(&mut self, outcome: Outcome, now: Timestamp) {
        self.now.reloaded = Some(outcome);
        self.now.spawning = None;
        if let Some(process) = self.now.control.take() {
            self.actions.push_back(Action::Tell { process, signal: Sig::KILL });
        }
        let is_well = self.now.outcome == Some(Outcome::Success);
        if is_well && (self.now.main.is_some() || self.is_scripted()) {
            self.enter(Phase::Running, now);
        } else {
            // Its main process may have ended meanwhile.
            self.enter_running(now);
        }
    }
}

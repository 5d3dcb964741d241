//! Pure: no I/O, no clock. Messages of `sd_notify`, and their effects.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, FailureCause, ServiceType};

use super::ServiceRun;
use super::outcome::RunOutcome;
use super::sd_notify_message::{NotifyMessage, WatchdogMessage};
use super::state::{RunAction, ServicePhase};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;

impl ServiceRun {
    /// Handles a message of the service, except for `MAINPID=`. For the latter, the driver calls
    /// [`on_main`](Self::on_main) once it has verified the process.
    pub(crate) fn on_message(&mut self, message: &NotifyMessage, now: Timestamp) {
        if let Some(status) = &message.status {
            self.state.status = Some(status.clone());
        }
        if message.watchdog_span.is_some() {
            self.watchdog = message.watchdog_span;
            self.feed_watchdog(now);
        }
        if message.is_stopping {
            self.on_stopping(now);
        } else {
            if message.is_reloading {
                self.on_reloading(now);
            }
            if message.is_ready {
                self.on_ready(now);
            }
        }
        match message.watchdog {
            Some(WatchdogMessage::Alive) => self.feed_watchdog(now),
            Some(WatchdogMessage::Trigger) if self.is_up() => self.watchdog_expired(now),
            _ => {}
        }
        if let Some(span) = message.extension {
            self.extend_deadline(span, now);
        }
    }

    /// Sets the main process to the one that the pid file or a `MAINPID=` message names. Does
    /// nothing in phases in which the main process may not change.
    pub(crate) fn on_main(&mut self, process: ProcessId, now: Timestamp) {
        if !self.may_change_main() {
            return;
        }
        self.state.main = Some(process);
        if std::mem::take(&mut self.state.awaits_main) && self.state.phase == ServicePhase::Start {
            self.enter_list(ServicePhase::StartPost, now);
        }
    }

    /// Returns whether the pid file has to be read before the exit of `process` is handled, because
    /// it may name a new main process. This applies to the main process, and to the last command of
    /// a successful reload.
    pub(crate) fn needs_pid_file_before_exit(&self, process: ProcessId, end: ProcessExit) -> bool {
        let is_main = self.state.main == Some(process);
        self.is_forking() && self.may_change_main() && (is_main || self.ends_reload(process, end))
    }

    /// Returns whether the service may name a new main process. It may do so in the phases `start`
    /// and `start-post`, and while it is up.
    fn may_change_main(&self) -> bool {
        matches!(self.state.phase, ServicePhase::Start | ServicePhase::StartPost) || self.is_up()
    }

    fn on_ready(&mut self, now: Timestamp) {
        self.reloading = false;
        match self.state.phase {
            ServicePhase::Start if self.outlives_main() => {
                self.enter_list(ServicePhase::StartPost, now);
            }
            ServicePhase::Start
                if self.spec.kind == ServiceType::ForegroundNotified
                    && self.state.main.is_some() =>
            {
                self.enter_list(ServicePhase::StartPost, now);
            }
            ServicePhase::ReloadNotify => self.end_reload(RunOutcome::Success, now),
            _ => {}
        }
    }

    fn on_reloading(&mut self, now: Timestamp) {
        match self.state.phase {
            ServicePhase::Running | ServicePhase::ReloadSignal => {
                if self.state.phase == ServicePhase::Running {
                    self.emit(EventKind::Reloading);
                }
                self.state.reloaded = None;
                self.reloading = true;
                self.enter(ServicePhase::ReloadNotify, now);
            }
            // The reload commands have to end first.
            ServicePhase::Reload => self.reloading = true,
            _ => {}
        }
    }

    /// Handles `STOPPING=1`: the service stops by itself, and gets no signal as long as it stops
    /// within the stop timeout.
    fn on_stopping(&mut self, now: Timestamp) {
        if self.is_up() && self.state.phase != ServicePhase::Reload {
            self.emit(EventKind::Stopping);
            self.stopping_itself = true;
            self.enter(ServicePhase::StopSigterm, now);
            self.all_gone = false;
        }
    }

    /// Handles the success of a forking service's command.
    pub(crate) fn await_main(&mut self, now: Timestamp) {
        if self.state.main.is_some() {
            // The service has sent `MAINPID=`.
            self.enter_list(ServicePhase::StartPost, now);
        } else if !self.state.awaits_main {
            self.state.awaits_main = true;
            self.actions.extend([RunAction::AwaitMain, RunAction::AwaitGone]);
            self.emit_pid_file_limit(now);
        }
    }

    /// Starts the deadlines of `RuntimeMaxSec=` and of the watchdog.
    pub(crate) fn start_deadlines(&mut self, now: Timestamp) {
        self.runtime_deadline = self.spec.run.runtime_max.map(|limit| now.after(limit));
        self.feed_watchdog(now);
    }

    fn feed_watchdog(&mut self, now: Timestamp) {
        let span = self.watchdog.or(self.spec.run.watchdog);
        self.watchdog_deadline = span.map(|span| now.after(span));
    }

    pub(crate) fn watchdog_expired(&mut self, now: Timestamp) {
        self.record_outcome(RunOutcome::Watchdog, EventKind::Failed(FailureCause::Watchdog));
        self.signal(ServicePhase::StopWatchdog, now);
    }

    fn extend_deadline(&mut self, span: Duration, now: Timestamp) {
        self.deadline = self.deadline.map(|deadline| deadline.max(now.after(span)));
        self.emit(EventKind::Extend(span));
        if self.state.awaits_main {
            self.emit_pid_file_limit(now);
        }
    }
}

//! Pure: no I/O, no clock. What a service says of itself, and what follows from it.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, FailureCause, ServiceType};

use super::ServiceRun;
use crate::native::outcome::{ProcessExit, RunOutcome};
use crate::native::run_state::{ProcessId, RunAction, ServicePhase};
use crate::native::sd_notify_message::{NotifyMessage, WatchdogMessage};

impl ServiceRun {
    /// The service has said something. Which process counts as the main one is told by
    /// [`on_main`](Self::on_main), once it is known to be one of the service's.
    pub(crate) fn on_notice(&mut self, notice: &NotifyMessage, now: Timestamp) {
        if let Some(status) = &notice.status {
            self.state.status = Some(status.clone());
        }
        if notice.watchdog_span.is_some() {
            self.watchdog = notice.watchdog_span;
            self.feed_watchdog(now);
        }
        if notice.is_stopping {
            self.on_stopping(now);
        } else {
            if notice.is_reloading {
                self.on_reloading(now);
            }
            if notice.is_ready {
                self.on_ready(now);
            }
        }
        match notice.watchdog {
            Some(WatchdogMessage::Alive) => self.feed_watchdog(now),
            Some(WatchdogMessage::Trigger) if self.is_up() => self.watchdog_expired(now),
            _ => {}
        }
        if let Some(span) = notice.extension {
            self.extend_deadline(span, now);
        }
    }

    /// That process is the main one from now on: the file of the service names it, or the service
    /// itself does.
    pub(crate) fn on_main(&mut self, process: ProcessId, now: Timestamp) {
        if !self.may_change_main() {
            return;
        }
        self.state.main = Some(process);
        if std::mem::take(&mut self.state.awaits_main) && self.state.phase == ServicePhase::Start {
            self.enter_list(ServicePhase::StartPost, now);
        }
    }

    /// Whether the file that names the main process is to be looked at before this end is told: who
    /// ends may have left another one in its place, and so may the commands of a reload.
    pub(crate) fn may_name_another(&self, process: ProcessId, end: ProcessExit) -> bool {
        let is_main = self.state.main == Some(process);
        self.is_forking() && self.may_change_main() && (is_main || self.ends_reload(process, end))
    }

    /// Before its own command was run, and while it ends, there is no main process to be named.
    fn may_change_main(&self) -> bool {
        matches!(self.state.phase, ServicePhase::Start | ServicePhase::StartPost) || self.is_up()
    }

    fn on_ready(&mut self, now: Timestamp) {
        self.reloading = false;
        match self.state.phase {
            ServicePhase::Start if self.outlives_main() => {
                self.enter_list(ServicePhase::StartPost, now)
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
            // Its commands come first.
            ServicePhase::Reload => self.reloading = true,
            _ => {}
        }
    }

    /// It ends by itself: nothing is sent to it as long as it does so in time.
    fn on_stopping(&mut self, now: Timestamp) {
        if self.is_up() && self.state.phase != ServicePhase::Reload {
            self.emit(EventKind::Stopping);
            self.stopping_itself = true;
            self.enter(ServicePhase::StopSigterm, now);
            self.all_gone = false;
        }
    }

    /// The command of a service that goes into the background has ended well.
    pub(super) fn await_main(&mut self, now: Timestamp) {
        if self.state.main.is_some() {
            // It has said itself which one that is.
            self.enter_list(ServicePhase::StartPost, now);
        } else if !self.state.awaits_main {
            self.state.awaits_main = true;
            self.actions.extend([RunAction::AwaitMain, RunAction::AwaitGone]);
            self.emit_pid_file_limit(now);
        }
    }

    /// Begins to measure how long it runs, and how long it is silent.
    pub(super) fn start_deadlines(&mut self, now: Timestamp) {
        self.runtime_deadline = self.spec.run.runtime_max.map(|limit| now.after(limit));
        self.feed_watchdog(now);
    }

    fn feed_watchdog(&mut self, now: Timestamp) {
        let span = self.watchdog.or(self.spec.run.watchdog);
        self.watchdog_deadline = span.map(|span| now.after(span));
    }

    pub(super) fn watchdog_expired(&mut self, now: Timestamp) {
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

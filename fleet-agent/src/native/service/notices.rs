//! Pure: no I/O, no clock. What a service says of itself, and what follows from it.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{Cause, Happening, Kind};

use super::Service;
use crate::native::life::{Action, Phase, ProcessId};
use crate::native::notice::{Notice, Pulse};
use crate::native::outcome::{End, Outcome};

impl Service {
    /// The service has said something. Which process counts as the main one is told by
    /// [`on_main`](Self::on_main), once it is known to be one of the service's.
    pub(crate) fn on_notice(&mut self, notice: &Notice, now: Timestamp) {
        if let Some(status) = &notice.status {
            self.now.status = Some(status.clone());
        }
        if notice.watchdog_span.is_some() {
            self.watchdog = notice.watchdog_span;
            self.be_alive(now);
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
            Some(Pulse::Alive) => self.be_alive(now),
            Some(Pulse::Trigger) if self.is_up() => self.miss_watchdog(now),
            _ => {}
        }
        if let Some(span) = notice.extension {
            self.extend(span, now);
        }
    }

    /// That process is the main one from now on: the file of the service names it, or the service
    /// itself does.
    pub(crate) fn on_main(&mut self, process: ProcessId, now: Timestamp) {
        if !self.may_change_main() {
            return;
        }
        self.now.main = Some(process);
        if std::mem::take(&mut self.now.awaits_main) && self.now.phase == Phase::Start {
            self.enter_list(Phase::StartPost, now);
        }
    }

    /// Whether the file that names the main process is to be looked at before this end is told: who
    /// ends may have left another one in its place, and so may the commands of a reload.
    pub(crate) fn may_name_another(&self, process: ProcessId, end: End) -> bool {
        let is_main = self.now.main == Some(process);
        self.forks() && self.may_change_main() && (is_main || self.ends_reload(process, end))
    }

    /// Before its own command was run, and while it ends, there is no main process to be named.
    fn may_change_main(&self) -> bool {
        matches!(self.now.phase, Phase::Start | Phase::StartPost) || self.is_up()
    }

    fn on_ready(&mut self, now: Timestamp) {
        self.reloading = false;
        match self.now.phase {
            Phase::Start if self.outlives_main() => self.enter_list(Phase::StartPost, now),
            Phase::Start
                if self.spec.kind == Kind::ForegroundNotified && self.now.main.is_some() =>
            {
                self.enter_list(Phase::StartPost, now);
            }
            Phase::ReloadNotify => self.end_reload(Outcome::Success, now),
            _ => {}
        }
    }

    fn on_reloading(&mut self, now: Timestamp) {
        match self.now.phase {
            Phase::Running | Phase::ReloadSignal => {
                if self.now.phase == Phase::Running {
                    self.tell(Happening::Reloading);
                }
                self.now.reloaded = None;
                self.reloading = true;
                self.enter(Phase::ReloadNotify, now);
            }
            // Its commands come first.
            Phase::Reload => self.reloading = true,
            _ => {}
        }
    }

    /// It ends by itself: nothing is sent to it as long as it does so in time.
    fn on_stopping(&mut self, now: Timestamp) {
        if self.is_up() && self.now.phase != Phase::Reload {
            self.tell(Happening::Stopping);
            self.leaving = true;
            self.enter(Phase::StopSigterm, now);
            self.swept = false;
        }
    }

    /// The command of a service that goes into the background has ended well.
    pub(super) fn await_main(&mut self, now: Timestamp) {
        if self.now.main.is_some() {
            // It has said itself which one that is.
            self.enter_list(Phase::StartPost, now);
        } else if !self.now.awaits_main {
            self.now.awaits_main = true;
            self.actions.extend([Action::AwaitMain, Action::AwaitGone]);
            self.tell_time_to_await_main(now);
        }
    }

    /// Begins to measure how long it runs, and how long it is silent.
    pub(super) fn watch(&mut self, now: Timestamp) {
        self.runs_until = self.spec.run.runtime_max.map(|limit| now.after(limit));
        self.be_alive(now);
    }

    fn be_alive(&mut self, now: Timestamp) {
        let span = self.watchdog.or(self.spec.run.watchdog);
        self.alive_until = span.map(|span| now.after(span));
    }

    pub(super) fn miss_watchdog(&mut self, now: Timestamp) {
        self.blame(Outcome::Watchdog, Happening::Failed(Cause::Watchdog));
        self.signal(Phase::StopWatchdog, now);
    }

    fn extend(&mut self, span: Duration, now: Timestamp) {
        self.deadline = self.deadline.map(|deadline| deadline.max(now.after(span)));
        self.tell(Happening::Extend(span));
        if self.now.awaits_main {
            self.tell_time_to_await_main(now);
        }
    }
}

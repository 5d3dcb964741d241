//! Pure: no I/O, no clock. Effects of what the processes of a service do: exits and messages of
//! `sd_notify`.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{Command, EventKind, FailureCause, ServiceType};

use super::ServiceRun;
use super::state::{RunAction, RunOutcome, ServicePhase, is_oneshot, main_outcome};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;

impl ServiceRun {
    pub(crate) fn main_ended(&mut self, end: ProcessExit, what: EventKind, now: Timestamp) {
        self.state.exit = Some(end);
        let ignored = self.main_command().is_some_and(|command| ignores_failure(command, end));
        // The exit status is unknown, but a stop was requested.
        let ignored = ignored
            || (end == ProcessExit::Unobserved && self.is_ending() && self.state.stop_requested);
        let outcome = if ignored { RunOutcome::Success } else { main_outcome(&self.spec, end) };
        // A service with `Type=notify` must run until it is ready, unless other processes may
        // report that.
        let must_announce_ready = self.must_announce_ready() && !self.outlives_main();
        let ends_before_ready = self.state.phase == ServicePhase::Start && must_announce_ready;
        let good = outcome == RunOutcome::Success;
        let (outcome, what) = match ends_before_ready && good {
            true => (RunOutcome::Protocol, EventKind::Failed(FailureCause::Protocol)),
            false => (outcome, what),
        };
        if self.stopping_itself && good {
            self.events.emit_exit(&self.spec, &self.state);
        }
        let had_failed = self.has_failed() && self.state.phase.is_stopping();
        self.record_outcome(outcome, what);
        if had_failed {
            self.events.emit_main_exit(&self.state);
        }
        match self.state.phase {
            ServicePhase::Start if outcome != RunOutcome::Success => {
                self.signal(ServicePhase::StopSigterm, now);
            }
            ServicePhase::Start if is_oneshot(&self.spec) => {
                self.state.step += 1;
                self.run_next(now);
            }
            ServicePhase::Start if self.outlives_main() => {
                self.actions.push_back(RunAction::AwaitGone);
            }
            ServicePhase::Start => self.enter_list(ServicePhase::StartPost, now),
            ServicePhase::Running | ServicePhase::ReloadSignal | ServicePhase::ReloadNotify
                if self.may_run_without_main() =>
            {
                self.actions.push_back(RunAction::AwaitGone);
            }
            ServicePhase::Running | ServicePhase::ReloadSignal | ServicePhase::ReloadNotify => {
                self.enter_running(now);
            }
            ServicePhase::StopSigterm if std::mem::take(&mut self.stopping_itself) => {
                self.signal(ServicePhase::StopSigterm, now);
            }
            _ => self.end_if_gone(now),
        }
    }

    pub(crate) fn control_ended(&mut self, end: ProcessExit, now: Timestamp) {
        let outcome = self.outcome_of_control(end);
        let good = outcome == RunOutcome::Success;
        if self.state.phase == ServicePhase::Reload && !good {
            return self.end_reload(outcome, now);
        }
        let is_stop_command =
            matches!(self.state.phase, ServicePhase::Stop | ServicePhase::StopPost);
        if is_stop_command && !good && !self.has_failed() {
            self.state.stop_command = Some(end);
        }
        let cause = if is_stop_command {
            FailureCause::StopCommand(end.exit())
        } else if outcome == RunOutcome::Resources {
            FailureCause::Resources
        } else {
            FailureCause::Script(end.exit())
        };
        self.record_outcome(outcome, EventKind::Failed(cause));
        match self.state.phase {
            ServicePhase::StopPost | ServicePhase::Stop | ServicePhase::Reload if good => {
                self.state.step += 1;
                self.run_next(now);
            }
            phase if phase.is_starting() && good => {
                self.state.step += 1;
                self.run_next(now);
            }
            phase if phase.is_starting() || phase == ServicePhase::Stop => {
                self.signal(ServicePhase::StopSigterm, now);
            }
            ServicePhase::StopPost => self.signal(ServicePhase::FinalSigterm, now),
            _ => self.end_if_gone(now),
        }
    }

    /// Returns whether a control process has exited successfully.
    pub(crate) fn is_success(&self, end: ProcessExit) -> bool {
        self.outcome_of_control(end) == RunOutcome::Success
    }

    fn outcome_of_control(&self, end: ProcessExit) -> RunOutcome {
        let command = self.commands().get(self.state.step);
        let ignored = command.is_some_and(|command| ignores_failure(command, end));
        if ignored { RunOutcome::Success } else { self.outcome_of(end) }
    }

    /// Returns the command that fails by this exit of a process, with its key in a stanza. Returns
    /// `None` if the unit has only one such command, or survives the failure.
    pub(crate) fn failing_command(
        &self,
        process: ProcessId,
        end: ProcessExit,
    ) -> Option<(&'static str, &Command)> {
        let command = self.commands().get(self.state.step)?;
        let is_failure = if self.state.control == Some(process) {
            !self.is_success(end)
        } else {
            self.state.main == Some(process)
                && self.spec.run.start.len() > 1
                && !ignores_failure(command, end)
                && main_outcome(&self.spec, end) != RunOutcome::Success
        };
        let key = match self.state.phase {
            ServicePhase::Condition => "exec-condition",
            ServicePhase::StartPre => "exec-start-pre",
            ServicePhase::Start => "exec-start",
            ServicePhase::StartPost => "exec-start-post",
            ServicePhase::Stop => "exec-stop",
            ServicePhase::StopPost => "exec-stop-post",
            _ => return None,
        };
        is_failure.then_some((key, command))
    }

    fn has_failed(&self) -> bool {
        !matches!(self.state.outcome, None | Some(RunOutcome::Success))
    }

    /// Records the outcome of the run. Only the first failure counts, so the outcome of a run that
    /// has already failed does not change.
    pub(crate) fn record_outcome(&mut self, outcome: RunOutcome, what: EventKind) {
        if !self.has_failed() {
            self.state.outcome = Some(outcome);
            if !matches!(outcome, RunOutcome::Success | RunOutcome::Condition) {
                self.record_failure(what);
            }
        }
    }

    /// Records a failure as the reason why the service stops.
    pub(crate) fn record_failure(&mut self, what: EventKind) {
        let what = match what {
            EventKind::Failed(FailureCause::Resources) if self.is_unrecorded => {
                EventKind::Failed(FailureCause::Unrecorded)
            }
            what => what,
        };
        self.events.record_failure(self.state.phase, what);
    }
}

/// Returns whether a failure of the command is ignored (`ExecStart=-/bin/program`). A failure to
/// spawn the command is never ignored.
fn ignores_failure(command: &Command, end: ProcessExit) -> bool {
    command.ignore_failure && end != ProcessExit::NotSpawned
}

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
        self.has_pid_file() && self.may_change_main() && (is_main || self.ends_reload(process, end))
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
                    self.events.emit(EventKind::Reloading);
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
            self.events.emit(EventKind::Stopping);
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
            self.actions.push_back(RunAction::AwaitMain);
            if self.has_pid_file() {
                self.actions.push_back(RunAction::AwaitGone);
                self.emit_pid_file_limit(now);
            }
        }
    }

    /// Reports that the search for the main process of a service without a PID file is over.
    pub(crate) fn on_no_main(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.state.awaits_main) && self.state.phase == ServicePhase::Start {
            self.enter_list(ServicePhase::StartPost, now);
        }
    }

    /// Emits the time within which a pid file has to name the main process.
    pub(crate) fn emit_pid_file_limit(&mut self, now: Timestamp) {
        self.events.emit_pid_file_limit(self.deadline.map(|until| until.since(now)));
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
        self.events.emit(EventKind::Extend(span));
        if self.state.awaits_main {
            self.emit_pid_file_limit(now);
        }
    }
}

/// Maximum length of a stored `STATUS=` message, in bytes.
const MAX_STATUS: usize = 1024;

/// A message of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NotifyMessage {
    pub(crate) is_ready: bool,
    pub(crate) is_reloading: bool,
    pub(crate) is_stopping: bool,
    /// `MAINPID=`.
    pub(crate) main: Option<u32>,
    pub(crate) watchdog: Option<WatchdogMessage>,
    /// `WATCHDOG_USEC=`: new watchdog interval.
    pub(crate) watchdog_span: Option<Duration>,
    /// `EXTEND_TIMEOUT_USEC=`: time to add to the current phase, from now on.
    pub(crate) extension: Option<Duration>,
    pub(crate) status: Option<String>,
    pub(crate) store: StoreMessage,
}

/// The part of a message that concerns stored descriptors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoreMessage {
    /// `FDSTORE=1`: the descriptors of the message are to be stored.
    pub(crate) stores: bool,
    /// `FDSTOREREMOVE=1`: the descriptors with the name are to be removed.
    pub(crate) removes: bool,
    /// `FDNAME=`.
    pub(crate) name: Option<String>,
    /// `FDPOLL=0`: a descriptor stays even if its other end is closed.
    pub(crate) stays_on_hangup: bool,
}

/// Maximum length of the name of a descriptor.
const MAX_FD_NAME: usize = 255;

/// `WATCHDOG=` message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchdogMessage {
    /// The service is alive.
    Alive,
    /// The service reports a failure itself.
    Trigger,
}

impl NotifyMessage {
    /// Parses lines of `NAME=value`. Unknown and invalid lines are skipped, as systemd does.
    pub(crate) fn parse(message: &[u8]) -> Self {
        let mut notice = Self::default();
        let text = String::from_utf8_lossy(message);
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            notice.take(name, value);
        }
        notice
    }

    fn take(&mut self, name: &str, value: &str) {
        match (name, value) {
            ("READY", "1") => self.is_ready = true,
            ("RELOADING", "1") => self.is_reloading = true,
            ("STOPPING", "1") => self.is_stopping = true,
            ("MAINPID", pid) => self.main = pid.parse().ok(),
            ("WATCHDOG", "1") => self.watchdog = Some(WatchdogMessage::Alive),
            ("WATCHDOG", "trigger") => self.watchdog = Some(WatchdogMessage::Trigger),
            ("WATCHDOG_USEC", span) => self.watchdog_span = micros(span),
            ("EXTEND_TIMEOUT_USEC", span) => self.extension = micros(span),
            ("FDSTORE", "1") => self.store.stores = true,
            ("FDSTOREREMOVE", "1") => self.store.removes = true,
            ("FDNAME", name) => self.store.name = fd_name(name),
            ("FDPOLL", "0") => self.store.stays_on_hangup = true,
            ("STATUS", text) => self.status = Some(cut(text).to_owned()),
            _ => {}
        }
    }
}

/// Returns the name of a descriptor if it is valid.
fn fd_name(name: &str) -> Option<String> {
    let is_valid = |c: char| c.is_ascii() && !c.is_ascii_control() && c != ':';
    let is_valid = (1..=MAX_FD_NAME).contains(&name.len()) && name.chars().all(is_valid);
    is_valid.then(|| name.to_owned())
}

fn micros(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|&micros| micros > 0).map(Duration::from_micros)
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_STATUS.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_lines_are_parsed() {
        let second = Duration::from_secs(1);
        let default = NotifyMessage::default;
        let stores = |name: Option<&str>, stays_on_hangup| {
            let name = name.map(ToOwned::to_owned);
            let store = StoreMessage { stores: true, removes: false, name, stays_on_hangup };
            NotifyMessage { store, ..default() }
        };
        for (message, expected) in [
            ("READY=1", NotifyMessage { is_ready: true, ..default() }),
            ("READY=1\n", NotifyMessage { is_ready: true, ..default() }),
            ("READY=0\nready=1\nREADY", default()),
            (
                "RELOADING=1\nMONOTONIC_USEC=17\nSTATUS=a=b",
                NotifyMessage { is_reloading: true, status: Some("a=b".into()), ..default() },
            ),
            ("STOPPING=1", NotifyMessage { is_stopping: true, ..default() }),
            ("FDSTORE=1\nFDNAME=a b\nFDPOLL=0", stores(Some("a b"), true)),
            ("FDSTORE=1\nFDNAME=a:b\nFDPOLL=1", stores(None, false)),
            ("MAINPID=7", NotifyMessage { main: Some(7), ..default() }),
            ("MAINPID=-7\nMAINPID=x", default()),
            ("WATCHDOG=1", NotifyMessage { watchdog: Some(WatchdogMessage::Alive), ..default() }),
            (
                "WATCHDOG=trigger",
                NotifyMessage { watchdog: Some(WatchdogMessage::Trigger), ..default() },
            ),
            ("WATCHDOG_USEC=1000000", NotifyMessage { watchdog_span: Some(second), ..default() }),
            ("WATCHDOG_USEC=0\nEXTEND_TIMEOUT_USEC=-1", default()),
            ("EXTEND_TIMEOUT_USEC=1000000", NotifyMessage { extension: Some(second), ..default() }),
            ("FDSTORE=0\nBARRIER=1\nERRNO=2\n\n=\nX", default()),
            ("", default()),
        ] {
            assert_eq!(NotifyMessage::parse(message.as_bytes()), expected, "{message:?}");
        }
    }

    #[test]
    fn long_status_is_cut_at_a_char_boundary() {
        let text = format!("STATUS=x{}", "\u{e9}".repeat(MAX_STATUS));
        let status = NotifyMessage::parse(text.as_bytes()).status.expect("it has one");
        assert_eq!(status.len(), MAX_STATUS - 1);
        assert!(NotifyMessage::parse(b"STATUS=\xff\xfe").status.is_some());
    }
}

//! Handles messages from the processes of a run, and finds a main process that is not our child.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::{NotifyAccess, Readiness, ServiceType};

use super::{RunDriver, pid_file_owner};
use crate::native::linux::cgroup::Group;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::proc::{ProcessHandle, belongs_to_run, child, started};
use crate::native::linux::process_info::ProcessId;
use crate::native::run::exec_context::block_in_place_if;
use crate::native::run::machine::state::ServicePhase;
use crate::native::run::pidfile::{self, PidFileWatch};
use crate::native::run::readiness_line::wait_for_line;
use crate::native::run::sd_notify_socket::{NotifySocket, ReceivedMessage};

/// Maximum number of messages received in one pass. The kernel does not queue more messages than
/// this for one socket.
const MAX_MESSAGES: usize = 512;

/// Maximum number of consecutive failures to read the pid file before the exit of a main process is
/// handled. After that, the exit is handled as if the file named no process.
///
/// The attempts take ten seconds in all. They are limited because the unit may have no supervised
/// process during this time.
const MAX_PID_FILE_FAILURES: u8 = 100;

/// Delay before the pid file is read again.
const PID_FILE_RETRY: Duration = Duration::from_millis(100);

impl RunDriver {
    /// Opens the notification socket of the current run, if its unit may send messages.
    pub(crate) fn listen(&mut self) {
        self.notify = None;
        if !self.accepts_messages() || self.invocation.is_empty() {
            return;
        }
        match NotifySocket::open(&self.context.notify_address(&self.invocation)) {
            Ok(socket) => self.notify = Some(socket),
            Err(error) => {
                tracing::error!(
                    %error,
                    unit = %self.unit,
                    "cannot open the notification socket of a unit: the unit cannot report that it \
                     is ready"
                );
            }
        }
    }

    /// Returns whether any process of the current run may send messages, now or later.
    fn accepts_messages(&self) -> bool {
        match self.spec.run.notify_access {
            NotifyAccess::None => false,
            // No message is accepted without a main process.
            NotifyAccess::Main => {
                let phase = self.service.run_state().phase;
                phase != ServicePhase::Exited && self.spec.kind != ServiceType::BackgroundScripted
            }
            NotifyAccess::Exec | NotifyAccess::All => true,
        }
    }

    /// Closes the socket once no process may send messages any more, and opens it if a new
    /// definition allows messages.
    pub(crate) fn update_listener(&mut self) {
        let (hears, active) = (self.notify.is_some(), !self.service.is_idle());
        match self.accepts_messages() {
            false => self.notify = None,
            true if !hears && active => self.listen(),
            true => {}
        }
    }

    /// Handles all queued messages: a message counts before the exit of its sender.
    pub(crate) fn drain_messages(&mut self) {
        for _ in 0..MAX_MESSAGES {
            match self.notify.as_ref().map(NotifySocket::try_receive) {
                Some(Ok(Some(message))) => self.on_message(message),
                Some(Ok(None)) => {}
                // The queue is empty, or the next wait reports the error.
                Some(Err(_)) | None => return,
            }
        }
    }

    pub(crate) fn on_message_received(&mut self, received: io::Result<ReceivedMessage>) {
        match received {
            Ok(message) => self.on_message(message),
            Err(error) => {
                tracing::error!(
                    %error,
                    unit = %self.unit,
                    "cannot receive notifications of a unit: ignoring all of them until the unit \
                     restarts"
                );
                self.notify = None;
            }
        }
    }

    fn on_message(&mut self, message: ReceivedMessage) {
        if !self.is_accepted_sender(message.sender) {
            let sender = message.sender;
            tracing::debug!(unit = %self.unit, sender, "message from an unauthorised process");
            return self.on_rejected_message(&message);
        }
        if message.notice.is_ready && self.spec.kind == ServiceType::ForegroundNotified {
            self.problem = None;
        }
        if let Some(pid) = message.notice.main {
            self.on_main_named(pid);
        }
        self.service.on_message(&message.notice, self.context.now());
        self.change_store(message);
    }

    /// Stores the descriptors of a message, or removes stored ones.
    fn change_store(&self, message: ReceivedMessage) {
        let (store, table) = (message.notice.store, &self.context.descriptors);
        let name = store.name.as_deref();
        if store.stores {
            let descriptors = message.descriptors.into_iter().map(Arc::new).collect();
            let refused = table.store(&self.unit, name, !store.stays_on_hangup, descriptors);
            if refused > 0 {
                let unit = &self.unit;
                tracing::warn!(
                    %unit,
                    refused,
                    "cannot store file descriptors of a unit: see FileDescriptorStoreMax="
                );
            }
        }
        if let Some(name) = name.filter(|_| store.removes) {
            table.remove_stored(&self.unit, name);
        }
    }

    /// Handles a message from a process that may not send any. If the unit waits for `READY=1` and
    /// this is that message, stores the rejection as the reason why the unit does not become ready.
    fn on_rejected_message(&mut self, message: &ReceivedMessage) {
        let awaits = self.spec.kind == ServiceType::ForegroundNotified
            && self.service.run_state().phase == ServicePhase::Start;
        let allowed = match self.spec.run.notify_access {
            NotifyAccess::Main => "the main process may send it",
            NotifyAccess::Exec => "the main process and the unit's other commands may send it",
            NotifyAccess::All => "processes of the unit may send it, until they are reaped",
            NotifyAccess::None => return,
        };
        if message.notice.is_ready && awaits {
            let option = self.option_name("NotifyAccess=", "notify-access");
            let sender = message.sender;
            let problem =
                format!("process {sender} sent READY=1, but only {allowed}: see {option}");
            self.problem = Some(problem.into());
        }
    }

    /// Returns the name under which the user knows an option: `option` as in systemd, or the stanza
    /// key `key` if the unit has no unit file.
    fn option_name(&self, option: &'static str, key: &'static str) -> &'static str {
        if self.directory.has_unit_file() { option } else { key }
    }

    /// Returns whether messages from this process are accepted.
    fn is_accepted_sender(&self, sender: u32) -> bool {
        let run_state = self.service.run_state();
        let is = |process: Option<ProcessId>| process.is_some_and(|it| it.pid == sender);
        let (main, control) = (is(run_state.main), is(run_state.control));
        match self.spec.run.notify_access {
            NotifyAccess::None => false,
            NotifyAccess::Main => main,
            NotifyAccess::Exec => main || control,
            NotifyAccess::All => main || control || self.was_own(sender),
        }
    }

    /// Returns the process if it runs and belongs to this run.
    fn own_process(&self, pid: u32) -> Option<ProcessId> {
        let find = || -> io::Result<Option<ProcessId>> {
            let Some(process) = started(pid)? else { return Ok(None) };
            Ok(self.is_own(process)?.then_some(process))
        };
        find().unwrap_or_else(|error| self.assume_foreign(pid, &error))
    }

    /// Returns whether the process belongs to this run, or did so before it exited. Exited
    /// processes count, because a process may exit before its last message is read.
    fn was_own(&self, pid: u32) -> bool {
        let find = || -> io::Result<bool> {
            let Some(process) = child(pid)? else { return Ok(false) };
            let had = |group: &Group| group.contained(pid);
            let is_own = self.is_own(process)? || self.group.as_ref().map_or(Ok(false), had)?;
            // Otherwise the process ID was reused meanwhile.
            Ok(is_own && child(pid)? == Some(process))
        };
        find().unwrap_or_else(|error| self.assume_foreign(pid, &error))
    }

    fn assume_foreign<T: Default>(&self, pid: u32, error: &io::Error) -> T {
        tracing::warn!(
            %error,
            pid,
            unit = %self.unit,
            "cannot determine whether a process belongs to a unit: ignoring the process"
        );
        T::default()
    }

    fn is_own(&self, process: ProcessId) -> io::Result<bool> {
        belongs_to_run(process, self.group.as_ref(), &self.invocation, &self.leaders)
    }

    pub(crate) fn on_main_named(&mut self, pid: u32) {
        if self.service.run_state().main.is_some_and(|main| main.pid == pid) {
            return;
        }
        match self.own_process(pid).filter(|process| process.pid != std::process::id()) {
            Some(process) => self.adopt_main(process),
            None => {
                let unit = &self.unit;
                tracing::warn!(
                    %unit,
                    pid,
                    "ignoring MAINPID=: the process is not part of the unit"
                );
            }
        }
    }

    fn adopt_main(&mut self, process: ProcessId) {
        if let Err(why) = self.take_as_main(process, ProcessHandle::open) {
            let (unit, pid) = (&self.unit, process.pid);
            tracing::warn!(
                %unit,
                pid,
                why,
                "cannot use the process of MAINPID= as the main process"
            );
        }
    }

    /// Looks for the main process of a forking service, whose start command has succeeded.
    pub(crate) fn find_main(&mut self) {
        if let ServiceType::BackgroundPidfile { .. } = &self.spec.kind {
            return self.watch_pid_file();
        }
        let roots = block_in_place_if(true, || self.all_processes().roots());
        let main = match roots.as_deref() {
            Ok(&[main]) => self.take_as_main(main, ProcessHandle::open),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = main {
            let unit = &self.unit;
            tracing::warn!(%unit, why, "cannot find the main process of a unit: it has none");
        }
        self.service.on_no_main(self.context.now());
    }

    /// Watches the pid file until it names the main process.
    pub(crate) fn watch_pid_file(&mut self) {
        let ServiceType::BackgroundPidfile { path } = &self.spec.kind else { return };
        // The watch starts before the first read, so that no change is missed.
        match PidFileWatch::of(Path::new(path)) {
            Ok(watch) => self.pid_file_watch = Some(watch),
            Err(error) => {
                self.warn_unwatched_pid_file(&error);
            }
        }
        self.read_pid_file();
    }

    pub(crate) fn warn_unwatched_pid_file(&self, error: &io::Error) {
        let ServiceType::BackgroundPidfile { path } = &self.spec.kind else { return };
        let unit = &self.unit;
        tracing::error!(%error, %unit, path, "cannot watch a PID file: changes to it are missed");
    }

    pub(crate) fn read_pid_file(&mut self) {
        let spec = Arc::clone(&self.spec);
        let ServiceType::BackgroundPidfile { path } = &spec.kind else { return };
        let read = pidfile::read(Path::new(path), self.owner(), |process| self.is_own(process));
        let taken = read.map_err(|error| error.to_string()).and_then(|process| {
            let describe = |why| format!("{path} names process {}, which {why}", process.pid);
            self.take_as_main(process, ProcessHandle::open).map_err(describe)
        });
        match taken {
            Ok(()) => (self.pid_file_watch, self.problem) = (None, None),
            Err(problem) => {
                let name = self.option_name("PIDFile=", "pidfile: ");
                self.problem = Some(format!("{name}{problem}").into());
            }
        }
    }

    fn owner(&self) -> Option<u32> {
        self.owner.or_else(|| pid_file_owner(&self.spec, self.dynamic_ids()))
    }

    /// Looks for the main process that follows the exited process, and returns whether the exit can
    /// be handled now.
    ///
    /// If the pid file cannot be read, schedules the exit to be reported again and returns `false`.
    /// After [`MAX_PID_FILE_FAILURES`] failures, assumes that the file names no process and returns
    /// `true`.
    pub(crate) fn resolve_successor(&mut self, process: ProcessId, end: ProcessExit) -> bool {
        let Err(problem) = self.look_for_successor() else {
            self.pid_file_failures = 0;
            return true;
        };
        let name = self.option_name("PIDFile=", "pidfile: ");
        self.problem = Some(format!("{name}{problem}").into());
        self.pid_file_failures += 1;
        let is_last = self.pid_file_failures > MAX_PID_FILE_FAILURES;
        if self.pid_file_failures == 1 || is_last {
            let unit = &self.unit;
            let next = if is_last { "giving up" } else { "trying again" };
            tracing::warn!(
                %unit,
                problem,
                "cannot read a new main process from the PID file: {next}"
            );
        }
        match is_last {
            true => self.pid_file_failures = 0,
            false => self.report_exit_later(process, end, PID_FILE_RETRY),
        }
        is_last
    }

    /// Adopts the process that the pid file names, if it is not the current main process. A service
    /// that replaces its main process writes the file before the old process exits.
    ///
    /// Returns an error if the file cannot be read, or if the named process cannot be watched.
    fn look_for_successor(&mut self) -> Result<(), String> {
        let named = pidfile::named(&self.spec, self.owner(), |process| self.is_own(process));
        let named = named.map_err(|error| error.to_string())?;
        match named.filter(|process| self.service.run_state().main != Some(*process)) {
            Some(process) => self.take_as_main(process, ProcessHandle::open),
            None => Ok(()),
        }
    }

    /// Keeps the log from discarding output that has not yet been searched for the readiness line.
    pub(crate) fn hold_output(&mut self) {
        if let ServiceType::ForegroundSupervised(Readiness::Line(_)) = &self.spec.kind {
            self.held_output = Some(self.log.read_lock(self.log_from));
        }
    }

    /// Starts to search the output of this run for the readiness line.
    pub(crate) fn await_line(&mut self) {
        if let ServiceType::ForegroundSupervised(Readiness::Line(pattern)) = &self.spec.kind {
            let (log, pattern) = (Arc::clone(&self.log), pattern.clone());
            let clock = Arc::clone(&self.context.clock);
            let reading = self.held_output.take().unwrap_or_else(|| log.read_lock(self.log_from));
            self.readiness = Some(Box::pin(wait_for_line(log, reading, pattern, clock)));
        }
    }

    pub(crate) fn on_line(&mut self, found: io::Result<()>) {
        match found {
            Ok(()) => self.service.on_line(self.context.now()),
            Err(error) => {
                tracing::error!(
                    %error,
                    unit = %self.unit,
                    "cannot read the output of a unit: the line that reports readiness cannot be \
                     found"
                );
                self.problem = Some(format!("its output cannot be read: {error}").into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::process::{Pid, Signal, kill_process};
    use tempfile::TempDir;

    use super::*;
    use crate::native::run::driver_tests::DriverHarness;
    use crate::native::run::machine::tests::spec;

    /// Starts a unit with two processes, of which the pid file names the first. Then makes the pid
    /// file unreadable and kills the first process. The second process stays, and the file `next`
    /// holds its process ID.
    async fn main_killed_with_unreadable_pid_file() -> (DriverHarness, TempDir, ProcessId) {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| home.path().join(name);
        let (pid, next) = (path("pid"), path("next"));
        let (pid, next) = (pid.display(), next.display());
        let script = format!("sleep 1000 & echo $$! >{next}; sleep 1000 & echo $$! >{pid}");
        let unit = format!("Type=forking\nPIDFile={pid}\nExecStart=/bin/sh -c '{script}'\n");
        let mut stage = DriverHarness::with(spec(&unit)).await;
        stage.start();
        stage.wait_for(ServicePhase::Running).await;
        // It can be opened, but not read.
        symlink("/proc/self/mem", path("unread")).expect("it can be created");
        std::fs::rename(path("unread"), path("pid")).expect("it can be in its place");
        let main = stage.driver.service.run_state().main.expect("it runs");
        let number = Pid::from_raw(i32::try_from(main.pid).expect("it is small"));
        kill_process(number.expect("it is not 0"), Signal::KILL).expect("it runs");
        (stage, home, main)
    }

    /// Regression: the run failed as soon as the pid file could not be read. So the process that
    /// the file named a moment later was killed.
    #[tokio::test]
    async fn unreadable_pid_file_is_read_again_after_the_main_exit() {
        let (mut stage, home, main) = main_killed_with_unreadable_pid_file().await;
        while stage.driver.pid_file_failures == 0 {
            stage.driver.wait().await;
            let run_state = stage.driver.service.run_state();
            assert_eq!((run_state.main, run_state.phase), (Some(main), ServicePhase::Running));
        }
        let path = |name: &str| home.path().join(name);
        let next = std::fs::read_to_string(path("next")).expect("it was written");
        std::fs::rename(path("next"), path("pid")).expect("it can be in its place");
        while stage.driver.service.run_state().main == Some(main) {
            stage.driver.wait().await;
        }
        let main = stage.driver.service.run_state().main.map(|main| main.pid.to_string());
        assert_eq!((main.as_deref(), stage.driver.pid_file_failures), (Some(next.trim()), 0));
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
    }

    /// Regression: a write to a pid file that its daemon keeps open was missed, and a second line
    /// made the file invalid. So the daemon was killed when the start timed out.
    #[tokio::test]
    async fn pid_file_held_open_is_read_when_it_is_written() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| home.path().join(name);
        let (pid, gate, next) = (path("pid"), path("gate"), path("next"));
        let (pid, next) = (pid.display(), next.display());
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
        let daemon = format!("{wait}; cat {next} >&9; echo /srv >&9; exec sleep 1000");
        let script = format!("({daemon}) 9>{pid} & echo $$! >{next}");
        let unit = format!("Type=forking\nPIDFile={pid}\nExecStart=/bin/sh -c '{script}'\n");
        let mut stage = DriverHarness::with(spec(&unit)).await;
        stage.start();
        stage.driver.act();
        while !stage.driver.problem().is_some_and(|problem| problem.contains("holds \"\"")) {
            stage.driver.wait().await;
            stage.driver.act();
        }
        std::fs::write(gate, "").expect("it can be created");
        stage.wait_for(ServicePhase::Running).await;
        let main = stage.driver.service.run_state().main.map(|main| main.pid.to_string());
        let written = std::fs::read_to_string(path("next")).expect("it was written");
        assert_eq!(main.as_deref(), Some(written.trim()));
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
    }

    #[tokio::test]
    async fn permanently_unreadable_pid_file_counts_as_empty() {
        let (mut stage, _home, _) = main_killed_with_unreadable_pid_file().await;
        stage.driver.pid_file_failures = MAX_PID_FILE_FAILURES;
        stage.wait_for(ServicePhase::Failed).await;
        let problem = stage.driver.problem().expect("there is one");
        assert!(problem.contains("cannot be read"), "{problem}");
    }
}

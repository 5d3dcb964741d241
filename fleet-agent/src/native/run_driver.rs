//! Drives the state machine of one unit: does what it says, and tells it what happens.

mod exit_watch;
#[cfg(test)]
mod last_message_tests;
mod lifecycle;
mod notifications;
mod signals;
mod spawning;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use fleet_core::Timestamp;
use fleet_core::graph::InitUnit;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::{AbortHandle, coop::unconstrained};

use self::exit_watch::PendingExit;
pub(crate) use self::lifecycle::pid_file_owner;
use super::blocking_fs::{block_in_place_if, run_may_block, spawn_may_block};
use super::cgroup::Group;
use super::log::{Log, ReadLock};
use super::manager_context::ManagerContext;
use super::outcome::ProcessExit;
use super::pidfile::PidFileWatch;
use super::proc::ProcessHandle;
use super::run_machine::ServiceRun;
use super::run_state::{ProcessId, RunAction, ServicePhase};
use super::sd_notify_socket::{NotifySocket, ReceivedMessage};
use super::unit_directory::{RequestedState, RunRecord, UnitDirectory};
use crate::clock::Sleep;

/// One unit with its processes.
pub(crate) struct RunDriver {
    pub(crate) service: ServiceRun,
    spec: Arc<InitUnit>,
    context: Arc<ManagerContext>,
    unit: String,
    directory: UnitDirectory,
    log: Arc<Log>,
    invocation: String,
    /// The control group of the run, if there is one.
    group: Option<Group>,
    /// The leaders of process groups that the run began and that may have members.
    leaders: Vec<ProcessId>,
    /// What was asked last, and told to `service`.
    requested: RequestedState,
    /// Whether it has begun a run.
    has_run: bool,
    written: Option<RunRecord>,
    /// Where processes of the run say how they are, if they may.
    notify: Option<NotifySocket>,
    /// Tells when the file that names the main process may have come.
    pid_file_watch: Option<PidFileWatch>,
    /// Comes when a line of the output says that the unit is ready.
    readiness: Option<BoxFuture<'static, io::Result<()>>>,
    /// What was written and nobody looks at yet, if that is to be looked for a line.
    held_output: Option<ReadLock>,
    /// The place at which the log ended when the run began.
    log_from: u64,
    /// The user that the unit runs as, if a file of it names its main process and that is known.
    owner: Option<u32>,
    /// How often in a row it could not be told whom that file names.
    pid_file_failures: u8,
    processes: FuturesUnordered<PendingExit>,
    sweep: Option<BoxFuture<'static, ()>>,
    /// Until the state machine wants to be woken.
    sleep: Sleep,
    /// What kills all processes of the run, if anybody asked for that.
    killing: Option<AbortHandle>,
    problem: Option<String>,
    active: bool,
}

/// What a run waits for.
enum RunEvent {
    /// A process ended.
    Exited((ProcessId, ProcessExit)),
    /// None is left of those that a signal was for.
    AllGone,
    /// The moment has come that the state machine named.
    Deadline,
    /// Something has become of the file that names the main process.
    PidFile(io::Result<()>),
    /// The output was searched for the line that says that the unit is ready.
    OutputLine(io::Result<()>),
    /// A process said how it is.
    Message(io::Result<ReceivedMessage>),
}

impl RunDriver {
    /// A unit that never ran.
    pub(crate) fn new(
        context: &Arc<ManagerContext>,
        unit: &str,
        directory: &UnitDirectory,
        log: Arc<Log>,
        spec: Arc<InitUnit>,
    ) -> Self {
        Self {
            service: ServiceRun::new(Arc::clone(&spec)),
            spec,
            context: Arc::clone(context),
            unit: unit.to_owned(),
            directory: directory.clone(),
            log,
            invocation: String::new(),
            group: None,
            leaders: Vec::new(),
            requested: RequestedState::default(),
            has_run: false,
            written: None,
            notify: None,
            pid_file_watch: None,
            readiness: None,
            held_output: None,
            log_from: 0,
            owner: None,
            pid_file_failures: 0,
            processes: FuturesUnordered::new(),
            sweep: None,
            sleep: Sleep::new(&context.clock),
            killing: None,
            problem: None,
            active: false,
        }
    }

    /// Goes on with what another daemon left: `service` as it was, its run, and those of its
    /// processes that still run.
    pub(crate) fn adopt(
        &mut self,
        service: ServiceRun,
        run: RunRecord,
        running: Vec<(ProcessId, ProcessHandle)>,
    ) {
        self.service = service;
        self.requested = run.requested;
        self.invocation.clone_from(&run.invocation);
        self.group.clone_from(&run.group);
        self.owner = pid_file_owner(&self.spec);
        self.limit_log(self.file_size_limit());
        // A log that was cut since holds nothing but what is newer.
        self.log_from = run.log_from.min(self.log.end().unwrap_or(0));
        self.leaders.clone_from(&run.leaders);
        self.written = Some(run);
        for (process, watched) in running {
            self.watch(process, watched);
        }
        if !self.service.is_idle() {
            self.listen();
        }
        if self.service.run_state().phase == ServicePhase::Start {
            self.hold_output();
        }
    }

    /// Remembers that `service` has been told what is asked; it is written down with the effect.
    pub(crate) fn set_requested(&mut self, requested: RequestedState) {
        self.requested = requested;
    }

    /// From now on the unit is run by another unit file.
    pub(crate) fn set_definition(&mut self, spec: Arc<InitUnit>) {
        self.service.set_definition(Arc::clone(&spec));
        let before = self.file_size_limit();
        self.spec = spec;
        // What runs was started with the limit from before, what is yet to run with it gets the new
        // one.
        self.limit_log(before.into_iter().chain(self.file_size_limit()).min());
        self.update_listener();
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Timestamp {
        self.context.now()
    }

    /// What the unit writes.
    #[cfg(test)]
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// What last kept a process of this run from being started.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Waits for the next thing to happen, and tells the state machine. May be dropped at any time.
    pub(crate) async fn wait(&mut self) {
        match poll_fn(|cx| self.poll(cx)).await {
            RunEvent::Exited(ended) => self.on_ended(ended),
            RunEvent::AllGone => {
                // What was said before the end counts.
                self.drain_messages();
                self.sweep = None;
                self.service.on_all_gone(self.context.now());
            }
            RunEvent::Deadline => self.on_time(),
            RunEvent::PidFile(changed) => {
                if let Err(error) = changed {
                    tracing::error!(%error, unit = %self.unit, "cannot wait for its pid file");
                    self.pid_file_watch = None;
                }
                self.read_pid_file();
            }
            RunEvent::OutputLine(found) => {
                self.readiness = None;
                self.on_line(found);
            }
            RunEvent::Message(received) => self.on_message_received(received),
        }
    }

    /// What has happened. What ends comes first, and what is said comes last: who says much keeps
    /// nobody waiting.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RunEvent> {
        if let Poll::Ready(Some(ended)) = self.processes.poll_next_unpin(cx) {
            return Poll::Ready(RunEvent::Exited(ended));
        }
        if self.sweep.as_mut().is_some_and(|sweep| sweep.poll_unpin(cx).is_ready()) {
            return Poll::Ready(RunEvent::AllGone);
        }
        if self.sleep.poll_until(self.service.due(), cx).is_ready() {
            return Poll::Ready(RunEvent::Deadline);
        }
        if let Some(arrival) = &self.pid_file_watch
            && let Poll::Ready(changed) = arrival.poll_next(cx)
        {
            return Poll::Ready(RunEvent::PidFile(changed));
        }
        if let Some(line) = &mut self.readiness
            && let Poll::Ready(found) = line.poll_unpin(cx)
        {
            return Poll::Ready(RunEvent::OutputLine(found));
        }
        let Some(notify) = &self.notify else { return Poll::Pending };
        notify.poll_next(cx).map(RunEvent::Message)
    }

    fn on_time(&mut self) {
        // An end in the same moment wins, also where this task has had its share of the thread.
        if let Some(Some(ended)) = unconstrained(self.processes.next()).now_or_never() {
            return self.on_ended(ended);
        }
        // What was said by then counts.
        self.drain_messages();
        self.service.on_time(self.context.now());
    }

    fn on_ended(&mut self, (process, end): (ProcessId, ProcessExit)) {
        self.drain_messages();
        self.forget_empty_groups();
        if self.service.may_name_another(process, end) && !self.resolve_successor(process, end) {
            return;
        }
        self.service.on_exited(process, end, self.context.now());
    }

    /// Does all that the state machine wants done.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.service.next_action() {
            match action {
                RunAction::NewRun => {
                    block_in_place_if(run_may_block(&self.spec.run), || self.begin_run())
                }
                RunAction::Spawn { command, role } => {
                    let may_block = spawn_may_block(&command, &self.spec.run.exec_environment);
                    block_in_place_if(may_block, || self.spawn(&command, role));
                }
                RunAction::Signal { signal, hangs_up, reach } => {
                    self.signal(signal, hangs_up, reach);
                }
                RunAction::SignalProcess { process, signal } => {
                    self.signal_process(process, signal)
                }
                RunAction::AwaitMain => self.watch_pid_file(),
                RunAction::AwaitGone => self.await_gone(),
                RunAction::AwaitLine => self.await_line(),
            }
        }
        let run_state = self.service.run_state();
        if !run_state.phase.is_signalling() && !self.service.awaits_others() {
            self.sweep = None;
        }
        if !run_state.awaits_main {
            self.pid_file_watch = None;
        }
        if run_state.phase != ServicePhase::Start {
            (self.readiness, self.held_output) = (None, None);
        }
        if run_state.phase == ServicePhase::Exited {
            self.update_listener();
        }
        if let Err(error) = self.save() {
            self.warn(&error, "cannot record what runs");
        }
        self.update_active();
    }

    /// Tells that something cannot be written, as full disks have it: of all units, and once in a
    /// while.
    fn warn(&self, error: &io::Error, what: &str) {
        if let Some(suppressed) = self.context.write_failures.should_log(self.context.now()) {
            tracing::warn!(%error, unit = %self.unit, suppressed, "{what}");
        }
    }
}

impl Drop for RunDriver {
    fn drop(&mut self) {
        if let Some(killing) = &self.killing {
            killing.abort();
        }
    }
}

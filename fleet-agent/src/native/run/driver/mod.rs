//! Drives the state machine of one run: carries out its actions, and passes events to it. Stores
//! the run before each spawn, and after each event before the run task reports it.
//!
//! | module | topic |
//! |---|---|
//! | `processes` | spawns processes, signals them, and waits for their exits |
//! | `resources` | dynamic users, descriptors and files that the run has |
//! | `notifications` | messages, PID file, readiness line; main processes that are not children |

mod notifications;
mod processes;
mod resources;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use fleet_core::Timestamp;
use fleet_core::graph::{InitUnit, ServiceType};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;

use super::exec_context::{block_in_place_if, run_may_block, spawn_may_block};
use super::machine::ServiceRun;
use super::machine::state::{RunAction, ServicePhase};
use super::pidfile::PidFileWatch;
use super::sd_notify_socket::{NotifySocket, ReceivedMessage};
use crate::native::linux::cgroup::Group;
use crate::native::linux::dynamic_user::DynamicIds;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::proc::ProcessHandle;
use crate::native::linux::process_info::ProcessId;
use crate::native::log::{Log, ReadLock};
use crate::native::run::conditions::check_conditions;
use crate::native::state::manager_context::ManagerContext;
use crate::native::state::unit_directory::{RequestedState, RunRecord, UnitDirectory};
use crate::sleep::Sleep;
use processes::PendingExit;
pub(crate) use processes::{MonitorVariables, result_variables};
pub(crate) use resources::pid_file_owner;

/// Driver of the runs of one unit, with their processes.
pub(crate) struct RunDriver {
    pub(crate) service: ServiceRun,
    spec: Arc<InitUnit>,
    context: Arc<ManagerContext>,
    unit: Box<str>,
    directory: UnitDirectory,
    log: Arc<Log>,
    invocation: Box<str>,
    /// Control group of the run.
    group: Option<Group>,
    /// User of the run, if it is a dynamic one.
    dynamic: Option<Box<DynamicIds>>,
    /// Leaders of the process groups that the run has created. Groups without members are removed.
    leaders: Vec<ProcessId>,
    /// Latest requested state that has reached `service`.
    requested: RequestedState,
    /// Variables about the unit whose result has started this one, for the start commands.
    monitor: Option<Box<MonitorVariables>>,
    /// Whether a run has begun.
    has_run: bool,
    written: Option<RunRecord>,
    /// Socket for the messages of the run's processes, if they may send any.
    notify: Option<NotifySocket>,
    /// Watch for changes of the pid file.
    pid_file_watch: Option<PidFileWatch>,
    /// Completes when an output line signals readiness.
    readiness: Option<BoxFuture<'static, io::Result<()>>>,
    /// Lock that prevents the log from discarding output before the output is searched for the
    /// readiness line.
    held_output: Option<ReadLock>,
    /// Size of the log when the run began.
    log_from: u64,
    /// User, besides root and our own user, that may own the pid file. `None` if the account of the
    /// unit cannot be looked up.
    owner: Option<u32>,
    /// Number of consecutive failures to read the pid file.
    pid_file_failures: u8,
    processes: FuturesUnordered<PendingExit>,
    sweep: Option<BoxFuture<'static, ()>>,
    /// Sleeps until the deadline of the state machine.
    sleep: Sleep,
    /// Task that kills all processes of the run, if requested.
    killing: Option<AbortHandle>,
    problem: Option<Box<str>>,
    /// Whether `READY=1` may have been sent while no daemon ran.
    may_have_missed_ready: bool,
    active: bool,
}

/// Event of a run.
enum RunEvent {
    /// A process exited.
    Exited((ProcessId, ProcessExit)),
    /// No process is left of those that were signalled.
    AllGone,
    /// The deadline of the state machine has passed.
    Deadline,
    /// The pid file may have changed.
    PidFile(io::Result<()>),
    /// The search for the readiness line is over.
    OutputLine(io::Result<()>),
    /// A process has sent a message.
    Message(io::Result<ReceivedMessage>),
}

impl RunDriver {
    /// Creates the driver of a unit that has not run yet.
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
            unit: unit.into(),
            directory: directory.clone(),
            log,
            invocation: Box::default(),
            group: None,
            dynamic: None,
            leaders: Vec::new(),
            requested: RequestedState::default(),
            monitor: None,
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
            may_have_missed_ready: false,
            active: false,
        }
    }

    /// Continues a run that an earlier daemon started. `service` is the restored state machine, and
    /// `running` are the processes of the run that still exist.
    pub(crate) fn adopt(
        &mut self,
        service: ServiceRun,
        run: RunRecord,
        running: Vec<(ProcessId, ProcessHandle)>,
    ) {
        self.service = service;
        self.requested = run.requested;
        self.invocation = run.invocation.as_str().into();
        self.group.clone_from(&run.group);
        self.adopt_user(run.dynamic.clone());
        self.limit_log(self.file_size_limit());
        // A log that was truncated since only holds newer output.
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
            self.may_have_missed_ready = self.spec.kind == ServiceType::ForegroundNotified;
            self.hold_output();
        }
    }

    /// Sets the requested state that the next record of the run stores as applied. Before that
    /// record is written, the caller also passes the effect of the request (such as a stop) to
    /// `service`. So one record contains both.
    pub(crate) fn set_requested(&mut self, requested: RequestedState) {
        self.requested = requested;
    }

    /// Sets the variables that start commands get about the unit whose result has started this one.
    pub(crate) fn set_monitor(&mut self, variables: Option<MonitorVariables>) {
        self.monitor = variables.map(Box::new);
    }

    /// Sets the definition by which the unit is run from now on.
    pub(crate) fn set_definition(&mut self, spec: Arc<InitUnit>) {
        self.service.set_definition(Arc::clone(&spec));
        let before = self.file_size_limit();
        self.spec = spec;
        // Running processes have the previous limit, later ones the new limit.
        self.limit_log(before.into_iter().chain(self.file_size_limit()).min());
        self.update_listener();
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.context.now()
    }

    /// Returns the log of the unit.
    #[cfg(test)]
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the latest problem of this run: the reason why a process could not be started, or
    /// why the unit does not become ready.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Waits for the next event, and passes it to the state machine. Cancel-safe.
    pub(crate) async fn wait(&mut self) {
        match poll_fn(|cx| self.poll(cx)).await {
            RunEvent::Exited(ended) => self.on_ended(ended),
            RunEvent::AllGone => {
                // Messages sent before the last exit count.
                self.drain_messages();
                self.sweep = None;
                self.service.on_all_gone(self.context.now());
            }
            RunEvent::Deadline => self.on_time(),
            RunEvent::PidFile(changed) => {
                if let Err(error) = changed {
                    self.warn_unwatched_pid_file(&error);
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

    /// Polls for the next event. Exits are polled first and messages last, so that a unit that
    /// sends many messages does not delay its other events.
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
        // An exit at the same time wins, even if this task has used up its cooperative budget.
        if let Some(Some(ended)) = unconstrained(self.processes.next()).now_or_never() {
            return self.on_ended(ended);
        }
        // Messages sent before the deadline count.
        self.drain_messages();
        let was_starting = self.service.run_state().phase == ServicePhase::Start;
        self.service.on_time(self.context.now());
        let is_late = was_starting && self.service.run_state().phase != ServicePhase::Start;
        if is_late && self.may_have_missed_ready && self.problem.is_none() {
            self.problem = Some(
                "it sent no READY=1 after its supervisor restarted, and an earlier one may be lost"
                    .into(),
            );
        }
    }

    fn on_ended(&mut self, (process, end): (ProcessId, ProcessExit)) {
        self.drain_messages();
        self.forget_empty_groups();
        if self.service.needs_pid_file_before_exit(process, end)
            && !self.resolve_successor(process, end)
        {
            return;
        }
        if let Some((key, command)) = self.service.failing_command(process, end)
            && !self.directory.has_unit_file()
        {
            let problem = format!("{key} failed: {command:.60}");
            self.problem.get_or_insert(problem.into());
        }
        self.service.on_exited(process, end, self.context.now());
    }

    /// Writes a message to the unit's log.
    fn note(&self, words: &str) {
        if let Err(error) = self.log.note(words) {
            self.warn(&error, "cannot write a message to a unit's log");
        }
    }

    /// Carries out all actions of the state machine.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.service.next_action() {
            match action {
                RunAction::NewRun => {
                    block_in_place_if(run_may_block(&self.spec.run), || self.begin_run());
                }
                RunAction::Spawn { command, role } => {
                    let may_block = spawn_may_block(&command, &self.spec.run.exec_environment);
                    block_in_place_if(may_block, || self.spawn(&command, role));
                }
                RunAction::Signal { signal, hangs_up, reach } => {
                    self.signal(signal, hangs_up, reach);
                }
                RunAction::SignalProcess { process, signal } => {
                    self.signal_process(process, signal);
                }
                RunAction::AwaitMain => self.find_main(),
                RunAction::AwaitGone => self.await_gone(),
                RunAction::AwaitLine => self.await_line(),
            }
        }
        let run_state = self.service.run_state();
        if !run_state.phase.is_signalling() && !self.service.awaits_last_process() {
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
            let text = "cannot save the state of a unit: after this program restarts, an older \
                        state applies";
            self.warn(&error, text);
        }
        self.update_active();
    }

    /// Logs the error of a failed write, for example on a full disk. All units share one rate limit
    /// for these messages.
    fn warn(&self, error: &io::Error, what: &str) {
        if let Some(suppressed) = self.context.write_failures.should_log(self.context.now()) {
            tracing::warn!(%error, unit = %self.unit, suppressed, "{what}");
        }
    }
}

impl Drop for RunDriver {
    fn drop(&mut self) {
        // Removes the file of the socket while the directory is still locked: the next daemon
        // creates a file of the same name.
        self.notify = None;
        if let Some(killing) = &self.killing {
            killing.abort();
        }
    }
}

impl RunDriver {
    pub(crate) fn begin_run(&mut self) {
        self.has_run = true;
        self.remove_group();
        self.invocation = new_invocation().into();
        self.group = self.context.group(&self.unit, &self.invocation);
        self.leaders.clear();
        self.problem = None;
        self.owner = pid_file_owner(&self.spec, None);
        self.limit_log(self.file_size_limit());
        self.end_log_line();
        self.log_from = self.log.end().unwrap_or(0);
        // The end of a run without a restart is no line, so that a job's log is its output.
        let run_state = self.service.run_state();
        if run_state.restarts > 0 {
            let status = run_state.exit_before.and_then(ProcessExit::status);
            let cause = status.map_or_else(String::new, |it| format!(": the main process {it}"));
            self.note(&format!("automatic restart {}{cause}", run_state.restarts));
        }
        self.notify = None;
        let in_stanza = !self.directory.has_unit_file();
        let environment = &self.context.environment;
        let checked = check_conditions(&self.spec.run.conditions, in_stanza, environment);
        if let Err((why, is_failure)) = checked {
            self.problem = Some(why.into());
            self.service.on_condition(is_failure, self.context.now());
        }
    }

    pub(crate) fn update_active(&mut self) {
        let active = !self.service.is_idle();
        if active != self.active {
            self.active = active;
            if !active {
                // The IPC objects of a dynamic user may be many.
                block_in_place_if(self.dynamic.is_some(), || self.end_run());
            }
        }
    }

    pub(crate) fn save(&mut self) -> io::Result<()> {
        let run = RunRecord {
            requested: self.requested,
            invocation: self.invocation.to_string(),
            leaders: self.leaders.clone(),
            log_from: self.log_from,
            group: self.group.clone(),
            dynamic: self.dynamic.clone().filter(|_| !self.service.is_idle()),
            run_state: self.service.run_state().clone(),
            timer: None,
            activator: None,
        };
        if !self.has_run && self.written.is_none() || self.written.as_ref() == Some(&run) {
            return Ok(());
        }
        self.directory.write_run(&run)?;
        self.written = Some(run);
        Ok(())
    }

    /// Returns the file size limit of the unit's processes.
    pub(crate) fn file_size_limit(&self) -> Option<u64> {
        self.spec.run.exec_environment.limits.get("fsize").and_then(|&(soft, _)| soft)
    }

    pub(crate) fn limit_log(&self, longest: Option<u64>) {
        if let Err(error) = self.log.limit_length(longest) {
            self.warn(&error, "cannot keep a unit's log below the unit's file size limit");
        }
    }

    /// Ends the last line of the log, which the previous process may have left without a newline.
    pub(crate) fn end_log_line(&self) {
        if let Err(error) = self.log.end_line() {
            self.warn(&error, "cannot end the last line of a unit's log");
        }
    }

    /// Removes the control group of a run that is over. The group stays if it still has processes,
    /// which is possible because `KillMode=` may spare some.
    fn remove_group(&self) {
        let Some(group) = &self.group else { return };
        if let Err(error) = group.remove() {
            let (unit, group) = (&self.unit, group.path().display());
            tracing::warn!(%error, %unit, %group, "cannot remove the control group of a unit");
        }
    }
}

/// Returns a random invocation ID in systemd's format.
fn new_invocation() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes to every process");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}

//! Pure: no I/O, no clock. One run of a service, with systemd's phases.
//!
//! ```text
//!        begin                                          main process ends well
//!   dead ──> start-pre ──> start ──> start-post ──> running ─────────────┐
//!    ^           │ fails      │ fails      │ fails    │ ends badly       v
//!    │           └────────────┴────────────┴──────────┤   on request ─> stop
//!    │                                                v                  │
//!    └──  failed  <── final-… <── stop-post <── stop-sigkill <── stop-sigterm
//! ```
//!
//! A [`ServiceRun`] covers one run, and its owner decides whether another run follows.
//!
//! The driver passes events (`on_…`, `stop`, `kill`) to the state machine. After each event, the
//! driver carries out all actions that [`next_action`](ServiceRun::next_action) returns. At the
//! time that [`due`](ServiceRun::due) returns, it calls [`on_time`](ServiceRun::on_time).
//!
//! | module | topic |
//! |---|---|
//! | `state` | phases, stored state, actions, and the outcome in systemd's words |
//! | `phases` | start, stop and reload |
//! | `process_events`, `sd_notify_message` | exits and messages of processes; parsed messages |
//! | `graph_events` | phases as events for the planner |

#[cfg(test)]
pub(crate) mod notification_tests;
#[cfg(test)]
pub(crate) mod property_tests;
pub(crate) mod state;
#[cfg(test)]
pub(crate) mod tests;

mod graph_events;
mod phases;
pub(crate) mod process_events;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{Command, EventKind, ExitType, FailureCause, InitUnit, ServiceType};

use super::machine::state::{Role, RunAction, RunOutcome, RunState, ServicePhase};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;
use graph_events::{GraphEvents, timeout_event};

/// State machine of one run of a service.
#[derive(Debug, Clone)]
pub(crate) struct ServiceRun {
    spec: Arc<InitUnit>,
    state: RunState,
    /// Whether no process is left: of those that the last signal was for, or of the whole run.
    all_gone: bool,
    deadline: Option<Timestamp>,
    /// Deadline of `RuntimeMaxSec=`; set while the service is active.
    runtime_deadline: Option<Timestamp>,
    /// Deadline for the next watchdog message; set while the service is active.
    watchdog_deadline: Option<Timestamp>,
    /// Time from which the service counts as ready, if it still runs.
    ready_at: Option<Timestamp>,
    /// Watchdog interval that the service has set, instead of that of its file.
    watchdog: Option<Duration>,
    /// Whether the service has sent `RELOADING=1`, but not `READY=1` since.
    reloading: bool,
    /// Whether the service has sent `STOPPING=1`, without a stop request.
    stopping_itself: bool,
    actions: VecDeque<RunAction>,
    events: GraphEvents,
    /// Whether a process was not spawned because the run could not be stored.
    is_unrecorded: bool,
}

impl ServiceRun {
    /// Creates the state machine of a run that has not begun.
    pub(crate) fn new(spec: Arc<InitUnit>) -> Self {
        Self {
            spec,
            state: RunState::default(),
            all_gone: false,
            deadline: None,
            runtime_deadline: None,
            watchdog_deadline: None,
            ready_at: None,
            watchdog: None,
            reloading: false,
            stopping_itself: false,
            actions: VecDeque::new(),
            events: GraphEvents::default(),
            is_unrecorded: false,
        }
    }

    /// Restores a run from its stored state. The timeouts of the current phase start again.
    ///
    /// Afterwards the caller calls [`on_exited`](Self::on_exited) for each process that has ended.
    /// If a process was being spawned, the caller also calls [`on_spawned`](Self::on_spawned).
    pub(crate) fn restore(spec: Arc<InitUnit>, run_state: RunState, now: Timestamp) -> Self {
        let mut service = Self::new(spec);
        service.state = run_state;
        if service.is_up() {
            service.start_deadlines(now);
        }
        service.deadline = service.time_limit(now);
        if service.state.phase == ServicePhase::Start && service.state.main.is_some() {
            service.await_readiness(now);
        }
        if service.state.awaits_main {
            service.actions.push_back(RunAction::AwaitMain);
            service.emit_pid_file_limit(now);
        }
        if service.awaits_readiness_without_main() {
            service.actions.push_back(RunAction::AwaitGone);
        }
        // The planner decides again whether it counts.
        if let Some(end) = service.state.stop_command {
            service.events.emit(EventKind::Failed(FailureCause::StopCommand(end.exit())));
        }
        if service.is_up() && service.may_run_without_main() {
            service.actions.push_back(RunAction::AwaitGone);
        }
        if service.is_ending() {
            service.signal(service.state.phase, now);
        }
        service
    }

    /// Returns the state to store, from which [`restore`](Self::restore) can continue.
    pub(crate) fn run_state(&self) -> &RunState {
        &self.state
    }

    /// Returns whether there are events to take.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the events for the planner so far, in order.
    pub(crate) fn take_events(&mut self) -> Vec<EventKind> {
        self.events.take()
    }

    /// Sets the definition by which the service is run from now on.
    pub(crate) fn set_definition(&mut self, spec: Arc<InitUnit>) {
        self.spec = spec;
    }

    /// Returns the next action; `None` until the next event.
    pub(crate) fn next_action(&mut self) -> Option<RunAction> {
        let next = self.actions.pop_front();
        if next.is_none() {
            // Most services run for long without any action, so the buffer is released.
            self.actions = VecDeque::new();
        }
        next
    }

    /// Returns the time to call [`on_time`](Self::on_time), unless another event comes first.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let watchdog_deadline = self.watchdog_deadline.filter(|_| self.is_up());
        self.deadline.into_iter().chain(watchdog_deadline).chain(self.ready_at()).min()
    }

    /// Reports that the command has been spawned.
    pub(crate) fn on_spawned(&mut self, process: ProcessId, now: Timestamp) {
        self.all_gone = false;
        match self.state.spawning.take() {
            Some(Role::Main) => {
                self.state.main = Some(process);
                if self.state.phase == ServicePhase::Start {
                    self.await_readiness(now);
                }
            }
            Some(Role::Control) => self.state.control = Some(process),
            None => {}
        }
    }

    /// Reports that the command could not be spawned.
    pub(crate) fn on_spawn_failed(&mut self, end: ProcessExit, now: Timestamp) {
        let never_was = EventKind::Failed(FailureCause::Resources);
        match (self.state.spawning.take(), end) {
            (Some(Role::Main), ProcessExit::NotSpawned) => self.main_ended(end, never_was, now),
            (Some(Role::Main), _) => {
                self.main_ended(end, EventKind::Failed(FailureCause::Spawn), now);
            }
            (Some(Role::Control), _) => self.control_ended(end, now),
            (None, _) => {}
        }
    }

    /// Reports that the command was not spawned, because the run could not be stored.
    pub(crate) fn on_unrecorded(&mut self, now: Timestamp) {
        self.is_unrecorded = true;
        self.on_spawn_failed(ProcessExit::NotSpawned, now);
    }

    /// Reports the exit of a process. An unknown process is ignored.
    pub(crate) fn on_exited(&mut self, process: ProcessId, end: ProcessExit, now: Timestamp) {
        if self.state.main == Some(process) {
            self.state.main = None;
            self.main_ended(end, EventKind::MainExited(end.exit()), now);
        } else if self.state.control == Some(process) {
            self.state.control = None;
            self.control_ended(end, now);
        }
    }

    /// Reports that all processes that received the last signal have ended.
    pub(crate) fn on_all_gone(&mut self, now: Timestamp) {
        if self.awaits_readiness_without_main() {
            return self.fail_readiness(now);
        }
        self.all_gone = true;
        match self.state.phase {
            ServicePhase::Running | ServicePhase::ReloadSignal | ServicePhase::ReloadNotify => {
                self.enter_running(now);
            }
            _ => self.end_if_gone(now),
        }
    }

    /// Reports that the time returned by [`due`](Self::due) has passed.
    pub(crate) fn on_time(&mut self, now: Timestamp) {
        if self.is_up() && self.watchdog_deadline.is_some_and(|limit| now >= limit) {
            return self.watchdog_expired(now);
        }
        if self.ready_at().is_some_and(|ready| now >= ready) {
            return self.enter_list(ServicePhase::StartPost, now);
        }
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        if self.state.phase.is_reloading() {
            return self.end_reload(RunOutcome::Timeout, now);
        }
        self.record_outcome(RunOutcome::Timeout, timeout_event(&self.state, self.is_ending()));
        match self.state.phase {
            ServicePhase::Running => self.enter_list(ServicePhase::Stop, now),
            ServicePhase::StopSigterm | ServicePhase::StopWatchdog
                if self.spec.run.kill.send_sigkill =>
            {
                self.events.emit(EventKind::Failed(FailureCause::StopTimeout));
                self.signal(ServicePhase::StopSigkill, now);
            }
            ServicePhase::StopWatchdog | ServicePhase::StopSigterm | ServicePhase::StopSigkill => {
                self.enter_stop_post(now);
            }
            ServicePhase::StopPost => self.signal(ServicePhase::FinalSigterm, now),
            ServicePhase::FinalSigterm if self.spec.run.kill.send_sigkill => {
                self.events.emit(EventKind::Failed(FailureCause::StopTimeout));
                self.signal(ServicePhase::FinalSigkill, now);
            }
            ServicePhase::FinalSigterm | ServicePhase::FinalSigkill => self.finish(now),
            _ => self.signal(ServicePhase::StopSigterm, now),
        }
    }

    /// Begins the run. `before` is the state of the previous run if this run is an automatic
    /// restart, and `None` otherwise.
    pub(crate) fn begin(&mut self, before: Option<&RunState>, now: Timestamp) {
        if let Some(before) = before {
            self.state.restarts = before.restarts.saturating_add(1);
            self.state.exit_before = before.exit.or(before.exit_before);
        }
        self.state.outcome = Some(RunOutcome::Success);
        self.actions.push_back(RunAction::NewRun);
        self.enter_list(ServicePhase::Condition, now);
    }

    /// Sets the numbers of consecutive ends and failures before this run.
    pub(crate) fn set_counters(&mut self, attempts: u32, failures: u32) {
        (self.state.attempts, self.state.failures) = (attempts, failures);
    }

    fn enter(&mut self, phase: ServicePhase, now: Timestamp) {
        self.events.emit_transition(&self.spec, &self.state, phase, self.stopping_itself);
        self.state.phase = phase;
        self.state.step = 0;
        self.start_time_limit(now);
    }

    /// Starts the timeout of the current command or phase.
    fn start_time_limit(&mut self, now: Timestamp) {
        self.deadline = self.time_limit(now);
        self.events.emit_time_limit(&self.spec, &self.state);
    }

    fn enter_list(&mut self, phase: ServicePhase, now: Timestamp) {
        self.enter(phase, now);
        self.run_next(now);
    }

    /// Runs the next command of the phase, or enters the next phase.
    fn run_next(&mut self, now: Timestamp) {
        if let Some(command) = self.commands().get(self.state.step) {
            let by_itself = !self.is_forking() && !self.is_scripted();
            let is_main = self.state.phase == ServicePhase::Start && by_itself;
            let role = if is_main { Role::Main } else { Role::Control };
            let command = command.clone();
            if self.state.step > 0 {
                self.start_time_limit(now);
            }
            self.state.spawning = Some(role);
            self.actions.push_back(RunAction::Spawn { command, role });
            return;
        }
        match self.state.phase {
            ServicePhase::Condition => self.enter_list(ServicePhase::StartPre, now),
            ServicePhase::StartPre => self.enter_list(ServicePhase::Start, now),
            ServicePhase::Start if self.is_forking() => self.await_main(now),
            ServicePhase::Start => self.enter_list(ServicePhase::StartPost, now),
            ServicePhase::StartPost => self.enter_running(now),
            ServicePhase::Reload => self.end_commands_of_reload(now),
            ServicePhase::Stop => self.signal(ServicePhase::StopSigterm, now),
            ServicePhase::StopPost => self.signal(ServicePhase::FinalSigterm, now),
            _ => {}
        }
    }

    fn enter_running(&mut self, now: Timestamp) {
        if self.state.outcome != Some(RunOutcome::Success) {
            self.signal(ServicePhase::StopSigterm, now);
        } else if self.has_running_part() {
            if self.may_run_without_main() {
                self.actions.push_back(RunAction::AwaitGone);
            }
            self.start_deadlines(now);
            self.enter(ServicePhase::Running, now);
        } else if self.remains_after_exit() {
            self.enter(ServicePhase::Exited, now);
        } else {
            self.enter_list(ServicePhase::Stop, now);
        }
    }

    fn commands(&self) -> &[Command] {
        let commands = &self.spec.run;
        match self.state.phase {
            ServicePhase::Condition => &commands.exec_condition,
            ServicePhase::StartPre => &commands.start_pre,
            ServicePhase::Start => &commands.start,
            ServicePhase::StartPost => &commands.start_post,
            ServicePhase::Reload => &commands.reload,
            ServicePhase::Stop => &commands.stop,
            ServicePhase::StopPost => &commands.stop_post,
            _ => &[],
        }
    }

    /// Returns the command of the main process. For a oneshot service, which may have several such
    /// commands, returns the current one.
    fn main_command(&self) -> Option<&Command> {
        let step = if self.state.phase == ServicePhase::Start { self.state.step } else { 0 };
        self.spec.run.start.get(step)
    }

    fn time_limit(&self, now: Timestamp) -> Option<Timestamp> {
        let limit = match self.state.phase {
            phase if phase.is_starting() => self.spec.timeouts.start,
            ServicePhase::Running => return self.runtime_deadline,
            phase if phase.is_reloading() => self.spec.timeouts.reload,
            ServicePhase::StopWatchdog => self.spec.run.watchdog_action.timeout,
            // Killed processes never count as gone; the planner has its own deadline for them.
            ServicePhase::StopSigkill | ServicePhase::FinalSigkill => None,
            phase if phase.is_stopping() => self.spec.timeouts.stop,
            _ => None,
        };
        limit.map(|limit| now.after(limit))
    }

    /// Returns whether the service has no main process, only start and stop commands.
    fn is_scripted(&self) -> bool {
        self.spec.kind == ServiceType::BackgroundScripted
    }

    /// Returns whether the service forks: its start command exits and leaves the main process
    /// behind.
    fn is_forking(&self) -> bool {
        self.has_pid_file() || self.spec.kind == ServiceType::BackgroundForking
    }

    fn has_pid_file(&self) -> bool {
        matches!(self.spec.kind, ServiceType::BackgroundPidfile { .. })
    }

    /// Returns whether the service goes on without a main process, until its last process exits.
    fn may_run_without_main(&self) -> bool {
        let lasts = match self.spec.run.exit_type {
            ExitType::Cgroup => true,
            // The main process was never known, so it has not exited.
            ExitType::Main => {
                self.spec.kind == ServiceType::BackgroundForking && self.state.exit.is_none()
            }
        };
        lasts && self.state.main.is_none() && !self.all_gone
    }

    /// Returns whether the driver has to wait for the last process of the run.
    pub(crate) fn awaits_last_process(&self) -> bool {
        self.awaits_readiness_without_main() || self.is_up() && self.may_run_without_main()
    }

    /// Returns whether the service counts as running.
    pub(crate) fn has_running_part(&self) -> bool {
        self.state.main.is_some() || self.is_scripted() || self.may_run_without_main()
    }

    /// Returns whether the service stays active after its main process has exited successfully.
    fn remains_after_exit(&self) -> bool {
        self.spec.stays_active()
    }

    /// Returns whether the run has not begun or is over.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state.phase, ServicePhase::Dead | ServicePhase::Failed)
    }

    /// Returns whether the service is running, including during a reload.
    fn is_up(&self) -> bool {
        self.state.phase == ServicePhase::Running || self.state.phase.is_reloading()
    }

    fn is_ending(&self) -> bool {
        self.state.phase.is_signalling()
    }
}

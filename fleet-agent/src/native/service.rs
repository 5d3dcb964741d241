//! Pure: no I/O, no clock. One run of a service, as systemd runs it.
//!
//! ```text
//!        begin_after                                    main process ends well
//!   dead ──> start-pre ──> start ──> start-post ──> running ─────────────┐
//!    ^           │ fails      │ fails      │ fails    │ ends badly       v
//!    │           └────────────┴────────────┴──────────┤   stop asked ─> stop
//!    │                                                v                  │
//!    └──  failed  <── final-… <── stop-post <── stop-sigkill <── stop-sigterm
//! ```
//!
//! It lives one run. Whether another follows is decided by whoever has it run. Whoever drives it
//! tells it what happened (`on_…`, `end`, `kill`), does what
//! [`next_action`](Service::next_action) says until there is nothing left, and wakes it at
//! [`due`](Service::due).

mod ending;
mod notices;
mod processes;
mod reload;
mod starting;
mod telling;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{Cause, Command, Happening, Kind, Unit};

use super::life::{Action, Memory, Phase, ProcessId, Role};
use super::outcome::{End, Outcome};

/// The state machine of one service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    spec: Arc<Unit>,
    now: Memory,
    /// Whether the last signal has reached everybody and none of them is left.
    swept: bool,
    deadline: Option<Timestamp>,
    /// When it must have ended; set as long as it is up.
    runs_until: Option<Timestamp>,
    /// By when it has to say that it works; set as long as it is up.
    alive_until: Option<Timestamp>,
    /// When it counts as ready, if it lives until then.
    ready_at: Option<Timestamp>,
    /// How often that is, where it has asked for another span than its file.
    watchdog: Option<Duration>,
    /// Whether it has said that it reloads, and not yet that it is ready.
    reloading: bool,
    /// Whether it has said that it ends, so that nobody has told it to.
    leaving: bool,
    actions: VecDeque<Action>,
    /// What has happened and was not asked for yet.
    happenings: Vec<Happening>,
    /// The first thing that went wrong in this run.
    blamed: Option<Happening>,
}

impl Service {
    /// A service that never ran.
    pub(crate) fn new(spec: Arc<Unit>) -> Self {
        Self {
            spec,
            now: Memory::default(),
            swept: false,
            deadline: None,
            runs_until: None,
            alive_until: None,
            ready_at: None,
            watchdog: None,
            reloading: false,
            leaving: false,
            actions: VecDeque::new(),
            happenings: Vec::new(),
            blamed: None,
        }
    }

    /// A service as it was when another daemon last wrote it down. Time limits begin anew.
    ///
    /// Which of its processes are gone is told by `on_exited` and `on_spawned` afterwards.
    pub(crate) fn restore(spec: Arc<Unit>, memory: Memory, now: Timestamp) -> Self {
        let mut service = Self::new(spec);
        service.now = memory;
        if service.is_up() {
            service.watch(now);
        }
        service.deadline = service.time_limit(now);
        if service.now.phase == Phase::Start && service.now.main.is_some() {
            service.begin_to_be_ready(now);
        }
        if service.now.awaits_main {
            service.actions.push_back(Action::AwaitMain);
            service.tell_time_to_await_main(now);
        }
        if service.awaits_others() {
            service.actions.push_back(Action::AwaitGone);
        }
        if service.is_ending() {
            service.signal(service.now.phase, now);
        }
        service
    }

    /// What to write down so that [`restore`](Self::restore) can go on from here.
    pub(crate) fn memory(&self) -> &Memory {
        &self.now
    }

    /// From now on the service is run by another unit file.
    pub(crate) fn replace(&mut self, spec: Arc<Unit>) {
        self.spec = spec;
    }

    /// What to do next; `None` when it is up to processes, time or a person.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        let next = self.actions.pop_front();
        if next.is_none() {
            // Most services run for long with nothing to do.
            self.actions = VecDeque::new();
        }
        next
    }

    /// When [`on_time`](Self::on_time) is to be called, unless something else happens before.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let alive_until = self.alive_until.filter(|_| self.is_up());
        self.deadline.into_iter().chain(alive_until).chain(self.ready_at()).min()
    }

    /// The command that was to be run is a process now.
    pub(crate) fn on_spawned(&mut self, process: ProcessId, now: Timestamp) {
        match self.now.spawning.take() {
            Some(Role::Main) => {
                self.now.main = Some(process);
                if self.now.phase == Phase::Start {
                    self.begin_to_be_ready(now);
                }
            }
            Some(Role::Control) => self.now.control = Some(process),
            None => {}
        }
    }

    /// The command that was to be run could not be, which counts as an end of that kind.
    pub(crate) fn on_spawn_failed(&mut self, end: End, now: Timestamp) {
        let never_was = Happening::Failed(Cause::Resources);
        match (self.now.spawning.take(), end) {
            (Some(Role::Main), End::NeverWas) => self.main_ended(end, never_was, now),
            (Some(Role::Main), _) => self.main_ended(end, Happening::Failed(Cause::Spawn), now),
            (Some(Role::Control), _) => self.control_ended(end, now),
            (None, _) => {}
        }
    }

    /// A process ended. One that the service no longer counts as its own changes nothing.
    pub(crate) fn on_exited(&mut self, process: ProcessId, end: End, now: Timestamp) {
        if self.now.main == Some(process) {
            self.now.main = None;
            self.main_ended(end, Happening::MainExited(end.exit()), now);
        } else if self.now.control == Some(process) {
            self.now.control = None;
            self.control_ended(end, now);
        }
    }

    /// None is left of those that the last signal was for.
    pub(crate) fn on_gone(&mut self, now: Timestamp) {
        if self.awaits_others() {
            return self.give_up_ready(now);
        }
        self.swept = true;
        self.end_if_gone(now);
    }

    /// The time that [`due`](Self::due) named has come.
    pub(crate) fn on_time(&mut self, now: Timestamp) {
        if self.is_up() && self.alive_until.is_some_and(|limit| now >= limit) {
            return self.miss_watchdog(now);
        }
        if self.ready_at().is_some_and(|ready| now >= ready) {
            return self.enter_list(Phase::StartPost, now);
        }
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        if self.now.phase.is_reloading() {
            return self.end_reload(Outcome::Timeout, now);
        }
        self.blame(Outcome::Timeout, self.late());
        match self.now.phase {
            Phase::Running => self.enter_list(Phase::Stop, now),
            Phase::StopSigterm | Phase::StopWatchdog if self.spec.run.kill.send_sigkill => {
                self.tell(Happening::Failed(Cause::StopTimeOut));
                self.signal(Phase::StopSigkill, now);
            }
            Phase::StopWatchdog | Phase::StopSigterm | Phase::StopSigkill => {
                self.enter_stop_post(now);
            }
            Phase::StopPost => self.signal(Phase::FinalSigterm, now),
            Phase::FinalSigterm if self.spec.run.kill.send_sigkill => {
                self.tell(Happening::Failed(Cause::StopTimeOut));
                self.signal(Phase::FinalSigkill, now);
            }
            Phase::FinalSigterm | Phase::FinalSigkill => self.finish(now),
            _ => self.signal(Phase::StopSigterm, now),
        }
    }

    /// Begins the one run that this is for. `before` is how the run ended that it follows from.
    pub(crate) fn begin_after(&mut self, before: Option<&Memory>, now: Timestamp) {
        if let Some(before) = before {
            self.now.restarts = before.restarts.saturating_add(1);
            self.now.exit_before = before.exit.or(before.exit_before);
        }
        self.now.outcome = Some(Outcome::Success);
        self.actions.push_back(Action::NewRun);
        self.enter_list(Phase::Condition, now);
    }

    /// Remembers how often in a row it had ended before the run that is to begin, and failed.
    pub(crate) fn count_from(&mut self, attempts: u32, failures: u32) {
        (self.now.attempts, self.now.failures) = (attempts, failures);
    }

    fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.tell_step(phase);
        self.now.phase = phase;
        self.now.step = 0;
        self.deadline = self.time_limit(now);
        self.tell_time();
    }

    fn enter_list(&mut self, phase: Phase, now: Timestamp) {
        self.enter(phase, now);
        self.run_next(now);
    }

    /// Runs the next command of the phase, or goes on to what follows its last.
    fn run_next(&mut self, now: Timestamp) {
        if let Some(command) = self.commands().get(self.now.step) {
            let by_itself = !self.forks() && !self.is_scripted();
            let is_main = self.now.phase == Phase::Start && by_itself;
            let role = if is_main { Role::Main } else { Role::Control };
            let command = command.clone();
            self.now.spawning = Some(role);
            self.actions.push_back(Action::Spawn { command, role });
            return;
        }
        match self.now.phase {
            Phase::Condition => self.enter_list(Phase::StartPre, now),
            Phase::StartPre => self.enter_list(Phase::Start, now),
            Phase::Start if self.forks() => self.await_main(now),
            Phase::Start => self.enter_list(Phase::StartPost, now),
            Phase::StartPost => self.enter_running(now),
            Phase::Reload => self.end_commands_of_reload(now),
            Phase::Stop => self.signal(Phase::StopSigterm, now),
            Phase::StopPost => self.signal(Phase::FinalSigterm, now),
            _ => {}
        }
    }

    fn enter_running(&mut self, now: Timestamp) {
        if self.now.outcome != Some(Outcome::Success) {
            self.signal(Phase::StopSigterm, now);
        } else if self.now.main.is_some() || self.is_scripted() {
            self.watch(now);
            self.enter(Phase::Running, now);
        } else if self.remains() {
            self.enter(Phase::Exited, now);
        } else {
            self.enter_list(Phase::Stop, now);
        }
    }

    fn commands(&self) -> &[Command] {
        let commands = &self.spec.run;
        match self.now.phase {
            Phase::Condition => &commands.exec_condition,
            Phase::StartPre => &commands.start_pre,
            Phase::Start => &commands.start,
            Phase::StartPost => &commands.start_post,
            Phase::Reload => &commands.reload,
            Phase::Stop => &commands.stop,
            Phase::StopPost => &commands.stop_post,
            _ => &[],
        }
    }

    /// The command that the main process is: of a oneshot the one whose turn it is.
    fn main_command(&self) -> Option<&Command> {
        let step = if self.now.phase == Phase::Start { self.now.step } else { 0 };
        self.spec.run.start.get(step)
    }

    fn time_limit(&self, now: Timestamp) -> Option<Timestamp> {
        let limit = match self.now.phase {
            phase if phase.is_starting() => self.spec.time_outs.start,
            Phase::Running => return self.runs_until,
            phase if phase.is_reloading() => self.spec.time_outs.reload,
            Phase::StopWatchdog => self.spec.run.abort.time_out,
            // What was killed is never taken for gone: whoever decides goes on without it.
            Phase::StopSigkill | Phase::FinalSigkill => None,
            phase if phase.is_stopping() => self.spec.time_outs.stop,
            _ => None,
        };
        limit.map(|limit| now.after(limit))
    }

    /// Whether its command ends, and leaves the main process behind.
    fn forks(&self) -> bool {
        matches!(self.spec.kind, Kind::BackgroundPidfile { .. })
    }

    /// Whether it is up with nothing running, once its main process has ended well.
    fn remains(&self) -> bool {
        self.spec.stays_up()
    }

    /// Whether it does nothing, and will not by itself.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.now.phase, Phase::Dead | Phase::Failed)
    }

    /// Whether it works, as far as is known.
    fn is_up(&self) -> bool {
        self.now.phase == Phase::Running || self.now.phase.is_reloading()
    }

    fn is_ending(&self) -> bool {
        self.now.phase.is_signalling()
    }
}

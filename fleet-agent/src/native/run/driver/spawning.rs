//! Spawns the processes of a run.

use std::io;

use fleet_core::graph::{Command, FailureCause, NotifyAccess, ServiceType};

use super::RunDriver;
use crate::native::linux::descriptors::descriptor_shortage;
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::proc::child;
use crate::native::linux::process_info::{INVOCATION_ID, SYSTEMD_EXEC_PID};
use crate::native::linux::resources::settings;
use crate::native::linux::signals::short_name;
use crate::native::linux::spawn::Child;
use crate::native::log::rate_limit::unrecorded_cause;
use crate::native::run::machine::state::{Role, ServicePhase};
use crate::native::run::process::{SpawnFailure, spawn};
use crate::native::run::sd_notify_socket::NOTIFY_SOCKET;

fn not_stored(error: &io::Error) -> String {
    format!("cannot store the unit's state: {error}")
}

impl RunDriver {
    /// Runs a command. The run is stored first, so that a later daemon finds the process if this
    /// daemon ends during the spawn.
    pub(crate) fn spawn(&mut self, command: &Command, role: Role) {
        if let Err(error) = self.log.check() {
            self.warn(&error, "cannot check the size of a unit's log");
        }
        let run_state = self.service.run_state();
        if run_state.main.is_none() && run_state.control.is_none() {
            self.end_log_line();
        }
        if role == Role::Main {
            self.hold_output();
        }
        let not_spawned = |words| SpawnFailure { message: words, end: ProcessExit::NotSpawned };
        // Later processes of a run may use the last file descriptors.
        let is_first = self.service.run_state().phase.is_starting() && self.leaders.is_empty();
        let shortage = if is_first { descriptor_shortage() } else { None };
        // A run that cannot start must not hold a descriptor: stopping it may need the last one.
        if is_first && shortage.is_none() && self.notify.is_none() {
            self.listen();
        }
        if let Some(why) = shortage {
            return self.on_spawn_failed(not_spawned(why));
        }
        match self.save() {
            Ok(()) => self.context.recording.on_success(),
            Err(error) if unrecorded_cause(&error) == FailureCause::Unrecorded => {
                return self.on_unrecorded(&error);
            }
            Err(error) => return self.on_spawn_failed(not_spawned(not_stored(&error))),
        }
        let extra = self.variables(role);
        let (environment, log) = (&self.spec.run.exec_environment, self.log.path());
        let limits = settings(&self.spec.run.resources);
        let group = self.group.as_ref().map(|group| (group, &limits[..]));
        match spawn(command, environment, log, group, &self.context.environment, &extra) {
            Ok(started) => self.on_spawned(started),
            Err(problem) => self.on_spawn_failed(problem),
        }
    }

    fn on_spawned(&mut self, started: Child) {
        let now = self.context.now();
        // The process ID of a child stays valid until it is reaped.
        let process = match started.id().map_or(Ok(None), child) {
            Ok(Some(process)) => process,
            Ok(None) => return self.service.on_spawn_failed(ProcessExit::Unobserved, now),
            Err(error) => return self.kill_unwatchable(started, &error),
        };
        self.leaders.push(process);
        self.await_child(process, started);
        self.service.on_spawned(process, now);
    }

    /// Kills a child that cannot be watched, because otherwise its process ID could be reused
    /// unnoticed.
    fn kill_unwatchable(&mut self, mut started: Child, error: &io::Error) {
        if let Err(error) = started.start_kill() {
            tracing::error!(
                %error,
                unit = %self.unit,
                "cannot kill a process that cannot be watched: the process might keep running"
            );
        }
        let words = format!("cannot watch the started process: {error}");
        self.on_spawn_failed(SpawnFailure { message: words, end: ProcessExit::NotSpawned });
    }

    fn on_spawn_failed(&mut self, problem: SpawnFailure) {
        if let Err(error) = self.log.note(&problem.message) {
            self.warn(&error, "cannot write a message to a unit's log");
        }
        self.problem = Some(problem.message);
        self.service.on_spawn_failed(problem.end, self.context.now());
    }

    /// Handles a run that cannot be stored on a full or failing file system. The unit's log gets no
    /// message, because the planner tries again every second.
    fn on_unrecorded(&mut self, error: &io::Error) {
        self.context.recording.on_failure(error, self.context.now());
        self.problem = Some(not_stored(error));
        self.service.on_unrecorded(self.context.now());
    }

    /// Returns the environment variables that describe the run to a command.
    fn variables(&self, role: Role) -> Vec<(&'static str, String)> {
        // The spawned process fills in its own process ID.
        let mut variables =
            vec![(INVOCATION_ID, self.invocation.clone()), (SYSTEMD_EXEC_PID, String::new())];
        let main_alone = self.spec.run.notify_access == NotifyAccess::Main;
        let phase = self.service.run_state().phase;
        // The command of a forking service has the role of a control process.
        if self.notify.is_some()
            && (role == Role::Main || phase == ServicePhase::Start || !main_alone)
        {
            variables.push((NOTIFY_SOCKET, self.context.notify_address(&self.invocation)));
        }
        if let (Role::Main, Some(span)) = (role, self.spec.run.watchdog) {
            variables.push(("WATCHDOG_USEC", span.as_micros().to_string()));
        }
        if let ServiceType::BackgroundPidfile { path } = &self.spec.kind {
            variables.push(("PIDFILE", path.clone()));
        }
        let run_state = self.service.run_state();
        if let (Role::Control, Some(main)) = (role, run_state.main) {
            variables.push(("MAINPID", main.pid.to_string()));
        }
        if !matches!(run_state.phase, ServicePhase::Stop | ServicePhase::StopPost) {
            return variables;
        }
        if let Some(outcome) = run_state.outcome {
            variables.push(("SERVICE_RESULT", outcome.as_str().to_owned()));
        }
        let (code, status) = match run_state.exit {
            Some(ProcessExit::Code(code)) => ("exited", code.to_string()),
            Some(ProcessExit::Signal(signal)) => ("killed", short_name(signal)),
            Some(ProcessExit::Dumped(signal)) => ("dumped", short_name(signal)),
            _ => return variables,
        };
        variables.extend([("EXIT_CODE", code.to_owned()), ("EXIT_STATUS", status)]);
        variables
    }
}

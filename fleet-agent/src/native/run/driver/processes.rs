//! The processes of a run: spawns them, sends signals to them, and waits for their exits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fleet_core::graph::{Command, FailureCause, NotifyAccess, ServiceType};
use futures_util::future::{BoxFuture, FutureExt as _};
use rustix::process::{Pid, test_kill_process_group};

use super::RunDriver;
use super::resources::listen_variables;
use crate::native::executor::sandbox::needs_executor;
use crate::native::linux::exit::{ProcessExit, Sig, short_name};
use crate::native::linux::limits::{CgroupLimits, descriptor_shortage};
use crate::native::linux::proc::{ProcessHandle, child};
use crate::native::linux::process_info::{INVOCATION_ID, ProcessId, SYSTEMD_EXEC_PID};
use crate::native::linux::spawn::Child;
use crate::native::log::rate_limit::unrecorded_cause;
use crate::native::run::kill_all::{SignalTargets, kill_all};
use crate::native::run::machine::state::{Role, RunState, ServicePhase, SignalScope};
use crate::native::run::process::{SpawnContext, SpawnFailure, spawn};
use crate::native::run::sd_notify_socket::NOTIFY_SOCKET;

/// Time that the set-up of a process may take if the start of its unit has no timeout.
const PATIENCE: Duration = Duration::from_secs(90);

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
        if let Err(problem) = self.take_user() {
            return self.on_spawn_failed(problem);
        }
        match self.save() {
            Ok(()) => self.context.recording.on_success(),
            Err(error) if unrecorded_cause(&error) == FailureCause::Unrecorded => {
                return self.on_unrecorded(&error);
            }
            Err(error) => return self.on_spawn_failed(not_spawned(not_stored(&error))),
        }
        let descriptors = self.descriptors(role);
        let mut extra = self.variables(role);
        extra.extend(listen_variables(&descriptors));
        let (environment, log) = (&self.spec.run.exec_environment, self.log.path());
        let limits = CgroupLimits::new(&self.spec.run, self.context.has_cgroup_filters());
        let group = self.group.as_ref().map(|group| (group, &limits));
        let passed = &self.context.environment;
        let executor = self.context.executor.as_ref().filter(|_| needs_executor(environment));
        let empty_file = match executor.map(|_| self.context.empty_file()).transpose() {
            Ok(path) => path.unwrap_or_default(),
            Err(error) => return self.on_spawn_failed(not_spawned(not_stored(&error))),
        };
        let context = SpawnContext {
            executor,
            resources: &self.resources(),
            dynamic: self.dynamic_ids(),
            empty_file: &empty_file,
            patience: self.spec.timeouts.start.unwrap_or(PATIENCE),
            main: self.service.run_state().main.map(|main| main.pid),
            descriptors: &descriptors,
        };
        match spawn(command, environment, log, group, passed, extra, &context) {
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

    /// Kills a child that cannot be watched: its process ID could be reused unnoticed.
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
        self.note(&problem.message);
        self.problem = Some(problem.message.into());
        self.service.on_spawn_failed(problem.end, self.context.now());
    }

    /// Handles a run that cannot be stored on a full or failing file system. The unit's log gets no
    /// message, because the planner tries again every second.
    fn on_unrecorded(&mut self, error: &io::Error) {
        self.context.recording.on_failure(error, self.context.now());
        self.problem = Some(not_stored(error).into());
        self.service.on_unrecorded(self.context.now());
    }

    /// Returns the environment variables that describe the run to a command.
    fn variables(&self, role: Role) -> Vec<(&'static str, String)> {
        // The spawned process fills in its own process ID.
        let mut variables =
            vec![(INVOCATION_ID, self.invocation.to_string()), (SYSTEMD_EXEC_PID, String::new())];
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
        match run_state.phase {
            ServicePhase::StartPre | ServicePhase::Start => {
                let monitor = self.monitor.iter().flat_map(|monitor| &monitor.0);
                variables.extend(monitor.cloned());
            }
            ServicePhase::Stop | ServicePhase::StopPost => {
                let names = ["SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS"];
                variables.extend(result_variables(names, run_state));
            }
            _ => {}
        }
        variables
    }
}

/// Variables about the unit whose result has started another one.
pub(crate) struct MonitorVariables(pub(crate) Vec<(&'static str, String)>);

/// Returns the variables with these names for the result of a run, the kind of exit of its main
/// process, and its exit status or signal. A variable without a value is left out.
pub(crate) fn result_variables(
    [result, code, status]: [&'static str; 3],
    run_state: &RunState,
) -> Vec<(&'static str, String)> {
    let outcome = run_state.outcome.map(|outcome| (result, outcome.as_str().to_owned()));
    let exit = match run_state.exit {
        Some(ProcessExit::Code(code)) => Some(("exited", code.to_string())),
        Some(ProcessExit::Signal(signal)) => Some(("killed", short_name(signal))),
        Some(ProcessExit::Dumped(signal)) => Some(("dumped", short_name(signal))),
        _ => None,
    };
    let exit = exit.into_iter().flat_map(|(how, with)| [(code, how.to_owned()), (status, with)]);
    outcome.into_iter().chain(exit).collect()
}

impl RunDriver {
    pub(crate) fn signal(&mut self, signal: Sig, hangs_up: bool, reach: SignalScope) {
        let run_state = self.service.run_state();
        let targets = match reach {
            SignalScope::Leaders => SignalTargets::Leaders(
                run_state.main.into_iter().chain(run_state.control).collect(),
            ),
            SignalScope::All => self.all_processes(),
        };
        let signals = if hangs_up { vec![signal, Sig::HUP] } else { vec![signal] };
        self.sweep = Some(Box::pin(kill_all(Arc::clone(&self.context), targets, signals)));
    }

    /// Waits until no process of the run is left.
    pub(crate) fn await_gone(&mut self) {
        let (context, all_processes) = (Arc::clone(&self.context), self.all_processes());
        self.sweep = Some(Box::pin(kill_all(context, all_processes, Vec::new())));
    }

    /// Sends a signal to one process.
    pub(crate) fn signal_process(&self, process: ProcessId, signal: Sig) {
        let signalled = ProcessHandle::open(process)
            .and_then(|held| held.map_or(Ok(()), |it| it.signal(signal)));
        if let Err(error) = signalled {
            let (unit, pid) = (&self.unit, process.pid);
            tracing::warn!(%error, %unit, pid, ?signal, "cannot signal a process of a unit");
        }
    }

    /// Kills all processes of the run, including those that `KillMode=` spares. Their exits are
    /// then handled like any other exits.
    pub(crate) fn kill_all(&mut self) {
        if self.killing.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let killing = kill_all(Arc::clone(&self.context), self.all_processes(), vec![Sig::KILL]);
        self.killing = Some(tokio::spawn(killing).abort_handle());
    }

    /// Returns all processes of the run that can be found.
    pub(super) fn all_processes(&self) -> SignalTargets {
        match &self.group {
            Some(group) => SignalTargets::Group(group.clone()),
            None => {
                let (invocation, leaders) = (self.invocation.to_string(), self.leaders.clone());
                SignalTargets::Run { invocation, leaders }
            }
        }
    }

    /// Removes process groups without members from `leaders`, because the kernel may reuse their
    /// IDs. A group may have members long after its leader has exited.
    pub(crate) fn forget_empty_groups(&mut self) {
        self.leaders.retain(has_members);
    }
}

fn has_members(leader: &ProcessId) -> bool {
    let pid = i32::try_from(leader.pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process_group(pid) != Err(rustix::io::Errno::SRCH))
}

/// Exit of a process that has not happened yet.
pub(crate) struct PendingExit {
    process: ProcessId,
    is_child: bool,
    end: BoxFuture<'static, ProcessExit>,
}

impl Future for PendingExit {
    type Output = (ProcessId, ProcessExit);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let process = self.process;
        self.end.poll_unpin(cx).map(|end| (process, end))
    }
}

impl RunDriver {
    /// Waits for a child to exit.
    pub(crate) fn await_child(&mut self, process: ProcessId, mut child: Child) {
        let end = Box::pin(async move { child.wait().await.unwrap_or(ProcessExit::Unobserved) });
        self.processes.push(PendingExit { process, is_child: true, end });
    }

    /// Waits for a process to exit that is not our child.
    pub(crate) fn watch(&mut self, process: ProcessId, watched: ProcessHandle) {
        let clock = Arc::clone(&self.context.clock);
        let end = Box::pin(async move {
            watched.end(&*clock).await.unwrap_or_else(|error| {
                let pid = process.pid;
                tracing::warn!(%error, pid, "cannot watch a unit's process: treating it as exited");
                ProcessExit::Unobserved
            })
        });
        self.processes.push(PendingExit { process, is_child: false, end });
    }

    /// Reports an exit again after a pause.
    pub(crate) fn report_exit_later(
        &mut self,
        process: ProcessId,
        end: ProcessExit,
        pause: Duration,
    ) {
        let clock = Arc::clone(&self.context.clock);
        let end = Box::pin(async move {
            clock.sleep(pause).await;
            end
        });
        // Reported even if the unit has another main process by then.
        self.processes.push(PendingExit { process, is_child: true, end });
    }

    /// Makes a process that is not our child the main process, if the state machine accepts it.
    /// Otherwise the main process stays the same. Returns an error with the reason if the process
    /// cannot be watched.
    pub(crate) fn take_as_main(
        &mut self,
        process: ProcessId,
        open: impl FnOnce(ProcessId) -> io::Result<Option<ProcessHandle>>,
    ) -> Result<(), String> {
        let mut opened = None;
        if !self.processes.iter().any(|it| it.process == process) {
            let held = open(process).map_err(|error| format!("cannot be watched: {error}"))?;
            opened = Some(held.ok_or("does not run")?);
        }
        self.service.on_main(process, self.context.now());
        if self.service.run_state().main == Some(process) {
            if let Some(watched) = opened {
                self.watch(process, watched);
            }
            self.stop_watching_others();
        }
        Ok(())
    }

    /// Stops watching processes whose exit no longer matters. A unit may name one main process
    /// after another, and each watched process takes a file descriptor.
    fn stop_watching_others(&mut self) {
        let run_state = self.service.run_state();
        let own = [run_state.main, run_state.control];
        let counts = |it: &PendingExit| {
            it.is_child || own.contains(&Some(it.process)) || self.leaders.contains(&it.process)
        };
        self.processes = std::mem::take(&mut self.processes).into_iter().filter(counts).collect();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::clock::pause;
    use crate::native::run::driver_tests::{DriverHarness, line, unit};
    use crate::native::run::machine::state::ServicePhase;
    use crate::native::run::machine::tests::spec;

    /// Starts a unit with a main process and one child of it.
    async fn two() -> (DriverHarness, ProcessId, u32) {
        let script = "sleep 1000 & echo $$!; wait";
        let service = format!("ExecStart=/bin/sh -c '{script}'\nNotifyAccess=all\n");
        let mut stage = DriverHarness::with(unit(&service, line("^[0-9]+$"))).await;
        stage.start();
        stage.wait_for(ServicePhase::Running).await;
        let (text, _) = stage.driver.log().tail(Some(1), None).expect("it can be read");
        let text = String::from_utf8(text).expect("it is a number");
        let main = stage.driver.service.run_state().main.expect("it runs");
        (stage, main, text.trim().parse().expect("it is a number"))
    }

    #[tokio::test]
    async fn alternating_main_processes_are_watched_once() {
        let (mut stage, main, other) = two().await;
        let mut watched = Vec::new();
        for _ in 0..10 {
            for pid in [other, main.pid] {
                stage.driver.on_main_named(pid);
                let now = stage.driver.service.run_state().main.map(|main| main.pid);
                watched.push((now == Some(pid), stage.driver.processes.len()));
            }
        }
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
        assert_eq!(watched, [(true, 2), (true, 1)].repeat(10));
    }

    #[tokio::test]
    async fn unwatchable_process_is_not_adopted_as_main() {
        let (mut stage, main, other) = two().await;
        let process = ProcessId { pid: other, start: 0 };
        let full = stage.driver.take_as_main(process, |_| Err(io::Error::other("all are open")));
        let gone = stage.driver.take_as_main(process, |_| Ok(None));
        let run_state = stage.driver.service.run_state().clone();
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
        assert_eq!(full, Err("cannot be watched: all are open".to_owned()));
        assert_eq!(gone, Err("does not run".to_owned()));
        assert_eq!((run_state.main, run_state.phase), (Some(main), ServicePhase::Running));
    }

    #[tokio::test]
    async fn main_process_named_while_stopping_is_not_watched() {
        let (mut stage, _, other) = two().await;
        stage.stop();
        stage.driver.act();
        for _ in 0..10 {
            stage.driver.on_main_named(other);
        }
        let watched = stage.driver.processes.len();
        stage.wait_for(ServicePhase::Dead).await;
        assert_eq!(watched, 1);
    }

    const STEP: Duration = Duration::from_millis(2);

    /// Helper process for the test below. It sends `READY=1`, creates the file that the variable
    /// `READY_FILE` names, and exits once this file is removed. As a normal test, without the
    /// variable, it does nothing.
    #[test]
    fn helper_process() {
        let Ok(ready_file) = std::env::var("READY_FILE") else { return };
        let name = std::env::var("NOTIFY_SOCKET").expect("the socket is bound");
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(name),
        };
        let socket = UnixDatagram::unbound().expect("a socket can be made");
        socket
            .send_to_addr(b"READY=1", &address.expect("it is short"))
            .expect("the socket is bound");
        std::fs::write(&ready_file, "").expect("it can be created");
        while Path::new(&ready_file).exists() {
            pause(STEP);
        }
    }

    /// Blocks this thread until a file exists. The driver runs on the same thread, so it receives
    /// no messages meanwhile.
    fn wait_blocking(file: &Path) {
        for _ in 0..15_000 {
            if file.exists() {
                return;
            }
            pause(STEP);
        }
        panic!("the file is not created in time");
    }

    #[tokio::test]
    async fn messages_count_before_the_last_exit() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let [gate, ready_file] = ["gate", "ready"].map(|name| home.path().join(name));
        let program = std::env::current_exe().expect("it has a path");
        let script = format!(
            "(until [ -e {} ]; do sleep 0.01; done; exec {} --exact {}::helper_process) & exit 0",
            gate.display(),
            program.display(),
            module_path!().split_once("::").expect("it is in a crate").1,
        );
        let service = format!(
            "Type=notify\nNotifyAccess=all\nRemainAfterExit=yes\nEnvironment=READY_FILE={}\n\
             ExecStart=/bin/sh -c '{script}'\n",
            ready_file.display()
        );
        let mut stage = DriverHarness::with(spec(&service)).await;
        stage.start();
        stage.driver.act();
        while !stage.driver.service.awaits_readiness_without_main() {
            stage.driver.wait().await;
            stage.driver.act();
        }
        std::fs::write(&gate, "").expect("it can be created");
        wait_blocking(&ready_file);
        // As if the last process had exited since.
        stage.driver.sweep = Some(Box::pin(ready(())));
        stage.driver.wait().await;
        stage.driver.act();
        let phase = stage.driver.service.run_state().phase;
        assert_eq!(phase, ServicePhase::Exited);
        stage.stop();
        stage.wait_for(ServicePhase::Dead).await;
    }
}

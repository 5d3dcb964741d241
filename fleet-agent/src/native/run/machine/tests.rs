//! The state machine of a run, as text.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{EventKind, InitUnit, StopReason};

use super::ServiceRun;
use super::state::{Role, RunAction, RunOutcome, ServicePhase, to_systemd_state};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;
use crate::native::supervisor::compile::{HostCapabilities, compile};

pub(crate) fn spec(service: &str) -> Arc<InitUnit> {
    let file = fleet_unitfile::UnitFile::parse(format!("[Service]\n{service}"));
    let host = HostCapabilities::for_test(true);
    let name = "a.service".parse().expect("the name is well formed");
    let compiled = compile(&name, &file.expect("it is well formed"), &host);
    compiled.expect("it is supported").unit
}

/// A service with scripted processes.
pub(crate) struct ScriptedRun {
    spec: Arc<InitUnit>,
    pub(crate) service: ServiceRun,
    pub(crate) now: Timestamp,
    pids: u32,
    lines: Vec<String>,
}

impl ScriptedRun {
    pub(crate) fn new(service: &str) -> Self {
        Self::of(spec(service))
    }

    pub(crate) fn of(spec: Arc<InitUnit>) -> Self {
        let service = ServiceRun::new(Arc::clone(&spec));
        Self { spec, service, now: Timestamp::from_millis(0), pids: 0, lines: Vec::new() }
    }

    /// Passes one event, carries out the actions, and records both.
    pub(crate) fn step(
        &mut self,
        what: &str,
        input: impl FnOnce(&mut ServiceRun, Timestamp),
    ) -> &mut Self {
        input(&mut self.service, self.now);
        let mut line = format!("{what}:");
        while let Some(action) = self.service.next_action() {
            match action {
                RunAction::NewRun => line.push_str(" new-run"),
                RunAction::Spawn { command, .. } => {
                    self.pids += 1;
                    line.push_str(&format!(" {}", command.program.trim_start_matches('/')));
                    self.service.on_spawned(ProcessId { pid: self.pids, start: 0 }, self.now);
                }
                RunAction::Signal { signal, reach, .. } => {
                    line.push_str(&format!(" signal-{}-{reach:?}", signal.number()));
                }
                RunAction::SignalProcess { signal, .. } => {
                    line.push_str(&format!(" tell-{}", signal.number()));
                }
                RunAction::AwaitMain => line.push_str(" await-main"),
                RunAction::AwaitGone => line.push_str(" await-gone"),
                RunAction::AwaitLine => line.push_str(" await-line"),
            }
        }
        let state = to_systemd_state(self.service.run_state());
        let result = state.result.unwrap_or_default();
        self.lines.push(format!("{line} => {} {} {result}", state.active, state.sub));
        self
    }

    /// Begins the next run.
    pub(crate) fn start(&mut self) -> &mut Self {
        self.service = ServiceRun::new(Arc::clone(&self.spec));
        self.step("start", |service, now| service.begin(None, now))
    }

    pub(crate) fn stop(&mut self) -> &mut Self {
        self.step("stop", |service, now| service.stop(&StopReason::Unneeded, now))
    }

    pub(crate) fn main(&mut self, end: ProcessExit) -> &mut Self {
        let main = self.service.run_state().main.expect("it has a main process");
        self.step(&format!("main {end:?}"), |service, now| service.on_exited(main, end, now))
    }

    pub(crate) fn control(&mut self, end: ProcessExit) -> &mut Self {
        let control = self.service.run_state().control.expect("it has a control process");
        self.step(&format!("control {end:?}"), |service, now| service.on_exited(control, end, now))
    }

    pub(crate) fn gone(&mut self) -> &mut Self {
        self.step("gone", ServiceRun::on_all_gone)
    }

    pub(crate) fn due(&mut self) -> &mut Self {
        self.now = self.service.due().expect("something is due");
        self.step("due", ServiceRun::on_time)
    }

    pub(crate) fn story(&self) -> String {
        self.lines.join("\n")
    }
}

const FULL: &str = "ExecStartPre=/pre\nExecStart=/main\nExecStartPost=/post\nExecStop=/stop\n\
                    ExecStopPost=/after\n";

#[test]
fn starts_runs_and_stops() {
    let mut script = ScriptedRun::new(FULL);
    script
        .start()
        .control(ProcessExit::Code(0))
        .control(ProcessExit::Code(0))
        .stop()
        .control(ProcessExit::Code(0));
    script.main(ProcessExit::Signal(15)).gone().control(ProcessExit::Code(0)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run pre => activating start-pre success
    control Code(0): main post => activating start-post success
    control Code(0): => active running success
    stop: stop => deactivating stop success
    control Code(0): signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: after => deactivating stop-post success
    control Code(0): signal-15-All => deactivating final-sigterm success
    gone: => inactive dead success
    ");
}

#[test]
fn failing_start_pre() {
    let mut script = ScriptedRun::new(FULL);
    script.start().control(ProcessExit::Code(1)).gone().control(ProcessExit::Code(0)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run pre => activating start-pre success
    control Code(1): signal-15-All => deactivating stop-sigterm exit-code
    gone: after => deactivating stop-post exit-code
    control Code(0): signal-15-All => deactivating final-sigterm exit-code
    gone: => failed failed exit-code
    ");
}

#[test]
fn stop_commands_run_after_a_successful_exit_only() {
    let mut script = ScriptedRun::new("ExecStart=/main\nExecStop=/stop\n");
    script.start().main(ProcessExit::Code(0)).control(ProcessExit::Code(0)).gone();
    script.start().main(ProcessExit::Code(1)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => active running success
    main Code(0): stop => deactivating stop success
    control Code(0): signal-15-All => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run main => active running success
    main Code(1): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    ");
}

#[test]
fn oneshot_with_several_commands() {
    let mut script = ScriptedRun::new(
        "Type=oneshot\nRemainAfterExit=yes\nExecStart=/1\nExecStart=-/2\nExecStart=/3\n",
    );
    script
        .start()
        .main(ProcessExit::Code(0))
        .main(ProcessExit::Code(9))
        .main(ProcessExit::Code(0))
        .stop()
        .gone();
    script.start().main(ProcessExit::Code(4)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run 1 => activating start success
    main Code(0): 2 => activating start success
    main Code(9): 3 => activating start success
    main Code(0): => active exited success
    stop: signal-15-All => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run 1 => activating start success
    main Code(4): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    ");
}

#[test]
fn stop_timeout() {
    let mut script = ScriptedRun::new("ExecStart=/main\nExecStop=/stop\nExecStopPost=/after\n");
    script.start().stop().due().due();
    assert_eq!(script.service.due(), None, "killed processes are reaped");
    script.main(ProcessExit::Signal(9)).control(ProcessExit::Signal(9)).gone().due().due();
    assert_eq!(script.service.due(), None, "killed processes are reaped");
    script.control(ProcessExit::Signal(9)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => active running success
    stop: stop => deactivating stop success
    due: signal-15-All => deactivating stop-sigterm timeout
    due: signal-9-All => deactivating stop-sigkill timeout
    main Signal(9): => deactivating stop-sigkill timeout
    control Signal(9): => deactivating stop-sigkill timeout
    gone: after => deactivating stop-post timeout
    due: signal-15-All => deactivating final-sigterm timeout
    due: signal-9-All => deactivating final-sigkill timeout
    control Signal(9): => deactivating final-sigkill timeout
    gone: => failed failed timeout
    ");
}

#[test]
fn start_timeout() {
    let mut script = ScriptedRun::new("ExecStartPre=/pre\nExecStart=/main\nTimeoutStartSec=5\n");
    script.start().due().control(ProcessExit::Signal(15)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run pre => activating start-pre success
    due: signal-15-All => deactivating stop-sigterm timeout
    control Signal(15): => deactivating stop-sigterm timeout
    gone: => failed failed timeout
    ");
}

/// Starts a unit with two commands of `option`. Lets the first of them end after 1.4 s.
fn run_first_of_two(option: &str, options: &str) -> ScriptedRun {
    let commands = format!("{options}\n{option}=/first\n{option}=/second\n");
    let mut script = ScriptedRun::new(&format!("{commands}TimeoutStartSec=2\nTimeoutStopSec=3\n"));
    script.start();
    if option.starts_with("ExecStop") {
        script.stop();
    }
    if option == "ExecStopPost" {
        script.main(ProcessExit::Signal(15)).gone();
    }
    if option == "ExecReload" {
        script.step("reload", |service, now| service.reload(now).expect("it is active"));
    }
    drop(script.service.take_events());
    script.now = script.now.after(Duration::from_millis(1400));
    if script.service.run_state().control.is_some() {
        script.control(ProcessExit::Code(0));
    } else {
        script.main(ProcessExit::Code(0));
    }
    let last = script.lines.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains(" second "), "{last}");
    script
}

/// Regression: one timeout held for all commands of an option together.
#[test]
fn each_command_has_the_whole_timeout() {
    for (option, options, seconds, planner_seconds) in [
        ("ExecCondition", "ExecStart=/main", 2, 2),
        ("ExecStartPre", "ExecStart=/main", 2, 2),
        ("ExecStart", "Type=oneshot", 2, 2),
        ("ExecStartPost", "ExecStart=/main", 2, 2),
        ("ExecReload", "ExecStart=/main", 2, 2),
        // The signal that follows has a timeout of its own.
        ("ExecStop", "ExecStart=/main", 3, 6),
        ("ExecStopPost", "ExecStart=/main", 3, 6),
    ] {
        let mut script = run_first_of_two(option, options);
        let left = script.service.due().map(|due| due.since(script.now));
        assert_eq!(left, Some(Duration::from_secs(seconds)), "{option}");
        let extension = EventKind::Extend(Duration::from_secs(planner_seconds));
        assert_eq!(script.service.take_events(), [extension], "{option}");
    }
}

/// As under systemd.
#[test]
fn wait_for_pid_file_shares_the_timeout_of_the_start_command() {
    let mut script =
        ScriptedRun::new("Type=forking\nPIDFile=/run/a\nExecStart=/main\nTimeoutStartSec=2\n");
    script.start();
    let due = script.service.due();
    script.now = script.now.after(Duration::from_millis(1400));
    script.control(ProcessExit::Code(0));
    assert!(script.service.run_state().awaits_main);
    assert_eq!(script.service.due(), due);
}

#[test]
fn kill_modes() {
    for (mode, expected) in [("mixed", 2), ("process", 1)] {
        let mut script = ScriptedRun::new(&format!("ExecStart=/main\nKillMode={mode}\n"));
        script.start().stop().main(ProcessExit::Signal(15));
        if mode == "mixed" {
            script.gone();
        }
        assert_eq!(script.service.run_state().phase, ServicePhase::Dead, "{}", script.story());
        let signals = script.story().matches("signal-").count();
        assert_eq!(signals, expected, "{}", script.story());
    }
}

#[test]
fn unspawnable_command_is_a_failure() {
    let mut service = ServiceRun::new(spec("ExecStart=/main\n"));
    let now = Timestamp::from_millis(0);
    service.begin(None, now);
    assert_eq!(service.next_action(), Some(RunAction::NewRun));
    assert!(matches!(service.next_action(), Some(RunAction::Spawn { role: Role::Main, .. })));
    service.on_spawn_failed(ProcessExit::NotSpawned, now);
    service.on_all_gone(now);
    let run_state = service.run_state();
    assert_eq!(
        (run_state.phase, run_state.outcome),
        (ServicePhase::Failed, Some(RunOutcome::Resources))
    );
}

//! The state machine of a service: whole lives as text.

use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::{StopReason, Unit};

use super::compile::compile;
use super::identity::Host;
use super::life::{Action, Phase, ProcessId, Role};
use super::outcome::{End, Outcome};
use super::service::Service;
use super::words::state_of;

pub(super) fn spec(service: &str) -> Arc<Unit> {
    let file = fleet_unitfile::UnitFile::parse(format!("[Service]\n{service}"));
    let host = Host::of_a_test(true);
    let name = "a.service".parse().expect("the name is well formed");
    let compiled = compile(&name, &file.expect("it is well formed"), &host);
    compiled.expect("it can be obeyed").unit.unit
}

/// A service whose processes live as a test says.
pub(super) struct Life {
    spec: Arc<Unit>,
    pub(super) service: Service,
    pub(super) now: Timestamp,
    pids: u32,
    told: Vec<String>,
}

impl Life {
    pub(super) fn new(service: &str) -> Self {
        Self::of(spec(service))
    }

    pub(super) fn of(spec: Arc<Unit>) -> Self {
        let service = Service::new(Arc::clone(&spec));
        Self { spec, service, now: Timestamp::from_millis(0), pids: 0, told: Vec::new() }
    }

    /// Does one thing, carries out what follows, and notes both.
    pub(super) fn step(
        &mut self,
        what: &str,
        input: impl FnOnce(&mut Service, Timestamp),
    ) -> &mut Self {
        input(&mut self.service, self.now);
        let mut line = format!("{what}:");
        while let Some(action) = self.service.next_action() {
            match action {
                Action::NewRun => line.push_str(" new-run"),
                Action::Spawn { command, .. } => {
                    self.pids += 1;
                    line.push_str(&format!(" {}", command.program.trim_start_matches('/')));
                    self.service.on_spawned(ProcessId { pid: self.pids, start: 0 }, self.now);
                }
                Action::Signal { signal, reach, .. } => {
                    line.push_str(&format!(" signal-{}-{reach:?}", signal.number()));
                }
                Action::Tell { signal, .. } => {
                    line.push_str(&format!(" tell-{}", signal.number()));
                }
                Action::AwaitMain => line.push_str(" await-main"),
                Action::AwaitGone => line.push_str(" await-gone"),
                Action::AwaitLine => line.push_str(" await-line"),
            }
        }
        let state = state_of(self.service.memory());
        let result = state.result.unwrap_or_default();
        self.told.push(format!("{line} => {} {} {result}", state.active, state.sub));
        self
    }

    /// Begins the next run.
    pub(super) fn start(&mut self) -> &mut Self {
        self.service = Service::new(Arc::clone(&self.spec));
        self.step("start", |service, now| service.begin_after(None, now))
    }

    pub(super) fn stop(&mut self) -> &mut Self {
        self.step("stop", |service, now| service.end(&StopReason::Unneeded, now))
    }

    pub(super) fn main(&mut self, end: End) -> &mut Self {
        let main = self.service.memory().main.expect("it has a main process");
        self.step(&format!("main {end:?}"), |service, now| service.on_exited(main, end, now))
    }

    pub(super) fn control(&mut self, end: End) -> &mut Self {
        let control = self.service.memory().control.expect("it has a control process");
        self.step(&format!("control {end:?}"), |service, now| service.on_exited(control, end, now))
    }

    pub(super) fn gone(&mut self) -> &mut Self {
        self.step("gone", Service::on_gone)
    }

    pub(super) fn due(&mut self) -> &mut Self {
        self.now = self.service.due().expect("something is due");
        self.step("due", Service::on_time)
    }

    pub(super) fn story(&self) -> String {
        self.told.join("\n")
    }
}

const FULL: &str = "ExecStartPre=/pre\nExecStart=/main\nExecStartPost=/post\nExecStop=/stop\n\
                    ExecStopPost=/after\n";

#[test]
fn a_whole_life() {
    let mut life = Life::new(FULL);
    life.start().control(End::Code(0)).control(End::Code(0)).stop().control(End::Code(0));
    life.main(End::Signal(15)).gone().control(End::Code(0)).gone();
    insta::assert_snapshot!(life.story(), @r"
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
fn a_failure_before_the_main_process() {
    let mut life = Life::new(FULL);
    life.start().control(End::Code(1)).gone().control(End::Code(0)).gone();
    insta::assert_snapshot!(life.story(), @r"
    start: new-run pre => activating start-pre success
    control Code(1): signal-15-All => deactivating stop-sigterm exit-code
    gone: after => deactivating stop-post exit-code
    control Code(0): signal-15-All => deactivating final-sigterm exit-code
    gone: => failed failed exit-code
    ");
}

#[test]
fn an_end_by_itself_runs_stop_commands_only_after_a_success() {
    let mut life = Life::new("ExecStart=/main\nExecStop=/stop\n");
    life.start().main(End::Code(0)).control(End::Code(0)).gone();
    life.start().main(End::Code(1)).gone();
    insta::assert_snapshot!(life.story(), @r"
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
fn a_task_with_several_commands() {
    let mut life =
        Life::new("Type=oneshot\nRemainAfterExit=yes\nExecStart=/1\nExecStart=-/2\nExecStart=/3\n");
    life.start().main(End::Code(0)).main(End::Code(9)).main(End::Code(0)).stop().gone();
    life.start().main(End::Code(4)).gone();
    insta::assert_snapshot!(life.story(), @r"
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
fn a_stop_that_takes_too_long() {
    let mut life = Life::new("ExecStart=/main\nExecStop=/stop\nExecStopPost=/after\n");
    life.start().stop().due().due();
    assert_eq!(life.service.due(), None, "what was killed is waited for");
    life.main(End::Signal(9)).control(End::Signal(9)).gone().due().due();
    assert_eq!(life.service.due(), None, "what was killed is waited for");
    life.control(End::Signal(9)).gone();
    insta::assert_snapshot!(life.story(), @r"
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
fn a_start_that_takes_too_long() {
    let mut life = Life::new("ExecStartPre=/pre\nExecStart=/main\nTimeoutStartSec=5\n");
    life.start().due().control(End::Signal(15)).gone();
    insta::assert_snapshot!(life.story(), @r"
    start: new-run pre => activating start-pre success
    due: signal-15-All => deactivating stop-sigterm timeout
    control Signal(15): => deactivating stop-sigterm timeout
    gone: => failed failed timeout
    ");
}

#[test]
fn kill_modes() {
    for (mode, expected) in [("mixed", 2), ("process", 1)] {
        let mut life = Life::new(&format!("ExecStart=/main\nKillMode={mode}\n"));
        life.start().stop().main(End::Signal(15));
        if mode == "mixed" {
            life.gone();
        }
        assert_eq!(life.service.memory().phase, Phase::Dead, "{}", life.story());
        let signals = life.story().matches("signal-").count();
        assert_eq!(signals, expected, "{}", life.story());
    }
}

#[test]
fn a_command_that_cannot_be_spawned_is_a_failure() {
    let mut service = Service::new(spec("ExecStart=/main\n"));
    let now = Timestamp::from_millis(0);
    service.begin_after(None, now);
    assert_eq!(service.next_action(), Some(Action::NewRun));
    assert!(matches!(service.next_action(), Some(Action::Spawn { role: Role::Main, .. })));
    service.on_spawn_failed(End::NeverWas, now);
    service.on_gone(now);
    let memory = service.memory();
    assert_eq!((memory.phase, memory.outcome), (Phase::Failed, Some(Outcome::Resources)));
}

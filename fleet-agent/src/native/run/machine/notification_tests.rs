//! The state machine of services with notifications, and of forking services.

use std::time::Duration;

use fleet_core::Timestamp;

use super::ServiceRun;
use super::process_events::NotifyMessage;
use super::state::{RunAction, RunOutcome, ServicePhase};
use super::tests::{ScriptedRun, spec};
use crate::native::linux::exit::ProcessExit;
use crate::native::linux::process_info::ProcessId;

impl ScriptedRun {
    fn says(&mut self, words: &str) -> &mut Self {
        let notice = NotifyMessage::parse(words.replace(' ', "\n").as_bytes());
        self.step(words, |service, now| service.on_message(&notice, now))
    }

    fn names(&mut self, pid: u32) -> &mut Self {
        let process = ProcessId { pid, start: 0 };
        self.step(&format!("names {pid}"), |service, now| service.on_main(process, now))
    }

    fn reload(&mut self) -> &mut Self {
        self.step("reload", |service, now| service.reload(now).expect("the reload succeeds"))
    }

    fn pass(&mut self, millis: u64) -> &mut Self {
        self.now = self.now.after(Duration::from_millis(millis));
        self.step(&format!("{millis} ms"), ServiceRun::on_time)
    }
}

#[test]
fn notified_service() {
    let mut script = ScriptedRun::new("Type=notify\nExecStartPre=/pre\nExecStart=/main\n");
    script
        .start()
        .says("READY=1")
        .control(ProcessExit::Code(0))
        .says("STATUS=soon")
        .says("READY=1");
    script.says("READY=1").stop().main(ProcessExit::Signal(15)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run pre => activating start-pre success
    READY=1: => activating start-pre success
    control Code(0): main => activating start success
    STATUS=soon: => activating start success
    READY=1: => active running success
    READY=1: => active running success
    stop: signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: => inactive dead success
    ");
}

#[test]
fn exit_before_readiness_is_a_protocol_failure() {
    let mut script = ScriptedRun::new("Type=notify\nExecStart=/main\n");
    script.start().main(ProcessExit::Code(0)).gone().start().main(ProcessExit::Code(3)).gone();
    script.start().due().main(ProcessExit::Signal(15)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => activating start success
    main Code(0): signal-15-All => deactivating stop-sigterm protocol
    gone: => failed failed protocol
    start: new-run main => activating start success
    main Code(3): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    start: new-run main => activating start success
    due: signal-15-All => deactivating stop-sigterm timeout
    main Signal(15): => deactivating stop-sigterm timeout
    gone: => failed failed timeout
    ");
}

#[test]
fn main_process_may_exit_if_others_may_report_readiness() {
    let unit = "Type=notify\nRemainAfterExit=yes\nExecStart=/main\n";
    let mut script = ScriptedRun::new(&format!("{unit}NotifyAccess=all\n"));
    script.start().main(ProcessExit::Code(0)).says("READY=1").stop().gone();
    script.start().main(ProcessExit::Code(0)).gone();
    script.start().main(ProcessExit::Code(1)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => activating start success
    main Code(0): await-gone => activating start success
    READY=1: => active exited success
    stop: signal-15-All => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run main => activating start success
    main Code(0): await-gone => activating start success
    gone: => failed failed protocol
    start: new-run main => activating start success
    main Code(1): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    ");
    let mut script = ScriptedRun::new(unit);
    script.start().main(ProcessExit::Code(0)).gone();
    assert_eq!(script.service.run_state().outcome, Some(RunOutcome::Protocol));
}

#[test]
fn readiness_by_others_is_awaited_after_a_recovery() {
    let unit = "Type=notify\nRemainAfterExit=yes\nNotifyAccess=all\nExecStart=/main\n";
    let mut script = ScriptedRun::new(unit);
    script.start().main(ProcessExit::Code(0));
    let mut next = ServiceRun::restore(spec(unit), script.service.run_state().clone(), script.now);
    assert_eq!((next.next_action(), next.next_action()), (Some(RunAction::AwaitGone), None));
    next.on_all_gone(script.now);
    assert_eq!(next.run_state().outcome, Some(RunOutcome::Protocol));
}

#[test]
fn forking_service() {
    let mut script = ScriptedRun::new("Type=forking\nPIDFile=/run/a.pid\nExecStart=/launch\n");
    script.start().control(ProcessExit::Code(0)).names(70).main(ProcessExit::Code(1)).gone();
    script.start().control(ProcessExit::Code(1)).gone();
    script.start().control(ProcessExit::Code(0)).due().gone();
    // No process is left that the pid file could name.
    script.start().control(ProcessExit::Code(0)).gone();
    // It has sent `MAINPID=` before its command has exited.
    script
        .start()
        .names(71)
        .control(ProcessExit::Code(0))
        .stop()
        .main(ProcessExit::Signal(15))
        .gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run launch => activating start success
    control Code(0): await-main await-gone => activating start success
    names 70: => active running success
    main Code(1): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    start: new-run launch => activating start success
    control Code(1): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    start: new-run launch => activating start success
    control Code(0): await-main await-gone => activating start success
    due: signal-15-All => deactivating stop-sigterm timeout
    gone: => failed failed timeout
    start: new-run launch => activating start success
    control Code(0): await-main await-gone => activating start success
    gone: => failed failed protocol
    start: new-run launch => activating start success
    names 71: => activating start success
    control Code(0): => active running success
    stop: signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: => inactive dead success
    ");
}

#[test]
fn reloads_by_commands_signals_and_messages() {
    let mut script = ScriptedRun::new("ExecStart=/main\nExecReload=/one\nExecReload=/two\n");
    script.start().reload().control(ProcessExit::Code(0)).control(ProcessExit::Code(0));
    script
        .reload()
        .control(ProcessExit::Code(1))
        .reload()
        .due()
        .stop()
        .main(ProcessExit::Signal(15))
        .gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => active running success
    reload: one => reloading reload success
    control Code(0): two => reloading reload success
    control Code(0): => active running success
    reload: one => reloading reload success
    control Code(1): => active running success
    reload: one => reloading reload success
    due: tell-9 => active running success
    stop: signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: => inactive dead success
    ");

    let mut script = ScriptedRun::new("Type=notify-reload\nExecStart=/main\nTimeoutStartSec=5\n");
    script.start().says("READY=1").reload().says("RELOADING=1").says("READY=1");
    script
        .says("RELOADING=1")
        .due()
        .reload()
        .says("RELOADING=1 READY=1")
        .reload()
        .main(ProcessExit::Code(1));
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => activating start success
    READY=1: => active running success
    reload: tell-1 => reloading reload-signal success
    RELOADING=1: => reloading reload-notify success
    READY=1: => active running success
    RELOADING=1: => reloading reload-notify success
    due: => active running success
    reload: tell-1 => reloading reload-signal success
    RELOADING=1 READY=1: => active running success
    reload: tell-1 => reloading reload-signal success
    main Code(1): signal-15-All => deactivating stop-sigterm exit-code
    ");
}

#[test]
fn messages_during_reload_commands_count_after_them() {
    let mut script = ScriptedRun::new("Type=notify\nExecStart=/main\nExecReload=/one\n");
    script.start().says("READY=1").reload().says("RELOADING=1").control(ProcessExit::Code(0));
    assert_eq!(script.service.run_state().phase, ServicePhase::ReloadNotify, "{}", script.story());
    assert_eq!(script.service.run_state().reloaded, None);
    script.says("READY=1");
    assert_eq!(script.service.run_state().reloaded, Some(RunOutcome::Success));
}

#[test]
fn refused_reload_gives_the_reason() {
    let mut script = ScriptedRun::new("ExecStart=/main\n");
    let now = script.now;
    assert!(script.service.reload(now).is_err_and(|why| why.contains("not active")));
    script.start();
    assert!(script.service.reload(now).is_err_and(|why| why.contains("ExecReload=")));
    assert_eq!(script.service.run_state().phase, ServicePhase::Running);
}

#[test]
fn service_that_stops_itself_gets_no_signal_in_time() {
    let mut script = ScriptedRun::new("Type=notify\nExecStart=/main\nExecStop=/stop\n");
    script.start().says("READY=1").says("STOPPING=1").main(ProcessExit::Code(0)).gone();
    script.start().says("READY=1").says("STOPPING=1").due();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => activating start success
    READY=1: => active running success
    STOPPING=1: => deactivating stop-sigterm success
    main Code(0): signal-15-All => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run main => activating start success
    READY=1: => active running success
    STOPPING=1: => deactivating stop-sigterm success
    due: signal-9-All => deactivating stop-sigkill timeout
    ");
}

#[test]
fn expired_watchdog() {
    let mut script =
        ScriptedRun::new("Type=notify\nExecStart=/main\nWatchdogSec=10\nExecStopPost=/after\n");
    script.start().pass(20_000).says("READY=1").pass(9_999).says("WATCHDOG=1").pass(9_999);
    script.says("WATCHDOG_USEC=1000000").pass(1_000).main(ProcessExit::Dumped(6)).gone();
    script.control(ProcessExit::Code(0)).gone().start().says("READY=1 WATCHDOG=trigger");
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => activating start success
    20000 ms: => activating start success
    READY=1: => active running success
    9999 ms: => active running success
    WATCHDOG=1: => active running success
    9999 ms: => active running success
    WATCHDOG_USEC=1000000: => active running success
    1000 ms: signal-6-All => deactivating stop-watchdog watchdog
    main Dumped(6): => deactivating stop-watchdog watchdog
    gone: after => deactivating stop-post watchdog
    control Code(0): signal-15-All => deactivating final-sigterm watchdog
    gone: => failed failed watchdog
    start: new-run main => activating start success
    READY=1 WATCHDOG=trigger: signal-6-All => deactivating stop-watchdog watchdog
    ");
}

#[test]
fn deadline_is_extended_on_request() {
    let mut script =
        ScriptedRun::new("Type=notify\nExecStart=/main\nTimeoutStartSec=10\nRuntimeMaxSec=20\n");
    script.start().pass(9_000).says("EXTEND_TIMEOUT_USEC=5000000").pass(4_999);
    assert_eq!(script.service.run_state().phase, ServicePhase::Start, "{}", script.story());
    script.says("EXTEND_TIMEOUT_USEC=1").says("READY=1").pass(19_999);
    assert_eq!(script.service.run_state().phase, ServicePhase::Running, "{}", script.story());
    script.pass(1);
    let run_state = script.service.run_state();
    assert_eq!(
        (run_state.phase, run_state.outcome),
        (ServicePhase::StopSigterm, Some(RunOutcome::Timeout))
    );
}

#[test]
fn stop_signals() {
    let mut script = ScriptedRun::new(
        "ExecStart=/main\nKillSignal=SIGINT\nSendSIGHUP=yes\nFinalKillSignal=SIGQUIT\n\
         WatchdogSec=1\nWatchdogSignal=SIGUSR1\nTimeoutAbortSec=3\n",
    );
    script.start().pass(1_000).pass(3_000);
    insta::assert_snapshot!(script.story(), @r"
    start: new-run main => active running success
    1000 ms: signal-10-All => deactivating stop-watchdog watchdog
    3000 ms: signal-3-All => deactivating stop-sigkill watchdog
    ");
}

#[test]
fn exec_condition_decides_about_the_start() {
    let mut script = ScriptedRun::new("ExecCondition=/may\nExecStart=/main\n");
    script.start().control(ProcessExit::Code(0)).stop().main(ProcessExit::Signal(15)).gone();
    script.start().control(ProcessExit::Code(7)).gone();
    script.start().control(ProcessExit::Code(255)).gone();
    insta::assert_snapshot!(script.story(), @r"
    start: new-run may => activating condition success
    control Code(0): main => active running success
    stop: signal-15-All => deactivating stop-sigterm success
    main Signal(15): => deactivating stop-sigterm success
    gone: => inactive dead success
    start: new-run may => activating condition success
    control Code(7): signal-15-All => deactivating stop-sigterm exec-condition
    gone: => inactive dead exec-condition
    start: new-run may => activating condition success
    control Code(255): signal-15-All => deactivating stop-sigterm exit-code
    gone: => failed failed exit-code
    ");
}

#[test]
fn false_condition_skips_the_start() {
    let now = Timestamp::from_millis(0);
    for (is_failure, phase) in [(false, ServicePhase::Dead), (true, ServicePhase::Failed)] {
        let mut service = ServiceRun::new(spec("ExecStart=/main\n"));
        service.begin(None, now);
        assert!(service.next_action().is_some(), "a new run");
        service.on_condition(is_failure, now);
        assert_eq!(service.next_action(), None, "nothing is run");
        assert_eq!((service.run_state().phase, service.due()), (phase, None));
    }
}

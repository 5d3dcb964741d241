//! Tests of the planner together with the run state machine, in simulated time. They cover each row
//! of the event table in `docs/explain/init-model.md`.

mod scripted_unit;

use fleet_core::graph::{InitUnit, Name, Target};
use scripted_unit::ScriptedUnit;

use crate::native::linux::exit::ProcessExit;
use crate::native::run::machine::state::ServicePhase as Stage;
use crate::native::run::machine::tests::spec;

fn check(stanza: &str, rows: &[(&str, &str)]) {
    let stanza = stanza.replace("; ", "\n") + "\nrestart: never\n";
    for (steps, expected) in rows {
        let mut unit = ScriptedUnit::new(&stanza);
        // The initial conditions come first.
        steps.split(", ").for_each(|step| unit.step(step));
        assert_eq!(unit.summary(), *expected, "{stanza} {steps}");
    }
}

const STATUS_0: &str = "failed: its main process ended with status 0";
const COMMAND_STOPPING: &str = "stopping: one of its stop commands timed out";
const COMMAND_LATE: &str = "failed: one of its stop commands timed out";
const STOP_1: &str = "failed: one of its stop commands ended with status 1";
const STATUS_1: &str = "failed: its main process ended with status 1";

#[test]
fn notified_service() {
    let stanza = "type: foreground-notified; exec-start: /main; success-exit: 3; watchdog: 5s; \
                  runtime-max: 20s; stop-timeout: 30s";
    check(
        stanza,
        &[
            ("start", "starting"),
            ("absent, start", "failed: a process could not be started"),
            ("unmet condition, start", "completed"),
            ("unmet assertion, start", "failed: one of its assertions does not hold"),
            ("start, says READY=1", "running"),
            ("start, exits 0", "stopping: its main process ended with status 0"),
            ("start, exits 0, gone", STATUS_0),
            ("start, pass 90", "stopping: its start timed out"),
            ("start, pass 90, says READY=1", "stopping: its start timed out"),
            ("start, pass 90, gone", "failed: its start timed out"),
            ("start, pass 80, says EXTEND_TIMEOUT_USEC=60000000, pass 59", "starting"),
            ("start, says READY=1, says RELOADING=1", "reloading"),
            ("start, says READY=1, says RELOADING=1, says READY=1", "running"),
            ("start, says READY=1, says STOPPING=1", "stopping: SelfInitiated"),
            ("start, says READY=1, says STOPPING=1, exits 1, gone", STATUS_1),
            ("start, says READY=1, says STOPPING=1, exits 3", "exited"),
            ("start, says READY=1, exits 1, gone", STATUS_1),
            ("start, says READY=1, exits 3", "exited"),
            ("start, says READY=1, pass 5", "stopping: its watchdog timed out"),
            ("start, says READY=1, pass 5, gone", "failed: its watchdog timed out"),
        ],
    );
}

#[test]
fn supervised_service() {
    let stanza = "type: foreground-supervised; exec-start: /main; success-exit: 3; exec-stop: \
                  /stop; exec-stop-post: /after; runtime-max: 20s; stop-timeout: 30s";
    check(
        stanza,
        &[
            ("start", "running"),
            ("start, exits 3", "exited"),
            ("start, exits 0, gone", "stopping: its main process ended with status 0"),
            ("start, exits 0, gone, ends 0, gone", STATUS_0),
            ("start, pass 20", "stopping: it exceeded its maximum runtime"),
            ("start, unwanted", "stopping: nothing needs it"),
            ("start, unwanted, ends 0, gone, ends 0, gone", "inactive"),
            ("start, unwanted, ends 1, gone, ends 1, gone", STOP_1),
            ("start, unwanted, pass 29", "stopping: nothing needs it"),
            ("start, unwanted, pass 59", COMMAND_STOPPING),
            // The stop command, the signal, and then the final signal.
            ("start, unwanted, pass 60", COMMAND_STOPPING),
            ("start, unwanted, pass 60, gone, ends 0, gone", COMMAND_LATE),
            // The commands after a kill have their own timeout, and so has their final signal.
            ("start, unwanted, pass 60, gone, pass 10", COMMAND_STOPPING),
            ("start, unwanted, pass 60, gone, pass 29, ends 0, gone", COMMAND_LATE),
            ("start, unwanted, pass 60, gone, pass 69", COMMAND_STOPPING),
            ("start, unwanted, pass 60, gone, pass 70", "stuck: processes are left after SIGKILL"),
            ("start, unwanted, pass 60, gone, pass 61, gone", COMMAND_LATE),
            ("start, unwanted, pass 70", "stuck: processes are left after SIGKILL"),
            ("start, unwanted, pass 9999", "stuck: processes are left after SIGKILL"),
            (
                "start, unwanted, pass 70, gone, ends 0, gone",
                "failed: processes are left after SIGKILL",
            ),
        ],
    );
}

#[test]
fn supervised_service_readiness() {
    let wait = "type: foreground-supervised; exec-start: /main; success-exit: 3; ready-wait: 2s";
    check(
        wait,
        &[
            ("start", "starting"),
            ("start, pass 1", "starting"),
            ("start, pass 2", "running"),
            ("start, exits 3", "exited"),
            ("start, exits 0, gone", STATUS_0),
            ("start, unwanted, gone", "inactive"),
        ],
    );
    let line = "type: foreground-supervised; exec-start: /main; ready-grep: ^up$";
    check(line, &[("start", "starting"), ("start, line", "running")]);
}

#[test]
fn pidfile_service() {
    let stanza = "type: background-pidfile; exec-start: /main; pidfile: /run/a; success-exit: 3";
    check(
        stanza,
        &[
            ("start", "starting"),
            ("start, ends 0", "starting"),
            ("start, ends 0, named", "running"),
            ("start, ends 0, pass 90", "stopping: its PID file names no process of the unit"),
            ("start, ends 1, gone", "failed: one of its commands ended with status 1"),
            ("start, ends 0, named, exits 1, gone", STATUS_1),
            ("start, ends 0, named, exits 3", "exited"),
        ],
    );
}

#[test]
fn pid_file_timeout_has_one_cause() {
    let stanza = "type: background-pidfile; exec-start: /main; pidfile: /run/a";
    let unnamed = "stopping: its PID file names no process of the unit";
    for first in ["", "hasty, "] {
        for (steps, expected) in [
            ("start, ends 0, pass 89", "starting"),
            ("start, ends 0, pass 90", unnamed),
            ("start, pass 89, ends 0, pass 1", unnamed),
            ("start, says EXTEND_TIMEOUT_USEC=200000000, ends 0, pass 200", unnamed),
            ("start, ends 0, says EXTEND_TIMEOUT_USEC=200000000, pass 199", "starting"),
            ("start, ends 0, says EXTEND_TIMEOUT_USEC=200000000, pass 200", unnamed),
            ("start, ends 0, pass 50, taken-back, pass 89", "starting"),
            ("start, ends 0, pass 50, taken-back, pass 90", unnamed),
            // The start command is late; no main process is awaited yet.
            ("start, pass 90", "stopping: its start timed out"),
        ] {
            check(stanza, &[(&format!("{first}{steps}"), expected)]);
        }
    }
}

#[test]
fn scripted_service() {
    let stanza = "type: background-scripted; exec-start: /on; exec-stop: /off; exec-reload: /re";
    check(
        stanza,
        &[
            ("start", "starting"),
            ("start, ends 0", "running"),
            ("start, ends 2, gone", "failed: one of its commands ended with status 2"),
            ("start, ends 0, reload", "reloading"),
            ("start, ends 0, reload, ends 0", "running"),
            ("start, ends 0, reload, ends 1", "running, not reloaded"),
            ("start, ends 0, reload, pass 30", "running, not reloaded"),
            ("start, ends 0, unwanted, ends 0, gone", "inactive"),
        ],
    );
}

#[test]
fn oneshot_service() {
    let stanza = "type: oneshot; exec-start: /1; exec-start: -/2; exec-start-post: /post";
    check(
        stanza,
        &[
            ("start, exits 0", "starting"),
            ("start, exits 0, exits 7", "starting"),
            ("start, exits 0, exits 7, ends 0", "exited"),
            (
                "start, exits 0, exits 7, ends 1, gone",
                "failed: one of its commands ended with status 1",
            ),
            ("start, exits 1, gone", STATUS_1),
            ("start, killed 9, gone", "failed: its main process ended with SIGKILL"),
            ("start, exits 0, exits 0, ends 0, unwanted, gone", "inactive"),
        ],
    );
    let passing = "type: oneshot; exec-start: /1; remain: no; exec-stop: /stop";
    check(
        passing,
        &[
            ("start, exits 0", "stopping: Well"),
            ("start, exits 0, ends 0, gone", "completed"),
            ("start, exits 0, ends 1, gone", STOP_1),
        ],
    );
}

#[test]
fn effect_of_a_successful_exit() {
    let stanza = "type: foreground-supervised; exec-start: /main; clean-exit: ";
    let rests = format!("{stanza}complete");
    check(
        &rests,
        &[("start, exits 0, gone", "completed"), ("start, killed 15, gone", "completed")],
    );
    let remains = format!("{stanza}remain");
    check(
        &remains,
        &[("start, exits 0", "exited"), ("start, exits 0, unwanted, gone", "inactive")],
    );
}

#[test]
fn restart_policy_by_exit() {
    use ProcessExit::{Code, Dumped, Signal, Unobserved};
    let shutting_down = [Code(0), Signal(15), Code(1), Signal(9), Dumped(11), Unobserved];
    for (policy, expected) in [
        ("no", [false; 6]),
        ("always", [true; 6]),
        ("on-success", [true, true, false, false, false, false]),
        ("on-failure", [false, false, true, true, true, true]),
        ("on-abnormal", [false, false, false, true, true, true]),
        ("on-abort", [false, false, false, true, true, true]),
        ("on-watchdog", [false; 6]),
        ("always\nRestartPreventExitStatus=1 SIGKILL", [true, true, false, false, true, true]),
        ("no\nRestartForceExitStatus=0 SIGSEGV", [true, false, false, false, true, false]),
        ("on-failure\nSuccessExitStatus=1 SIGKILL", [false, false, false, false, true, true]),
    ] {
        for (end, restarts) in shutting_down.into_iter().zip(expected) {
            let unit = InitUnit::clone(&spec(&format!("ExecStart=/main\nRestart={policy}\n")));
            let name: Name = "a".parse().expect("it is a name");
            let provides = vec![Target::from(&name)];
            let unit = InitUnit { name: name.clone(), provides, ..unit };
            let mut unit = ScriptedUnit::of(unit);
            unit.settle();
            unit.main_ends(end);
            unit.settle();
            unit.step("gone");
            let seen = unit.planner.observation().units.remove(&name).expect("it ran");
            assert_eq!(seen.retry_at.is_some(), restarts, "{policy} after {end:?}");
        }
    }
}

/// Checks the phase of a run after the planner has killed its unit. Normally the run sends SIGKILL,
/// and waits for the processes to exit. With `stop-final-signal: none` it sends nothing and does
/// not wait.
#[test]
fn timed_out_stop_is_killed() {
    let stanza = "type: foreground-supervised\nexec-start: /main\nexec-stop: /stop\n\
                  exec-stop-post: /after\nrestart: never\n";
    for (kills, steps, signals, after, expected) in [
        (true, "start", vec![9], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted", vec![9], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted, ends 0", vec![9], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted, ends 0, kill", vec![], Some(Stage::StopSigkill), "stopping"),
        (true, "start, unwanted, ends 0, gone", vec![9], Some(Stage::FinalSigkill), "stopping"),
        (
            true,
            "start, unwanted, ends 0, gone, kill",
            vec![],
            Some(Stage::FinalSigkill),
            "stopping",
        ),
        (false, "start, unwanted", vec![], Some(Stage::StopPost), "stopping"),
        (false, "start, unwanted, ends 0", vec![], Some(Stage::StopPost), "stopping"),
        (false, "start, unwanted, ends 0, gone", vec![], None, "inactive"),
    ] {
        let kills = if kills { "" } else { "stop-final-signal: none\n" };
        let mut unit = ScriptedUnit::new(&format!("{stanza}{kills}"));
        steps.split(", ").for_each(|step| unit.step(step));
        unit.signals.clear();
        unit.step("kill");
        let stage = unit.service.as_ref().map(|(_, service)| service.run_state().phase);
        assert_eq!((&unit.signals, stage), (&signals, after), "{kills}{steps}");
        assert!(unit.summary().starts_with(expected), "{kills}{steps}: {}", unit.summary());
    }
}

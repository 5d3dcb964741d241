//! Client commands for a fleet-init that runs units of files, and their refusals.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::Init;
use super::files::{start, start_of, succeed, wait_state};
use crate::daemon::{is_alive, wait_for};

/// A unit with a reload command, one without, and one that ignores TERM.
const UNITS: &str = "\
unit: all
type: virtual
provides: all
waits-for: web, plain, stubborn

unit: web
type: foreground-supervised
provides: web, pages
exec-start: /bin/sh -c 'echo begun; exec sleep 100000'
exec-reload: /bin/sh -c 'echo again >> reloads'
directory: HOME

unit: plain
type: foreground-supervised
provides: plain
exec-start: /bin/sleep 100000

unit: stubborn
type: foreground-supervised
provides: stubborn
exec-start: /bin/sh -c 'trap \"\" TERM; echo begun; while :; do sleep 100; done'
stop-timeout: none
";

fn read(init: &Init, file: &str) -> String {
    std::fs::read_to_string(init.home.path().join(file)).unwrap_or_default()
}

/// Regression: the command failed, so a script had to wait for the first run.
#[test]
fn followed_log_waits_for_the_first_run() {
    let init = start_of(UNITS, "plain", &[], &["--stop-limit", "100ms"]);
    wait_state(&init, "plain", "running");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
    command.args(["logs", "web", "-f"]).env("FLEET_INIT_SOCKET", init.socket());
    let mut follower = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    // Without `-f` the log is missing still.
    assert!(!init.client(&["logs", "web"]).0.success());
    succeed(&init, &["set-target", "web"]);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(line, "begun\n");
}

#[test]
fn unit_is_reloaded_and_restarted() {
    let mut init = start_of(UNITS, "all", &[], &["--stop-limit", "100ms"]);
    let web = wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "plain", "running");
    let output = init.output(&["reload", "pages", "-o", "json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, json!([{ "unit": "pages", "reloads": true }]));
    wait_for("the unit has reloaded", || (read(&init, "reloads") == "again\n").then_some(()));
    assert_eq!(wait_state(&init, "web", "running"), Some(web), "the unit was restarted");
    for (wrong, why) in [("plain", "has no reload command"), ("wbe", "did you mean web?")] {
        let (status, printed) = init.client(&["reload", wrong]);
        assert!(status.code() == Some(1) && printed.contains(why), "{wrong}: {printed}");
    }

    let output = init.output(&["restart", "web", "-o", "json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, json!([{ "unit": "web", "restarted": true }]));
    wait_for("the unit restarts", || (!is_alive(web)).then_some(()));
    wait_state(&init, "web", "running");
    succeed(&init, &["set-target", "plain"]);
    wait_state(&init, "web", "disabled");
    assert!(
        succeed(&init, &["restart", "web"])
            .contains("web was not restarted: it is neither starting nor active")
    );
    init.signal(Signal::TERM);
    assert!(init.wait().success());
}

#[test]
fn shutdown_logs_units_it_waits_for_and_kills() {
    let mut init = start_of(UNITS, "all", &[], &[]);
    wait_state(&init, "stubborn", "running");
    // From then on it ignores TERM.
    wait_for("the unit has started", || {
        init.client(&["logs", "stubborn"]).1.contains("begun").then_some(())
    });
    init.signal(Signal::TERM);
    let waits = "waiting for units to stop units=\"stubborn\"";
    wait_for("the log names the unit", || read(&init, "log").contains(waits).then_some(()));
    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let log = read(&init, "log");
    let kills = log.lines().find(|line| line.contains("killing the remaining units"));
    assert!(kills.is_some_and(|line| line.contains("units=\"stubborn\"")), "{log}");
}

#[test]
fn logs_accept_targets_and_refuse_virtual_units() {
    let init = start();
    wait_for("the unit has written its line", || {
        let (status, printed) = init.client(&["logs", "sql"]);
        (status.success() && printed.contains("db is up")).then_some(())
    });
    let (status, printed) = init.client(&["logs", "all"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("all is virtual") && !printed.contains("did you mean"), "{printed}");
}

#[test]
fn missing_extra_target_is_reported_as_such() {
    let init = start();
    for verb in [&["set-target", "web"][..], &["plan", "--goal", "web"]] {
        let (status, printed) = init.client(&[verb, &["--with", "extar"]].concat());
        assert_eq!(status.code(), Some(1), "{printed}");
        assert!(printed.contains("no unit provides the extra target extar"), "{printed}");
        assert!(printed.contains("did you mean extra?"), "{printed}");
    }
}

#[test]
fn occupied_paths_name_the_owning_process() {
    let init = start();
    let path = |name: &str| init.home.path().join(name).display().to_string();
    let (units, state, other) = (path("units"), path("state"), path("other"));
    let ours = format!("process {}", init.pid().as_raw_nonzero());
    let (_, printed) = init.client(&["run", &units, "--state-dir", &other]);
    assert!(printed.contains(&format!("{ours} already listens at")), "{printed}");
    let (_, printed) =
        init.client(&["run", &units, "--state-dir", &state, "--socket", &path("s2")]);
    assert!(printed.contains(&format!("{ours}, which already uses that directory")), "{printed}");
}

/// Units whose start, restart or reload fails.
const FAILING: &str = "\
unit: good
type: foreground-supervised
provides: good
exec-start: /bin/sleep 100000
exec-reload: /bin/false

unit: bad
type: foreground-supervised
provides: bad
restart: never
exec-start: /bin/sh -c 'exit 3'
ready-wait: 100ms

unit: slow
type: foreground-supervised
provides: slow
exec-start: /bin/sleep 100000
ready-wait: 300ms

unit: both
type: virtual
provides: both
waits-for: good, bad
";

/// Regression: each command returned at once and succeeded.
#[test]
fn commands_wait_for_the_outcome_and_report_it() {
    let mut init = start_of(FAILING, "good", &[], &[]);
    wait_state(&init, "good", "running");
    let (status, printed) = init.client(&["reload", "good"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("the reload of good failed; it keeps running"), "{printed}");
    succeed(&init, &["reload", "good", "--no-block"]);

    let (status, printed) = init.client(&["set-target", "both"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("both is not fully up: bad is failed"), "{printed}");
    succeed(&init, &["set-target", "both", "--no-block"]);

    let printed = succeed(&init, &["set-target", "slow"]);
    assert!(printed.contains("slow: all needed units are up (1)"), "{printed}");
    let pid = wait_state(&init, "slow", "running");
    assert!(succeed(&init, &["restart", "slow"]).contains("slow was restarted"));
    let status = init.output(&["status", "-o", "json"]);
    let units: Value = serde_json::from_slice(&status.stdout).unwrap();
    let slow = units.as_array().unwrap().iter().find(|unit| unit["unit"] == "slow").unwrap();
    assert_eq!((&slow["state"], &slow["changing"]), (&json!("running"), &json!(false)));
    assert_ne!(wait_state(&init, "slow", "running"), pid, "it was not restarted");

    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let log = read(&init, "log");
    for line in [
        "starting a unit unit=good",
        "the reload of a unit failed unit=good",
        "the goal was set goal=\"both\"",
        "a unit has failed, and is not retried unit=bad cause=its main process ended with status 3",
        "stopping a unit unit=slow reason=a restart was requested",
        "a unit has stopped unit=slow",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// Regression: each retry of a start that could not be recorded logged two lines.
#[test]
fn unrecorded_start_is_logged_once() {
    let mut init = start_of(FAILING, "good", &[], &[]);
    let mut runtime = std::fs::read_dir(init.home.path().join("run")).unwrap();
    let unit = runtime.next().unwrap().unwrap().path().join("units/slow");
    std::fs::create_dir(&unit).unwrap();
    let full = unit.join("stanza.new");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    succeed(&init, &["set-target", "slow", "--no-block"]);
    wait_for("the start was retried", || {
        (super::files::unit(&init, "slow")["incarnation"].as_u64() > Some(4)).then_some(())
    });
    std::fs::remove_file(&full).unwrap();
    wait_state(&init, "slow", "running");
    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let log = read(&init, "log");
    for (line, expected) in [
        ("starting a unit unit=slow", 1),
        ("restarting a unit unit=slow", 0),
        ("a unit has failed unit=slow cause=its start could not be recorded", 1),
        ("a unit is ready unit=slow", 1),
    ] {
        assert_eq!(log.matches(line).count(), expected, "{line}: {log}");
    }
}

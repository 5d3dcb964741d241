//! What is asked of one that runs units of files, and the words for what it does not do.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::Init;
use super::files::{start, start_of, succeed, wait_state};
use crate::daemon::{is_alive, wait_for};

/// A unit that reads its configuration again, one that does not, and one that is stubborn.
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

#[test]
fn a_unit_of_files_is_reloaded_and_started_anew() {
    let mut init = start_of(UNITS, "all", &[], &["--stop-limit", "100ms"]);
    let web = wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "plain", "running");
    let output = init.output(&["reload", "pages", "-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told, json!([{ "unit": "pages", "reloads": true }]));
    wait_for("it has reloaded", || (read(&init, "reloads") == "again\n").then_some(()));
    assert_eq!(wait_state(&init, "web", "running"), Some(web), "it runs on");
    for (wrong, why) in [("plain", "has no reload command"), ("wbe", "did you mean web?")] {
        let (status, told) = init.ask(&["reload", wrong]);
        assert!(status.code() == Some(1) && told.contains(why), "{wrong}: {told}");
    }

    let output = init.output(&["restart", "web", "-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told, json!([{ "unit": "web", "restarted": true }]));
    wait_for("it is started anew", || (!is_alive(web)).then_some(()));
    wait_state(&init, "web", "running");
    succeed(&init, &["set-target", "plain"]);
    wait_state(&init, "web", "disabled");
    assert!(succeed(&init, &["restart", "web"]).contains("web is neither starting nor active"));
    init.signal(Signal::TERM);
    assert!(init.wait().success());
}

#[test]
fn the_end_says_which_units_it_waits_for_and_kills() {
    let mut init = start_of(UNITS, "all", &[], &[]);
    wait_state(&init, "stubborn", "running");
    // Only then does it not mind the signal.
    wait_for("it has begun", || init.ask(&["logs", "stubborn"]).1.contains("begun").then_some(()));
    init.signal(Signal::TERM);
    let waits = "waiting for units to stop units=\"stubborn\"";
    wait_for("it says what it waits for", || read(&init, "log").contains(waits).then_some(()));
    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let log = read(&init, "log");
    let kills = log.lines().find(|line| line.contains("killing the remaining units"));
    assert!(kills.is_some_and(|line| line.contains("units=\"stubborn\"")), "{log}");
}

#[test]
fn a_log_is_found_by_a_target_and_a_virtual_unit_has_none() {
    let init = start();
    wait_for("it has begun", || {
        let (status, told) = init.ask(&["logs", "sql"]);
        (status.success() && told.contains("db is up")).then_some(())
    });
    let (status, told) = init.ask(&["logs", "all"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("all is virtual") && !told.contains("did you mean"), "{told}");
}

#[test]
fn a_missing_extra_target_is_not_called_the_goal() {
    let init = start();
    for verb in [&["set-target", "web"][..], &["plan", "--goal", "web"]] {
        let (status, told) = init.ask(&[verb, &["--with", "extar"]].concat());
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(told.contains("no unit provides the extra target extar"), "{told}");
        assert!(told.contains("did you mean extra?"), "{told}");
    }
}

#[test]
fn who_has_the_place_already_is_named() {
    let init = start();
    let path = |name: &str| init.home.path().join(name).display().to_string();
    let (units, state, other) = (path("units"), path("state"), path("other"));
    let ours = format!("process {} ", init.pid().as_raw_nonzero());
    let (_, told) = init.ask(&["run", &units, "--state-dir", &other]);
    assert!(told.contains(&format!("{ours}listens at")), "{told}");
    let (_, told) = init.ask(&["run", &units, "--state-dir", &state, "--socket", &path("s2")]);
    assert!(told.contains(&format!("{ours}runs units from there")), "{told}");
}

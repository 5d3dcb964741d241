//! `fleet-init run DIR`: units of files and their goal.

use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::Init;
use crate::daemon::{is_alive, wait_for};

/// A goal, its services, a failing oneshot unit, and an unneeded unit.
pub(super) const UNITS: &str = "\
unit: all
type: virtual
provides: all
waits-for: web, bad

unit: db
type: foreground-supervised
provides: db, sql
exec-start: /bin/sh -c 'echo db is up; exec sleep 100000'
exec-stop-post: /bin/sh -c 'echo db >> ended'
directory: HOME

unit: web
type: foreground-supervised
provides: web
depends-on: db
exec-start: /bin/sleep 100000
exec-stop-post: /bin/sh -c 'echo web >> ended'
directory: HOME

unit: bad
type: oneshot
provides: bad
exec-start: /bin/false
restart-delay: 1h
restart-max-delay: 1h

unit: extra
type: foreground-supervised
provides: extra
exec-start: /bin/sleep 100000
";

pub(super) fn start() -> Init {
    start_wrapped(&[])
}

/// Like [`start`], run by another command.
pub(super) fn start_wrapped(wrapper: &'static [&'static str]) -> Init {
    start_of(UNITS, "all", wrapper, &[])
}

/// Starts a fleet-init with these units and arguments. `HOME` in the units is its directory.
pub(super) fn start_of(
    units: &str,
    goal: &str,
    wrapper: &'static [&'static str],
    more: &[&str],
) -> Init {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("units");
    std::fs::create_dir(&folder).unwrap();
    let text = units.replace("HOME", &home.path().display().to_string());
    std::fs::write(folder.join("all.unit"), text).unwrap();
    std::fs::write(folder.join("init.conf"), format!("goal: {goal}\n")).unwrap();
    let folder = folder.display().to_string();
    Init::start_in(home, wrapper, &[&[folder.as_str()], more].concat())
}

/// Runs a client command that must succeed. Returns all its output.
pub(super) fn succeed(init: &Init, args: &[&str]) -> String {
    let (status, printed) = init.client(args);
    assert!(status.success(), "{args:?}: {printed}");
    printed
}

/// Returns the status of a unit.
pub(super) fn unit(init: &Init, name: &str) -> Value {
    let output = init.output(&["status", "-o", "json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    all.into_iter().find(|unit| unit["unit"] == name).expect("the unit is listed")
}

/// Waits until a unit is in a state. Returns its main process, if there is one.
pub(super) fn wait_state(init: &Init, name: &str, state: &str) -> Option<Pid> {
    let found = wait_for(&format!("{name} is {state}"), || {
        Some(unit(init, name)).filter(|unit| unit["state"] == state)
    });
    found["mainPID"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().unwrap()))
}

#[test]
fn goal_is_started_shown_and_changed() {
    let init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "bad", "failed");
    wait_state(&init, "all", "running");
    wait_state(&init, "extra", "disabled");
    let printed = succeed(&init, &["status"]);
    for shown in ["└─web (waits-for)", "  └─db (depends-on)", "retry in 59min", "degraded"]
    {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
    assert!(succeed(&init, &["logs", "db"]).contains("\ndb is up\n"));
    let lines = init.output(&["logs", "db", "-o", "json"]).stdout;
    let lines: Vec<Value> = serde_json::from_slice(&lines).unwrap();
    let written = lines[0]["timestamp"].as_u64().expect("the time is known");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    assert!((now - 600_000..=now).contains(&u128::from(written)), "{written} of {now}");
    succeed(&init, &["reset-failed", "bad"]);

    succeed(&init, &["set-target", "web", "--with", "extra"]);
    wait_state(&init, "extra", "running");
    wait_state(&init, "bad", "disabled");
    assert!(is_alive(db) && is_alive(web), "units that are still needed were disturbed");
    for wrong in
        [&["set-target", "unknown"][..], &["reset-failed", "unknown"], &["logs", "unknown"]]
    {
        let (status, printed) = init.client(wrong);
        assert_eq!(status.code(), Some(1), "{printed}");
        assert!(printed.contains("unknown"), "{printed}");
    }
    for wrong in [&["set-target", "extar"][..], &["reset-failed", "extar"], &["logs", "extar"]] {
        let (status, printed) = init.client(wrong);
        assert_eq!(status.code(), Some(1), "{printed}");
        assert!(printed.contains("did you mean extra"), "{printed}");
    }
    assert_eq!(init.client(&["set-target"]).0.code(), Some(2));
}

#[test]
fn masked_unit_stops_until_it_is_unmasked() {
    let init = start();
    let web = wait_state(&init, "web", "running").unwrap();
    succeed(&init, &["mask", "sql"]);
    wait_state(&init, "db", "masked");
    wait_state(&init, "web", "waiting");
    assert_eq!(unit(&init, "web")["reason"], "db is masked");
    assert!(!is_alive(web));
    // A reload keeps the mask.
    succeed(&init, &["reload"]);
    wait_state(&init, "db", "masked");
    assert!(succeed(&init, &["mask", "db"]).contains("db is already masked"));
    let (status, printed) = init.client(&["mask", "all"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("the goal all is masked"), "{printed}");
    succeed(&init, &["unmask", "db"]);
    wait_state(&init, "web", "running");
    assert!(succeed(&init, &["unmask", "db"]).contains("db is not masked"));
    let conf = init.home.path().join("units/init.conf");
    std::fs::write(conf, "goal: all\nmask: db\n").unwrap();
    succeed(&init, &["reload"]);
    wait_state(&init, "db", "masked");
    let (status, printed) = init.client(&["unmask", "db"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("db is masked in init.conf: remove it from `mask`"), "{printed}");
}

#[test]
fn reload_is_all_or_nothing() {
    let init = start();
    let web = wait_state(&init, "web", "running").unwrap();
    let path = init.home.path().join("units/more.unit");
    std::fs::write(&path, "unit: more\ntype: virtual\nprovides: more\nwaits-for: nothing\n")
        .unwrap();
    let (status, printed) = init.client(&["reload"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("more.unit:4:") && printed.contains("nothing"), "{printed}");
    assert!(!succeed(&init, &["status"]).contains("more"), "an invalid file was loaded");

    std::fs::write(&path, "unit: more\ntype: virtual\nprovides: more\nwaits-for: extra\n").unwrap();
    succeed(&init, &["reload"]);
    wait_state(&init, "more", "disabled");
    std::fs::write(init.home.path().join("units/init.conf"), "goal: more\n").unwrap();
    init.signal(Signal::HUP);
    wait_state(&init, "more", "running");
    wait_for("the unneeded unit stops", || (!is_alive(web)).then_some(()));
}

#[test]
fn occupied_socket_prevents_any_start() {
    let init = start();
    wait_state(&init, "web", "running");
    let (units, state) = (init.home.path().join("units"), init.home.path().join("other"));
    let (units, state) = (units.display().to_string(), state.display().to_string());
    let (status, printed) = init.client(&["run", &units, "--state-dir", &state]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("already listens at"), "{printed}");
    assert!(!std::path::Path::new(&state).exists(), "units were started without a socket");
    succeed(&init, &["status"]);
}

#[test]
fn reload_without_a_goal_stops_nothing() {
    let init = start();
    let web = wait_state(&init, "web", "running").unwrap();
    std::fs::write(init.home.path().join("units/init.conf"), "").unwrap();
    let (status, printed) = init.client(&["reload"]);
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("no goal is set, so there is nothing to run"), "{printed}");
    assert_eq!(wait_state(&init, "web", "running"), Some(web));
}

#[test]
fn units_survive_sigkill_and_stop_in_order() {
    let mut init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    succeed(&init, &["set-target", "web"]);
    init.signal(Signal::KILL);
    init.wait();
    assert!(is_alive(db) && is_alive(web), "a unit ended with its fleet-init");
    let log = std::fs::File::options().append(true).open(init.home.path().join("state/logs/db"));
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    log.unwrap().set_modified(long_ago).unwrap();
    init.start_again();
    assert!(succeed(&init, &["logs", "db", "--since", "3h"]).contains("db is up"));
    assert!(!succeed(&init, &["logs", "db", "--since", "1h"]).contains("db is up"));
    assert_eq!(wait_state(&init, "web", "running"), Some(web));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
    wait_state(&init, "bad", "disabled"); // set-target's choice was kept

    init.signal(Signal::TERM);
    assert!(init.wait().success());
    assert!(!is_alive(db) && !is_alive(web));
    let ended = std::fs::read_to_string(init.home.path().join("ended")).unwrap();
    assert_eq!(ended, "web\ndb\n", "dependents must stop first");
}

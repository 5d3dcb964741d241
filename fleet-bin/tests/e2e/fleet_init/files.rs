//! `fleet-init run DIR`: units of files, by their goal.

use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::Init;
use crate::daemon::{is_alive, wait_for};

/// A goal with a service, what that needs, one that fails, and a unit that nobody needs.
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
    start_through(&[])
}

/// The same, run by another program.
pub(super) fn start_through(through: &'static [&'static str]) -> Init {
    start_of(UNITS, "all", through, &[])
}

/// A fleet-init that runs these units, whose HOME is its directory, with more arguments.
pub(super) fn start_of(
    units: &str,
    goal: &str,
    through: &'static [&'static str],
    more: &[&str],
) -> Init {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("units");
    std::fs::create_dir(&folder).unwrap();
    let text = units.replace("HOME", &home.path().display().to_string());
    std::fs::write(folder.join("all.unit"), text).unwrap();
    std::fs::write(folder.join("init.conf"), format!("goal: {goal}\n")).unwrap();
    let folder = folder.display().to_string();
    Init::start_in(home, through, &[&[folder.as_str()], more].concat())
}

pub(super) fn succeed(init: &Init, args: &[&str]) -> String {
    let (status, told) = init.ask(args);
    assert!(status.success(), "{args:?}: {told}");
    told
}

pub(super) fn unit(init: &Init, name: &str) -> Value {
    let output = init.output(&["status", "-o", "json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    all.into_iter().find(|unit| unit["unit"] == name).expect("there is such a unit")
}

/// Waits until a unit is in a state, and returns its process, if it has one.
pub(super) fn wait_state(init: &Init, name: &str, state: &str) -> Option<Pid> {
    let found = wait_for(&format!("{name} is {state}"), || {
        Some(unit(init, name)).filter(|unit| unit["state"] == state)
    });
    found["mainPID"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().unwrap()))
}

#[test]
fn a_goal_is_run_shown_and_changed() {
    let init = start();
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    wait_state(&init, "bad", "failed");
    wait_state(&init, "all", "running");
    wait_state(&init, "extra", "disabled");
    let told = succeed(&init, &["status"]);
    for shown in ["└─web (waits-for)", "  └─db (depends-on)", "retry in 59min", "degraded"]
    {
        assert!(told.contains(shown), "{shown}: {told}");
    }
    assert!(succeed(&init, &["logs", "db"]).contains("\ndb is up\n"));
    succeed(&init, &["reset-failed", "bad"]);

    succeed(&init, &["set-target", "web", "--with", "extra"]);
    wait_state(&init, "extra", "running");
    wait_state(&init, "bad", "disabled");
    assert!(is_alive(db) && is_alive(web), "what is needed still is not disturbed");
    for wrong in [&["set-target", "nobody"][..], &["reset-failed", "nobody"], &["logs", "nobody"]] {
        let (status, told) = init.ask(wrong);
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(told.contains("nobody"), "{told}");
    }
    for wrong in [&["set-target", "extar"][..], &["reset-failed", "extar"], &["logs", "extar"]] {
        let (status, told) = init.ask(wrong);
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(told.contains("did you mean extra"), "{told}");
    }
    assert_eq!(init.ask(&["set-target"]).0.code(), Some(2));
}

#[test]
fn files_are_read_again_as_a_whole_or_not_at_all() {
    let init = start();
    let web = wait_state(&init, "web", "running").unwrap();
    let path = init.home.path().join("units/more.unit");
    std::fs::write(&path, "unit: more\ntype: virtual\nprovides: more\nwaits-for: nothing\n")
        .unwrap();
    let (status, told) = init.ask(&["reload"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("more.unit:4:") && told.contains("nothing"), "{told}");
    assert!(!succeed(&init, &["status"]).contains("more"), "nothing has changed");

    std::fs::write(&path, "unit: more\ntype: virtual\nprovides: more\nwaits-for: extra\n").unwrap();
    succeed(&init, &["reload"]);
    wait_state(&init, "more", "disabled");
    std::fs::write(init.home.path().join("units/init.conf"), "goal: more\n").unwrap();
    init.signal(Signal::HUP);
    wait_state(&init, "more", "running");
    wait_for("what is not needed any more ends", || (!is_alive(web)).then_some(()));
}

#[test]
fn one_that_has_no_place_to_listen_at_begins_nothing() {
    let init = start();
    wait_state(&init, "web", "running");
    let (units, state) = (init.home.path().join("units"), init.home.path().join("other"));
    let (units, state) = (units.display().to_string(), state.display().to_string());
    let (status, told) = init.ask(&["run", &units, "--state-dir", &state]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("already listens at"), "{told}");
    assert!(!std::path::Path::new(&state).exists(), "units were begun that nobody sees to");
    succeed(&init, &["status"]);
}

#[test]
fn files_without_a_goal_end_nothing() {
    let init = start();
    let web = wait_state(&init, "web", "running").unwrap();
    std::fs::write(init.home.path().join("units/init.conf"), "").unwrap();
    let (status, told) = init.ask(&["reload"]);
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("there is no goal to run"), "{told}");
    assert_eq!(wait_state(&init, "web", "running"), Some(web));
}

#[test]
fn units_of_files_outlive_a_kill_and_end_in_order() {
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
    wait_state(&init, "bad", "disabled"); // the goal that was chosen holds

    init.signal(Signal::TERM);
    assert!(init.wait().success());
    assert!(!is_alive(db) && !is_alive(web));
    let ended = std::fs::read_to_string(init.home.path().join("ended")).unwrap();
    assert_eq!(ended, "web\ndb\n", "dependents go first");
}

//! What becomes of units of files when what runs them breaks off and is begun again.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::files::{UNITS, start_of, succeed, wait_state};
use super::{Init, children};
use crate::daemon::{is_alive, wait_for};

/// Each line of its log fails, as on a disk that is full.
const LOGGED_NOWHERE: &[&str] = &["sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full"];

/// The process that runs the units, and has no child but them.
fn watched(init: &Init) -> Pid {
    let all = wait_for("it is begun", || Some(children(init.pid())).filter(|all| all.len() == 1));
    all[0].0
}

fn kill_watched(init: &Init) {
    let watched = watched(init);
    kill_process(watched, Signal::KILL).unwrap();
    wait_for("it is gone", || (!is_alive(watched)).then_some(()));
}

#[test]
fn one_that_breaks_off_while_its_files_are_broken_goes_on_with_those_of_before() {
    let mut init = start_of(UNITS, "all", &[], &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    let file = init.home.path().join("units/all.unit");
    let sound = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, sound.clone() + "typo\n").unwrap();
    kill_watched(&init);
    wait_for("it listens again", || init.ask(&["status"]).0.success().then_some(()));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
    assert_eq!(wait_state(&init, "web", "running"), Some(web));
    let log = std::fs::read_to_string(init.home.path().join("log")).unwrap();
    assert!(log.contains("broke off; another is started"), "{log}");
    assert!(log.contains("goes on with the files that it last took"), "{log}");
    assert!(log.contains("all.unit:") && log.contains("[E01]"), "{log}");
    assert_eq!(init.ask(&["reload"]).0.code(), Some(1), "they are broken still");
    std::fs::write(&file, sound.replace("provides: extra", "provides: extra, more")).unwrap();
    succeed(&init, &["reload", "-o", "json"]);
    std::fs::write(&file, "typo\n").unwrap();
    kill_watched_beside_units(&init, &[db, web]);
    wait_for("it listens again", || init.ask(&["status"]).0.success().then_some(()));
    assert!(succeed(&init, &["status", "-o", "json"]).contains("\"more\""), "what was read last");

    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let units = init.home.path().join("units").display().to_string();
    let state = init.home.path().join("state").display().to_string();
    let (status, told) = init.ask(&["run", &units, "--state-dir", &state]);
    assert_eq!(status.code(), Some(1), "what has ended is begun with sound files alone: {told}");
}

/// The same where units were taken back, and are children of the first process.
fn kill_watched_beside_units(init: &Init, units: &[Pid]) {
    let all = children(init.pid());
    let watched = all.iter().find(|(pid, _)| !units.contains(pid)).expect("it runs").0;
    kill_process(watched, Signal::KILL).unwrap();
    wait_for("it is gone", || (!is_alive(watched)).then_some(()));
}

#[test]
fn one_that_cannot_write_its_log_takes_its_units_back_all_the_same() {
    let init = start_of(UNITS, "all", LOGGED_NOWHERE, &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    kill_watched(&init);
    wait_for("it listens again", || init.ask(&["status"]).0.success().then_some(()));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
}

#[test]
fn one_that_cannot_be_started_for_want_of_memory_is_tried_until_it_can() {
    // How much it takes to start another depends on how many variables are handed on.
    let through = &["env", "-i", "PATH=/usr/bin:/bin"];
    let init = start_of(UNITS, "all", through, &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    // The first process gets no more than it has.
    let none = Rlimit { current: Some(1), maximum: None };
    let before = prlimit(Some(init.pid()), Resource::As, none).unwrap();
    kill_watched(&init);
    let log = init.home.path().join("log");
    wait_for("it was tried in vain, and the first process runs", || {
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(is_alive(init.pid()), "{log}");
        log.contains("cannot be started; it is tried again").then_some(())
    });
    prlimit(Some(init.pid()), Resource::As, before).unwrap();
    wait_for("it listens again", || init.ask(&["status"]).0.success().then_some(()));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
}

#[test]
fn one_that_is_told_to_end_right_after_it_broke_off_ends_its_units_all_the_same() {
    let mut init = start_of(UNITS, "all", &[], &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    kill_watched(&init);
    init.signal(Signal::TERM);
    let ended = init.wait();
    let log = std::fs::read_to_string(init.home.path().join("log")).unwrap();
    assert!(ended.success(), "{ended}: {log}");
    let ended = std::fs::read_to_string(init.home.path().join("ended")).unwrap_or_default();
    assert_eq!(ended, "web\ndb\n", "dependents go first: {log}");
    for pid in [db, web] {
        assert!(!is_alive(pid), "{pid:?} runs on: {log}");
    }
}

/// `reset-failed` found no unit of that name, and `logs` no log.
#[test]
fn a_unit_that_is_lost_and_in_no_file_any_more_is_read_and_reset_by_its_name() {
    let all = "unit: all\ntype: virtual\nprovides: all\n";
    let lost = "unit: a\ntype: foreground-supervised\nprovides: a\n\
                exec-start: /bin/sh -c 'echo here; exec sleep 100000'\n";
    let mut init = start_of(&format!("{all}waits-for: a\n\n{lost}"), "all", &[], &[]);
    let pid = wait_state(&init, "a", "running").unwrap();
    wait_for("it has begun", || succeed(&init, &["logs", "a"]).contains("here").then_some(()));
    init.signal(Signal::KILL);
    init.wait();
    let records = init.home.path().join("state/runs");
    let text = std::fs::read_to_string(&records).unwrap();
    // As a later version might.
    std::fs::write(&records, text.replace("\"running\"", "\"resting\"")).unwrap();
    std::fs::write(init.home.path().join("units/all.unit"), all).unwrap();
    init.start_again();
    wait_state(&init, "a", "failed");
    assert!(succeed(&init, &["logs", "a"]).contains("here"));
    kill_process(pid, Signal::KILL).unwrap();
    succeed(&init, &["reset-failed", "a"]);
    let told = succeed(&init, &["status", "-o", "name"]);
    assert!(!told.lines().any(|line| line == "a"), "{told}");
}

//! Adoption of units of files after a crash of their supervisor.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::files::{UNITS, start_of, succeed, wait_state};
use super::{Init, children};
use crate::daemon::{is_alive, wait_for};

/// Runs a program whose log writes fail, as on a full disk.
const FULL_LOG: &[&str] = &["sh", "-c", "exec \"$0\" \"$@\" 2>/dev/full"];

/// Returns the supervisor process, the only child of the subreaper.
fn supervisor(init: &Init) -> Pid {
    let all = wait_for("the supervisor has started", || {
        Some(children(init.pid())).filter(|all| all.len() == 1)
    });
    all[0].0
}

fn kill_supervisor(init: &Init) {
    let supervisor = supervisor(init);
    kill_process(supervisor, Signal::KILL).unwrap();
    wait_for("the supervisor has exited", || (!is_alive(supervisor)).then_some(()));
}

#[test]
fn crash_with_invalid_files_uses_the_accepted_ones() {
    let mut init = start_of(UNITS, "all", &[], &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    let file = init.home.path().join("units/all.unit");
    let sound = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, sound.clone() + "typo\n").unwrap();
    kill_supervisor(&init);
    wait_for("fleet-init responds again", || init.client(&["status"]).0.success().then_some(()));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
    assert_eq!(wait_state(&init, "web", "running"), Some(web));
    let mut names = children(init.pid()).into_iter().map(|(pid, _)| {
        std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap()
    });
    assert!(names.any(|name| name == "fleet-init\n"), "ps shows another name");
    let log = std::fs::read_to_string(init.home.path().join("log")).unwrap();
    assert!(log.contains("the supervisor process crashed: restarting it"), "{log}");
    assert!(log.contains("using the last version without errors"), "{log}");
    assert!(log.contains("all.unit:") && log.contains("[E01]"), "{log}");
    assert_eq!(init.client(&["reload"]).0.code(), Some(1), "a reload accepted invalid files");
    std::fs::write(&file, sound.replace("provides: extra", "provides: extra, more")).unwrap();
    succeed(&init, &["reload", "-o", "json"]);
    std::fs::write(&file, "typo\n").unwrap();
    kill_supervisor_beside_units(&init, &[db, web]);
    wait_for("fleet-init responds again", || init.client(&["status"]).0.success().then_some(()));
    assert!(
        succeed(&init, &["status", "-o", "json"]).contains("\"more\""),
        "the last accepted definitions were not used"
    );

    init.signal(Signal::TERM);
    assert!(init.wait().success());
    let units = init.home.path().join("units").display().to_string();
    let state = init.home.path().join("state").display().to_string();
    let (status, printed) = init.client(&["run", &units, "--state-dir", &state]);
    assert_eq!(status.code(), Some(1), "invalid files were accepted after a clean end: {printed}");
}

/// Like [`kill_supervisor`], when adopted units are children of the subreaper, too.
fn kill_supervisor_beside_units(init: &Init, units: &[Pid]) {
    let all = children(init.pid());
    let supervisor =
        all.iter().find(|(pid, _)| !units.contains(pid)).expect("the supervisor is running").0;
    kill_process(supervisor, Signal::KILL).unwrap();
    wait_for("the supervisor has exited", || (!is_alive(supervisor)).then_some(()));
}

#[test]
fn unwritable_log_does_not_prevent_adoption() {
    let init = start_of(UNITS, "all", FULL_LOG, &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    kill_supervisor(&init);
    wait_for("fleet-init responds again", || init.client(&["status"]).0.success().then_some(()));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
}

#[test]
fn supervisor_restart_is_retried_without_memory() {
    // The memory needed for a start depends on the size of the environment.
    let wrapper = &["env", "-i", "PATH=/usr/bin:/bin"];
    let init = start_of(UNITS, "all", wrapper, &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    // The subreaper can allocate no more memory.
    let none = Rlimit { current: Some(1), maximum: None };
    let before = prlimit(Some(init.pid()), Resource::As, none).unwrap();
    kill_supervisor(&init);
    let log = init.home.path().join("log");
    wait_for("the restart fails and the subreaper keeps running", || {
        let log = std::fs::read_to_string(&log).unwrap();
        assert!(is_alive(init.pid()), "{log}");
        log.contains("cannot start the supervisor process").then_some(())
    });
    prlimit(Some(init.pid()), Resource::As, before).unwrap();
    wait_for("fleet-init responds again", || init.client(&["status"]).0.success().then_some(()));
    assert_eq!(wait_state(&init, "db", "running"), Some(db));
}

#[test]
fn term_right_after_a_crash_stops_all_units() {
    let mut init = start_of(UNITS, "all", &[], &["--reap"]);
    let db = wait_state(&init, "db", "running").unwrap();
    let web = wait_state(&init, "web", "running").unwrap();
    kill_supervisor(&init);
    init.signal(Signal::TERM);
    let ended = init.wait();
    let log = std::fs::read_to_string(init.home.path().join("log")).unwrap();
    assert!(ended.success(), "{ended}: {log}");
    let ended = std::fs::read_to_string(init.home.path().join("ended")).unwrap_or_default();
    assert_eq!(ended, "web\ndb\n", "dependents go first: {log}");
    for pid in [db, web] {
        assert!(!is_alive(pid), "{pid:?} is still running: {log}");
    }
}

/// Regression: `reset-failed` found no unit of that name, and `logs` no log.
#[test]
fn lost_unit_without_a_file_can_be_read_and_reset() {
    let all = "unit: all\ntype: virtual\nprovides: all\n";
    let lost = "unit: a\ntype: foreground-supervised\nprovides: a\n\
                exec-start: /bin/sh -c 'echo here; exec sleep 100000'\n";
    let mut init = start_of(&format!("{all}waits-for: a\n\n{lost}"), "all", &[], &[]);
    let pid = wait_state(&init, "a", "running").unwrap();
    wait_for("the unit has written its line", || {
        succeed(&init, &["logs", "a"]).contains("here").then_some(())
    });
    init.signal(Signal::KILL);
    init.wait();
    let mut runtime = std::fs::read_dir(init.home.path().join("run")).unwrap();
    let records = runtime.next().unwrap().unwrap().path().join("runs");
    let text = std::fs::read_to_string(&records).unwrap();
    // Writes a state that this version does not know, as a later version might.
    std::fs::write(&records, text.replace("\"running\"", "\"resting\"")).unwrap();
    std::fs::write(init.home.path().join("units/all.unit"), all).unwrap();
    init.start_again();
    wait_state(&init, "a", "failed");
    assert!(succeed(&init, &["logs", "a"]).contains("here"));
    kill_process(pid, Signal::KILL).unwrap();
    succeed(&init, &["reset-failed", "a"]);
    let printed = succeed(&init, &["status", "-o", "name"]);
    assert!(!printed.lines().any(|line| line == "a"), "{printed}");
}

//! `fleet-init run` as the first process of a container.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::files::{start_of, start_through, succeed, wait_state};
use super::{Init, children};
use crate::daemon::{is_alive, wait_for};

/// What makes a container of it that has nothing but process ids of its own.
const THROUGH: &[&str] = &["unshare", "-fp", "--mount-proc", "--kill-child"];

/// What is run once before the other may start, and then never again by itself.
const ONCE: &str = "\
unit: svc
type: foreground-supervised
provides: svc
depends-ms: setup
exec-start: /bin/sleep 100000
restart: never

unit: setup
type: oneshot
provides: setup
exec-start: /bin/sh -c 'echo set up >> setups'
directory: HOME

unit: other
type: virtual
provides: other
waits-for: svc
";

/// The first process of the container: what unshare is sent it passes on to nobody.
fn first(init: &Init) -> Pid {
    wait_for("it has begun", || children(init.pid()).first().map(|it| it.0))
}

fn end(init: &Init) {
    end_by(init, Signal::TERM);
}

fn end_by(init: &Init, signal: Signal) {
    let first = first(init);
    kill_process(first, signal).unwrap();
    wait_for("its socket is gone", || (!init.socket().exists()).then_some(()));
    wait_for("the namespace is gone", || (!is_alive(first)).then_some(()));
}

#[test]
#[ignore = "needs unshare: run by scripts/test"]
fn it_can_be_the_first_process_of_a_container() {
    let init = Init::start_with(THROUGH, &["--fleet"]);
    init.run("unit.service", "ExecStart=/bin/sleep infinity");
    let (_, status) = init.ask(&["status", "-o", "json"]);
    assert!(status.contains("\"active\": \"active\""), "{status}");
    end(&init);
}

#[test]
#[ignore = "needs unshare: run by scripts/test"]
fn units_of_files_are_told_and_end_in_order_in_a_container() {
    let init = start_through(THROUGH);
    wait_state(&init, "db", "running");
    wait_state(&init, "web", "running");
    wait_state(&init, "bad", "failed");
    // A signal to read the files again reaches the one that runs the units.
    std::fs::write(init.home.path().join("units/init.conf"), "goal: extra\n").unwrap();
    kill_process(first(&init), Signal::HUP).unwrap();
    wait_state(&init, "extra", "running");
    succeed(&init, &["set-target", "web"]);
    wait_state(&init, "web", "running");
    std::fs::remove_file(init.home.path().join("ended")).unwrap();
    end(&init);
    let ended = std::fs::read_to_string(init.home.path().join("ended")).unwrap();
    assert_eq!(ended, "web\ndb\n", "dependents go first");
}

/// Their parents have ended before them, so that nobody but the first process can wait for them.
#[test]
#[ignore = "needs unshare: run by scripts/test"]
fn orphans_in_a_container_do_not_stay_as_zombies() {
    let init = Init::start_with(THROUGH, &["--fleet"]);
    let gate = init.home.path().join("gate");
    let orphan = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let orphans = format!("(setsid sh -c \"{orphan}\" &); ").repeat(3);
    init.run("unit.service", &format!("ExecStart=/bin/sh -c '{orphans}exec sleep infinity'"));
    let first = first(&init);
    // Beside them there is the one that runs the units.
    let alive = |found: &[(Pid, bool)]| found.iter().all(|(_, is_zombie)| !is_zombie);
    wait_for("the orphans are its own", || {
        let found = children(first);
        (found.len() == 4 && alive(&found)).then_some(())
    });
    std::fs::write(gate, "").unwrap();
    wait_for("all orphans are reaped", || (children(first).len() == 1).then_some(()));
    end(&init);
}

#[test]
fn what_units_leave_behind_ends_with_the_init_that_adopts_it() {
    let mut init = Init::start_with(&[], &["--fleet", "--reap"]);
    let told = init.home.path().join("told");
    let script =
        format!("setsid sleep infinity & echo $$! >{}; exec sleep infinity", told.display());
    init.run("unit.service", &format!("KillMode=process\nExecStart=/bin/sh -c '{script}'"));
    let left = wait_for("it tells of another process", || {
        let text = std::fs::read_to_string(&told).ok()?;
        Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
    });
    let group = group_of(left);
    init.signal(Signal::TERM);
    assert!(init.wait().success());
    assert!(!is_alive(left), "the stop of the unit leaves it, and the end does not");
    let base = group.as_deref().and_then(Path::parent);
    assert!(base.is_none_or(|base| !base.exists()), "nor its control group: {group:?}");
}

/// The control group of a unit's process, if units have any here.
fn group_of(process: Pid) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero()));
    let text = text.expect("it runs");
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Beside groups of the first version they are in a directory of their own.
    let mut places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new).into_iter();
    let group = places.find_map(|place| Some(place.join(group)).filter(|found| found.exists()));
    group.filter(|group| group.to_string_lossy().contains("fleet-"))
}

#[test]
#[ignore = "needs unshare: run by scripts/test"]
fn each_signal_that_asks_for_the_end_reaches_the_units_of_a_container() {
    for signal in [Signal::QUIT, Signal::INT] {
        let init = Init::start_with(THROUGH, &["--fleet"]);
        init.run("unit.service", "ExecStart=/bin/sleep infinity");
        end_by(&init, signal);
    }
}

/// What it reads there of its processes would be about others, and it could not be ended.
#[test]
#[ignore = "needs unshare: run by scripts/test"]
fn one_with_the_proc_of_another_namespace_refuses_and_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-fp", "--kill-child", env!("CARGO_BIN_EXE_fleet-init"), "run", "--fleet"]);
    command.arg("--socket").arg(home.path().join("s"));
    command.arg("--state-dir").arg(home.path().join("state"));
    let program = RefCell::new(command.stderr(Stdio::piped()).spawn().unwrap());
    let ended = wait_for("it has ended, or listens", || {
        let ended = program.borrow_mut().try_wait().unwrap().map(Some);
        ended.or_else(|| home.path().join("s").exists().then_some(None))
    });
    // One that listens is to be gone with the test.
    let mut program = program.into_inner();
    program.kill().unwrap();
    let output = program.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{told}");
    assert!(told.contains("mount -t proc proc /proc"), "{told}");
}

#[test]
#[ignore = "needs unshare: run by scripts/test"]
fn a_container_that_was_killed_and_started_again_begins_with_nothing() {
    let mut init = start_of(ONCE, "svc", THROUGH, &[]);
    wait_state(&init, "svc", "running");
    succeed(&init, &["set-target", "other"]);
    wait_state(&init, "other", "running");
    kill_process(first(&init), Signal::KILL).unwrap();
    init.wait();
    init.start_again();
    wait_state(&init, "svc", "running");
    wait_state(&init, "setup", "exited");
    wait_state(&init, "other", "disabled");
    let setups = std::fs::read_to_string(init.home.path().join("setups")).unwrap();
    assert_eq!(setups, "set up\nset up\n", "it is as after a boot");
    end(&init);
}

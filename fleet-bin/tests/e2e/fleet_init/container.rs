//! `fleet-init run` as the first process of a container.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::files::{start_of, start_wrapped, succeed, wait_state};
use super::{Init, children};
use crate::daemon::{is_alive, wait_for};

/// Runs fleet-init as process 1 of a PID namespace.
const WRAPPER: &[&str] = &["unshare", "-fp", "--mount-proc", "--kill-child"];

/// A service that depends on a oneshot unit, and another target.
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

/// Returns process 1 of the container. `unshare` does not forward signals to it.
fn pid1(init: &Init) -> Pid {
    wait_for("the container has started", || children(init.pid()).first().map(|it| it.0))
}

fn end(init: &Init) {
    end_by(init, Signal::TERM);
}

fn end_by(init: &Init, signal: Signal) {
    let pid1 = pid1(init);
    kill_process(pid1, signal).unwrap();
    wait_for("the socket is removed", || (!init.socket().exists()).then_some(()));
    wait_for("process 1 has exited", || (!is_alive(pid1)).then_some(()));
}

#[test]
#[ignore = "needs unshare: run by scripts/test --full"]
fn fleet_init_runs_as_pid1_of_a_container() {
    let init = Init::start_with(WRAPPER, &["--fleet"]);
    init.run("unit.service", "ExecStart=/bin/sleep infinity");
    let (_, status) = init.client(&["status", "-o", "json"]);
    assert!(status.contains("\"active\": \"active\""), "{status}");
    end(&init);
}

#[test]
#[ignore = "needs unshare: run by scripts/test --full"]
fn units_reload_and_stop_in_order_in_a_container() {
    let init = start_wrapped(WRAPPER);
    wait_state(&init, "db", "running");
    wait_state(&init, "web", "running");
    wait_state(&init, "bad", "failed");
    // Process 1 forwards HUP to the supervisor.
    std::fs::write(init.home.path().join("units/init.conf"), "goal: extra\n").unwrap();
    kill_process(pid1(&init), Signal::HUP).unwrap();
    wait_state(&init, "extra", "running");
    succeed(&init, &["set-target", "web"]);
    wait_state(&init, "web", "running");
    std::fs::remove_file(init.home.path().join("ended")).unwrap();
    end(&init);
    let ended = std::fs::read_to_string(init.home.path().join("ended")).unwrap();
    assert_eq!(ended, "web\ndb\n", "dependents must stop first");
}

/// Their parents have exited, so only process 1 can reap them.
#[test]
#[ignore = "needs unshare: run by scripts/test --full"]
fn orphans_in_a_container_are_reaped() {
    let init = Init::start_with(WRAPPER, &["--fleet"]);
    let gate = init.home.path().join("gate");
    let orphan = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let orphans = format!("(setsid sh -c \"{orphan}\" &); ").repeat(3);
    init.run("unit.service", &format!("ExecStart=/bin/sh -c '{orphans}exec sleep infinity'"));
    let pid1 = pid1(&init);
    // The fourth child is the supervisor.
    let alive = |found: &[(Pid, bool)]| found.iter().all(|(_, is_zombie)| !is_zombie);
    wait_for("process 1 adopts the orphans", || {
        let found = children(pid1);
        (found.len() == 4 && alive(&found)).then_some(())
    });
    std::fs::write(gate, "").unwrap();
    wait_for("all orphans are reaped", || (children(pid1).len() == 1).then_some(()));
    end(&init);
}

#[test]
fn leftover_processes_end_with_the_subreaper() {
    let mut init = Init::start_with(&[], &["--fleet", "--reap"]);
    let file = init.home.path().join("pid");
    let script =
        format!("setsid sleep infinity & echo $$! >{}; exec sleep infinity", file.display());
    init.run("unit.service", &format!("KillMode=process\nExecStart=/bin/sh -c '{script}'"));
    let leftover = wait_for("the unit writes the PID of its child", || {
        let text = std::fs::read_to_string(&file).ok()?;
        Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
    });
    let group = group_of(leftover);
    init.signal(Signal::TERM);
    assert!(init.wait().success());
    assert!(!is_alive(leftover), "a process that the unit's stop leaves must end with fleet-init");
    let base = group.as_deref().and_then(Path::parent);
    assert!(base.is_none_or(|base| !base.exists()), "control groups remain: {group:?}");
}

/// Returns the control group of a unit's process, if fleet-init can create any here.
fn group_of(process: Pid) -> Option<PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero()));
    let text = text.expect("the process exists");
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // With cgroup v1, the v2 hierarchy may be mounted in a subdirectory.
    let mut roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new).into_iter();
    let group = roots.find_map(|root| Some(root.join(group)).filter(|found| found.exists()));
    group.filter(|group| group.to_string_lossy().contains("fleet-"))
}

#[test]
#[ignore = "needs unshare: run by scripts/test --full"]
fn each_stop_signal_ends_a_container() {
    for signal in [Signal::QUIT, Signal::INT] {
        let init = Init::start_with(WRAPPER, &["--fleet"]);
        init.run("unit.service", "ExecStart=/bin/sleep infinity");
        end_by(&init, signal);
    }
}

/// Its `/proc` would describe other processes.
#[test]
#[ignore = "needs unshare: run by scripts/test --full"]
fn proc_of_another_namespace_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-fp", "--kill-child", env!("CARGO_BIN_EXE_fleet-init"), "run", "--fleet"]);
    command.arg("--socket").arg(home.path().join("s"));
    command.arg("--state-dir").arg(home.path().join("state"));
    command.arg("--runtime-dir").arg(home.path().join("run"));
    let program = RefCell::new(command.stderr(Stdio::piped()).spawn().unwrap());
    let ended = wait_for("fleet-init has ended or listens", || {
        let ended = program.borrow_mut().try_wait().unwrap().map(Some);
        ended.or_else(|| home.path().join("s").exists().then_some(None))
    });
    // A listening fleet-init must end with the test.
    let mut program = program.into_inner();
    program.kill().unwrap();
    let output = program.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{printed}");
    assert!(printed.contains("mount -t proc proc /proc"), "{printed}");
}

#[test]
#[ignore = "needs unshare: run by scripts/test --full"]
fn killed_container_restarts_from_scratch() {
    let mut init = start_of(ONCE, "svc", WRAPPER, &[]);
    wait_state(&init, "svc", "running");
    succeed(&init, &["set-target", "other"]);
    wait_state(&init, "other", "running");
    kill_process(pid1(&init), Signal::KILL).unwrap();
    init.wait();
    init.start_again();
    wait_state(&init, "svc", "running");
    wait_state(&init, "setup", "exited");
    wait_state(&init, "other", "disabled");
    let setups = std::fs::read_to_string(init.home.path().join("setups")).unwrap();
    assert_eq!(setups, "set up\nset up\n", "setup must run again, as after a boot");
    end(&init);
}

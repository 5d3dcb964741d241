//! fleet-init with units of files, short of memory or open files, and while it shuts down.

use std::process::{Command, Stdio};

use fleet_agent::ServiceManager as _;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

use super::Init;
use super::files::{start, wait_state};
use crate::daemon::{is_alive, wait_for};

// Holds: X-26
#[test]
fn memory_shortage_ends_no_unit() {
    let mut init = start();
    let units = ["db", "web"].map(|name| wait_state(&init, name, "running").unwrap());
    // From now on it can allocate no more memory.
    for kind in [Resource::As, Resource::Data] {
        let none = Rlimit { current: Some(1), maximum: None };
        prlimit(Some(init.pid()), kind, none).unwrap();
    }
    let many = init.home.path().join("units/many.unit");
    let stanza = |number| format!("unit: u{number}\ntype: virtual\nprovides: u{number}\n");
    std::fs::write(&many, (0..20_000).map(stanza).collect::<String>()).unwrap();
    init.signal(Signal::HUP);
    let log = init.home.path().join("log");
    let refuses = || {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("cannot reload the unit files: keeping the previous units")
    };
    wait_for("fleet-init refuses the files or has ended", || {
        (refuses() || !is_alive(init.pid())).then_some(())
    });
    let (status, printed) = init.client(&["status"]);
    assert!(!status.success() || printed.contains("  └─db (depends-on)\trunning"), "{printed}");
    assert!(units.into_iter().all(is_alive), "a unit ended");
    // It may have ended already for lack of memory.
    let _ended = kill_process(init.pid(), Signal::KILL);
    assert!(!init.wait().success());
    std::fs::remove_file(many).unwrap();
    init.start_again();
    let after = ["db", "web"].map(|name| wait_state(&init, name, "running").unwrap());
    assert_eq!(after, units);
}

#[test]
fn endless_input_does_not_block_termination() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
    command.args(["run", "/dev/stdin", "--goal", "all", "--socket"]).arg(home.path().join("s"));
    command.arg("--state-dir").arg(home.path().join("state"));
    command.arg("--runtime-dir").arg(home.path().join("run"));
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let init = command.spawn().unwrap();
    let pid = Pid::from_child(&init);
    wait_for("the TERM handler is installed", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", init.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        (caught & (1 << (Signal::TERM.as_raw() - 1)) != 0).then_some(())
    });
    kill_process(pid, Signal::TERM).unwrap();
    wait_for("fleet-init ends", || (!is_alive(pid)).then_some(()));
    let output = init.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by a signal"), "{output:?}");
}

// Holds: X-28
#[test]
fn reload_during_shutdown_starts_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (file, begun) = (path("all.unit"), path("begun"));
    let text = format!(
        "unit: all\ntype: virtual\nprovides: all\nwaits-for: quick, slow\n\
         unit: quick\ntype: foreground-supervised\nprovides: quick\n\
         exec-start: /bin/sh -c 'echo quick >>{begun}; exec sleep 100000'\n\
         unit: slow\ntype: foreground-supervised\nprovides: slow\nstop-timeout: none\n\
         exec-start: /bin/sh -c 'trap \"\" TERM; while :; do sleep 1000; done'\n"
    );
    std::fs::write(&file, &text).unwrap();
    let mut init = Init::start_in(home, &[], &[&file, "--goal", "all"]);
    let [quick, slow] = ["quick", "slow"].map(|name| wait_state(&init, name, "running").unwrap());
    wait_for("the unit has started", || {
        std::fs::metadata(&begun).is_ok_and(|it| it.len() > 0).then_some(())
    });
    init.signal(Signal::TERM);
    wait_for("the quick unit stops", || (!is_alive(quick)).then_some(()));
    std::fs::write(&file, text.replace("quick >>", "new >>")).unwrap();
    init.signal(Signal::HUP);
    assert_eq!(
        init.client(&["reload"]).0.code(),
        Some(1),
        "the socket accepts requests during shutdown"
    );
    assert!(is_alive(slow), "the slow unit was killed before the second TERM");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "quick\n");
}

/// Number of units, which is more than the limit of open files in these tests.
const MANY: usize = 100;

/// Starts a fleet-init with [`MANY`] units that write down their soft limit of open files.
fn start_many(wrapper: &'static [&'static str]) -> Init {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (file, limits) = (path("all.unit"), path("limits"));
    let names: Vec<String> = (0..MANY).map(|number| format!("u{number}")).collect();
    let stanza = |name: &String| {
        format!(
            "unit: {name}\ntype: foreground-supervised\nprovides: {name}\n\
             exec-start: /bin/sh -c 'ulimit -Sn >>{limits}; exec sleep 100000'\n"
        )
    };
    let all = format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {}\n", names.join(", "));
    std::fs::write(&file, all + &names.iter().map(stanza).collect::<String>()).unwrap();
    Init::start_in(home, wrapper, &[&file, "--goal", "all"])
}

/// Returns the state and main process of each of the [`MANY`] units.
fn states(init: &Init) -> Vec<(Value, Option<Pid>)> {
    let output = init.output(&["status", "-o", "json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let pid = |unit: &Value| Pid::from_raw(unit["mainPID"].as_i64()?.try_into().ok()?);
    let units = all.into_iter().filter(|unit| unit["unit"] != "all");
    units.map(|unit| (unit["state"].clone(), pid(&unit))).collect()
}

#[test]
fn hard_file_limit_is_used_and_soft_limit_is_passed_on() {
    let wrapper = &["sh", "-c", "ulimit -Hn 4096; ulimit -Sn 64; exec \"$@\"", "sh"];
    let mut init = start_many(wrapper);
    let limits = init.home.path().join("limits");
    wait_for("all units have written their limit", || {
        let written = std::fs::read_to_string(&limits).unwrap_or_default();
        (written.lines().count() == MANY).then_some(())
    });
    let written = std::fs::read_to_string(limits).unwrap();
    assert!(written.lines().all(|it| it == "64"), "{written}");
    let units = states(&init);
    assert!(units.iter().all(|(state, pid)| state == "running" && pid.is_some()), "{units:?}");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
    assert!(
        !units.into_iter().any(|(_, pid)| pid.is_some_and(is_alive)),
        "a unit is still running"
    );
}

#[test]
fn few_files_limit_the_units_but_not_status_and_stop() {
    let wrapper = &["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let mut init = start_many(wrapper);
    let of = |units: &[(Value, Option<Pid>)], state: &str| {
        units.iter().filter(|(it, _)| it == state).count()
    };
    let units = wait_for("each unit runs or has failed", || {
        let units = states(&init);
        (of(&units, "running") + of(&units, "failed") == MANY).then_some(units)
    });
    let (running, failed) = (of(&units, "running"), of(&units, "failed"));
    assert!(running > 0 && failed > 0, "{running} running, {failed} failed");
    let (status, printed) = init.client(&["status"]);
    assert!(status.success() && printed.contains("retry in"), "{printed}");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
    assert!(
        !units.into_iter().any(|(_, pid)| pid.is_some_and(is_alive)),
        "a unit is still running"
    );
    let log = std::fs::read_to_string(init.home.path().join("log")).unwrap();
    assert!(!log.contains("cannot accept a connection"), "{log}");
    assert!(log.matches("cannot stop a process").count() <= 1, "{log}");
}

// Holds: R-14
#[test]
fn low_file_limit_refuses_to_adopt_units() {
    let mut init = start_many(&[]);
    let all_run = |units: &[(Value, Option<Pid>)]| {
        units.iter().all(|(state, pid)| state == "running" && pid.is_some())
    };
    let wait_all = |init: &Init| {
        wait_for("all units run", || {
            let units = states(init);
            all_run(&units).then_some(units)
        })
    };
    let before = wait_all(&init);
    init.signal(Signal::KILL);
    init.wait();
    let path = |name: &str| init.home.path().join(name);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_fleet-init")]);
    command.arg("run").arg(path("all.unit")).args(["--goal", "all", "--socket"]).arg(path("s"));
    command.arg("--state-dir").arg(path("state")).arg("--runtime-dir").arg(path("run"));
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("the limit of 64 open files is nearly reached"), "{printed}");
    init.start_again();
    assert_eq!(wait_all(&init), before, "units were disturbed");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
}

/// For example, a fleet-init started from a login that is itself a unit.
#[test]
fn fleet_init_survives_the_unit_that_started_it() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (file, script, gate, begun) = (path("all.unit"), path("login"), path("gate"), path("pid"));
    let (program, socket, state) = (env!("CARGO_BIN_EXE_fleet-init"), path("s"), path("state"));
    let run = path("run");
    let login_script = format!(
        "until test -e {gate}; do sleep 0.01; done\n\
         {program} run {file} --goal all --socket {socket} --state-dir {state} \
         --runtime-dir {run} &\n\
         echo $! >{begun}.new; mv {begun}.new {begun}; wait\n"
    );
    std::fs::write(&script, login_script).unwrap();
    let stanza = |name: &str, command: &str| {
        format!(
            "unit: {name}\ntype: foreground-supervised\nprovides: {name}\nexec-start: {command}\n"
        )
    };
    let other = stanza("other", "/bin/sleep 100000");
    let all =
        |names: &str| format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {names}\n");
    let login = stanza("login", &format!("/bin/sh {script}"));
    std::fs::write(&file, all("login, other") + &other + &login).unwrap();
    let mut init = Init::start_in(home, &[], &[&file, "--goal", "all"]);
    let [login, before] = ["login", "other"].map(|it| wait_state(&init, it, "running").unwrap());
    init.signal(Signal::KILL);
    init.wait();
    std::fs::write(gate, "").unwrap();
    wait_for("the next fleet-init responds", || init.client(&["status"]).0.success().then_some(()));
    let next = std::fs::read_to_string(begun).unwrap().trim().parse().ok();
    let next = next.and_then(Pid::from_raw).unwrap();
    assert_eq!(wait_state(&init, "login", "running"), Some(login));
    std::fs::write(&file, all("other") + &other).unwrap();
    assert!(init.client(&["reload"]).0.success());
    wait_for("the unit that started it stops", || (!is_alive(login)).then_some(()));
    wait_for("the removed unit is forgotten", || {
        let (status, printed) = init.client(&["status"]);
        (status.success() && !printed.contains("login")).then_some(())
    });
    assert_eq!(wait_state(&init, "other", "running"), Some(before), "the other unit was disturbed");
    kill_process(next, Signal::TERM).unwrap();
    wait_for("fleet-init and its unit have ended", || {
        (!is_alive(next) && !is_alive(before)).then_some(())
    });
}

/// The triggered unit has no run while files are exhausted, so no end of a run is missed.
#[test]
fn calendar_timer_recovers_from_file_exhaustion() {
    let init = Init::start();
    let path = |name: &str| init.home.path().join(name);
    let (gate, ran, log) = (path("gate"), path("ran"), path("log"));
    let service = format!(
        "[Unit]\nStartLimitIntervalSec=0\nConditionPathExists={}\n\
         [Service]\nType=oneshot\nExecStart=/bin/touch {}\n",
        gate.display(),
        ran.display()
    );
    let timer = "[Timer]\nOnCalendar=*:*:* UTC\n".to_owned();
    init.with_manager(async |manager| {
        for (name, text) in [("a.service", service), ("a.timer", timer)] {
            let (name, file) = (UnitName::parse(name).unwrap(), UnitFile::parse(text).unwrap());
            manager.load(&name, &file, Epoch(1)).await.unwrap();
        }
        manager.start(&UnitName::parse("a.timer").unwrap(), Generation(1)).await.unwrap();
    });
    let none = Rlimit { current: Some(0), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(init.pid()), Resource::Nofile, none).unwrap();
    wait_for("the timer cannot be armed", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains("cannot set an alarm").then_some(())
    });
    std::fs::write(gate, "").unwrap();
    prlimit(Some(init.pid()), Resource::Nofile, before).unwrap();
    wait_for("the timer elapses", || ran.exists().then_some(()));
}

//! A fleet-init that runs units of files, in straits: without memory or files, and at its end.

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
fn one_without_memory_refuses_or_ends_and_no_unit_ends_with_it() {
    let mut init = start();
    let units = ["db", "web"].map(|name| wait_state(&init, name, "running").unwrap());
    // From now on it gets no more than it has.
    for kind in [Resource::As, Resource::Data] {
        let none = Rlimit { current: Some(1), maximum: None };
        prlimit(Some(init.pid()), kind, none).unwrap();
    }
    let many = init.home.path().join("units/many.unit");
    let one = |number| format!("unit: u{number}\ntype: virtual\nprovides: u{number}\n");
    std::fs::write(&many, (0..20_000).map(one).collect::<String>()).unwrap();
    init.signal(Signal::HUP);
    let log = init.home.path().join("log");
    let refuses = || std::fs::read_to_string(&log).unwrap().contains("runs on with the units");
    wait_for("it refuses or has ended", || (refuses() || !is_alive(init.pid())).then_some(()));
    let (answers, told) = init.ask(&["status"]);
    assert!(!answers.success() || told.contains("  └─db (depends-on)\trunning"), "{told}");
    assert!(units.into_iter().all(is_alive), "a unit ended");
    // Without memory it may have ended by now.
    let _ended = kill_process(init.pid(), Signal::KILL);
    assert!(!init.wait().success());
    std::fs::remove_file(many).unwrap();
    init.start_again();
    let after = ["db", "web"].map(|name| wait_state(&init, name, "running").unwrap());
    assert_eq!(after, units);
}

#[test]
fn files_that_never_come_keep_nobody_from_the_end() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
    command.args(["run", "/dev/stdin", "--goal", "all", "--socket"]).arg(home.path().join("s"));
    command.arg("--state-dir").arg(home.path().join("state"));
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let init = command.spawn().unwrap();
    let pid = Pid::from_child(&init);
    wait_for("it hears signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", init.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        (caught & (1 << (Signal::TERM.as_raw() - 1)) != 0).then_some(())
    });
    kill_process(pid, Signal::TERM).unwrap();
    wait_for("it ends", || (!is_alive(pid)).then_some(()));
    let output = init.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("told to end"), "{output:?}");
}

// Holds: X-28
#[test]
fn files_that_are_read_again_at_its_end_start_nothing() {
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
    wait_for("it has begun", || {
        std::fs::metadata(&begun).is_ok_and(|it| it.len() > 0).then_some(())
    });
    init.signal(Signal::TERM);
    wait_for("one ends at once", || (!is_alive(quick)).then_some(()));
    std::fs::write(&file, text.replace("quick >>", "new >>")).unwrap();
    init.signal(Signal::HUP);
    assert_eq!(init.ask(&["reload"]).0.code(), Some(1), "nobody can ask it any more");
    assert!(is_alive(slow), "it takes its time");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert_eq!(std::fs::read_to_string(begun).unwrap(), "quick\n");
}

/// More units than a process may have files open that was started with so few.
const MANY: usize = 100;

/// A fleet-init of so many units, each of which writes down its soft limit of open files.
fn start_many(through: &'static [&'static str]) -> Init {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (file, limits) = (path("all.unit"), path("limits"));
    let names: Vec<String> = (0..MANY).map(|number| format!("u{number}")).collect();
    let one = |name: &String| {
        format!(
            "unit: {name}\ntype: foreground-supervised\nprovides: {name}\n\
             exec-start: /bin/sh -c 'ulimit -Sn >>{limits}; exec sleep 100000'\n"
        )
    };
    let all = format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {}\n", names.join(", "));
    std::fs::write(&file, all + &names.iter().map(one).collect::<String>()).unwrap();
    Init::start_in(home, through, &[&file, "--goal", "all"])
}

/// The states of all of these units, with the processes of those that have one.
fn states(init: &Init) -> Vec<(Value, Option<Pid>)> {
    let output = init.output(&["status", "-o", "json"]);
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let pid = |unit: &Value| Pid::from_raw(unit["mainPID"].as_i64()?.try_into().ok()?);
    let units = all.into_iter().filter(|unit| unit["unit"] != "all");
    units.map(|unit| (unit["state"].clone(), pid(&unit))).collect()
}

#[test]
fn as_many_units_run_as_the_hard_limit_of_files_allows_and_have_the_soft_one() {
    let through = &["sh", "-c", "ulimit -Hn 4096; ulimit -Sn 64; exec \"$@\"", "sh"];
    let mut init = start_many(through);
    let limits = init.home.path().join("limits");
    wait_for("all have said their limit", || {
        let said = std::fs::read_to_string(&limits).unwrap_or_default();
        (said.lines().count() == MANY).then_some(())
    });
    let said = std::fs::read_to_string(limits).unwrap();
    assert!(said.lines().all(|it| it == "64"), "{said}");
    let units = states(&init);
    assert!(units.iter().all(|(state, pid)| state == "running" && pid.is_some()), "{units:?}");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert!(!units.into_iter().any(|(_, pid)| pid.is_some_and(is_alive)), "a unit is left");
}

#[test]
fn one_with_few_files_runs_what_it_can_answers_and_ends_that() {
    let through = &["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
    let mut init = start_many(through);
    let of = |units: &[(Value, Option<Pid>)], state: &str| {
        units.iter().filter(|(it, _)| it == state).count()
    };
    let units = wait_for("each runs or has failed", || {
        let units = states(&init);
        (of(&units, "running") + of(&units, "failed") == MANY).then_some(units)
    });
    let (runs, failed) = (of(&units, "running"), of(&units, "failed"));
    assert!(runs > 0 && failed > 0, "{runs} run, {failed} have failed");
    let (status, told) = init.ask(&["status"]);
    assert!(status.success() && told.contains("retry in"), "{told}");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert!(!units.into_iter().any(|(_, pid)| pid.is_some_and(is_alive)), "a unit is left");
    let log = std::fs::read_to_string(init.home.path().join("log")).unwrap();
    assert!(!log.contains("cannot accept a connection"), "{log}");
    assert!(log.matches("cannot stop a process").count() <= 1, "{log}");
}

// Holds: R-14
#[test]
fn one_that_may_open_too_few_files_for_what_runs_refuses_to_begin_and_loses_nothing() {
    let mut init = start_many(&[]);
    let all_run = |units: &[(Value, Option<Pid>)]| {
        units.iter().all(|(state, pid)| state == "running" && pid.is_some())
    };
    let all_up = |init: &Init| {
        wait_for("all run", || {
            let units = states(init);
            all_run(&units).then_some(units)
        })
    };
    let before = all_up(&init);
    init.signal(Signal::KILL);
    init.wait();
    let path = |name: &str| init.home.path().join(name);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_fleet-init")]);
    command.arg("run").arg(path("all.unit")).args(["--goal", "all", "--socket"]).arg(path("s"));
    let output = command.arg("--state-dir").arg(path("state")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("too few are left of the 64 files"), "{told}");
    init.start_again();
    assert_eq!(all_up(&init), before, "what ran runs on");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
}

/// As over a login, where that is a unit.
#[test]
fn one_that_was_begun_by_a_unit_of_its_own_does_not_end_with_it() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (file, script, gate, begun) = (path("all.unit"), path("login"), path("gate"), path("pid"));
    let (program, socket, state) = (env!("CARGO_BIN_EXE_fleet-init"), path("s"), path("state"));
    let again = format!(
        "until test -e {gate}; do sleep 0.01; done\n\
         {program} run {file} --goal all --socket {socket} --state-dir {state} &\n\
         echo $! >{begun}.new; mv {begun}.new {begun}; wait\n"
    );
    std::fs::write(&script, again).unwrap();
    let one = |name: &str, command: &str| {
        format!(
            "unit: {name}\ntype: foreground-supervised\nprovides: {name}\nexec-start: {command}\n"
        )
    };
    let other = one("other", "/bin/sleep 100000");
    let all =
        |names: &str| format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {names}\n");
    let login = one("login", &format!("/bin/sh {script}"));
    std::fs::write(&file, all("login, other") + &other + &login).unwrap();
    let mut init = Init::start_in(home, &[], &[&file, "--goal", "all"]);
    let [login, before] = ["login", "other"].map(|it| wait_state(&init, it, "running").unwrap());
    init.signal(Signal::KILL);
    init.wait();
    std::fs::write(gate, "").unwrap();
    wait_for("the next one answers", || init.ask(&["status"]).0.success().then_some(()));
    let next = std::fs::read_to_string(begun).unwrap().trim().parse().ok();
    let next = next.and_then(Pid::from_raw).unwrap();
    assert_eq!(wait_state(&init, "login", "running"), Some(login));
    std::fs::write(&file, all("other") + &other).unwrap();
    assert!(init.ask(&["reload"]).0.success());
    wait_for("the unit that has begun it ends", || (!is_alive(login)).then_some(()));
    wait_for("nothing is left of it", || {
        let (status, told) = init.ask(&["status"]);
        (status.success() && !told.contains("login")).then_some(())
    });
    assert_eq!(wait_state(&init, "other", "running"), Some(before), "it runs on");
    kill_process(next, Signal::TERM).unwrap();
    wait_for("all is ended", || (!is_alive(next) && !is_alive(before)).then_some(()));
}

/// While it has none, no run of its unit is under way, whose end could not be seen to.
#[test]
fn a_timer_of_the_calendar_that_could_open_no_file_goes_on_when_it_can() {
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
    init.order(async |manager| {
        for (name, text) in [("a.service", service), ("a.timer", timer)] {
            let (name, file) = (UnitName::parse(name).unwrap(), UnitFile::parse(text).unwrap());
            manager.load(&name, &file, Epoch(1)).await.unwrap();
        }
        manager.start(&UnitName::parse("a.timer").unwrap(), Generation(1)).await.unwrap();
    });
    let none = Rlimit { current: Some(0), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(init.pid()), Resource::Nofile, none).unwrap();
    wait_for("it cannot wait for its next moment", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains("cannot set an alarm").then_some(())
    });
    std::fs::write(gate, "").unwrap();
    prlimit(Some(init.pid()), Resource::Nofile, before).unwrap();
    wait_for("it elapses", || ran.exists().then_some(()));
}

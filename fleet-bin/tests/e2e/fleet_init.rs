//! `fleet-init run --fleet`: what it runs outlives the daemon that asks for it, and itself.

mod container;
mod files;
mod formats;
mod home;
mod plans;
mod straits;
mod taken_up;
mod verbs;

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;

use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{ServiceManager as _, SystemClock};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::daemon::{is_alive, main_pid, told, wait_for};
use crate::run::Machine;

/// What does not mind being told to end, and may take its time.
const STUBBORN: &str = "TimeoutStopSec=infinity\n\
    ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 100; done'";

/// A fleet-init in a directory of its own. Its end ends its units.
struct Init {
    home: TempDir,
    program: Option<Child>,
    /// What runs it, and its arguments beside the usual.
    through: &'static [&'static str],
    more: Vec<String>,
}

impl Init {
    fn start() -> Self {
        Self::start_with(&[], &["--fleet"])
    }

    fn start_with(through: &'static [&'static str], more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), through, more)
    }

    fn start_in(home: TempDir, through: &'static [&'static str], more: &[&str]) -> Self {
        let more = more.iter().map(ToString::to_string).collect();
        let mut init = Self { home, program: None, through, more };
        init.start_again();
        init
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("s")
    }

    fn start_again(&mut self) {
        let init = env!("CARGO_BIN_EXE_fleet-init");
        let words = self.through.iter().chain([&init]).collect::<Vec<_>>();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("run").args(&self.more);
        command.arg("--socket").arg(self.socket());
        command.arg("--state-dir").arg(self.home.path().join("state"));
        let log = std::fs::File::create(self.home.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.program = Some(command.spawn().unwrap());
        wait_for("it listens", || self.ask(&["status"]).0.success().then_some(()));
    }

    /// What another fleet-init says of this one.
    fn ask(&self, args: &[&str]) -> (ExitStatus, String) {
        let output = self.output(args);
        (output.status, told(&output))
    }

    fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        command.args(args).env("FLEET_INIT_SOCKET", self.socket()).output().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.program.as_ref().expect("it runs"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        self.program.take().expect("it runs").wait().unwrap()
    }

    /// Has it run a unit, and returns the process that is the unit.
    fn run(&self, unit: &str, service: &str) -> Pid {
        let name = UnitName::parse(unit).unwrap();
        let file = UnitFile::parse(format!("[Service]\n{service}\n")).unwrap();
        self.order(async |manager| {
            manager.load(&name, &file, Epoch(1)).await.unwrap();
            manager.start(&name, Generation(1)).await.unwrap();
            let state = manager.get(&name).await.unwrap().expect("it is known").state;
            let pid = state.main_pid.expect("it has a process");
            Pid::from_raw(pid.try_into().unwrap()).unwrap()
        })
    }

    fn order<T>(&self, what: impl AsyncFnOnce(Arc<RemoteManager>) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = RemoteConfig {
                socket: self.socket(),
                directory: None,
                program: "test".to_owned(),
                clock: Arc::new(SystemClock::start()),
            };
            what(RemoteManager::open(config).await.unwrap()).await
        })
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if self.program.is_some() {
            self.signal(Signal::TERM);
            self.wait();
        }
    }
}

/// Whether a signal does nothing to a process.
fn ignores(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits & (1 << (signal.as_raw() - 1)) != 0)
}

/// A machine whose units are run by a fleet-init.
fn machine_of(init: &Init) -> Machine {
    let machine = Machine::new();
    let path = machine.path("fleet.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    let socket = init.socket();
    std::fs::write(path, format!("native_socket = {socket:?}\n{text}")).unwrap();
    machine
}

// Holds: I-9
#[test]
fn units_run_on_while_fleetd_is_killed_ended_and_replaced() {
    let init = Init::start();
    let mut machine = machine_of(&init);
    let before = machine.start_with_unit();
    let parent = std::fs::read_to_string(format!("/proc/{}/stat", before["mainPID"])).unwrap();
    let parent = parent.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).unwrap();
    assert_eq!(parent, init.pid().as_raw_nonzero().to_string(), "fleet-init is its parent");
    for end in [Machine::kill, Machine::end] {
        end(&mut machine);
        assert!(is_alive(main_pid(&before)), "a unit ended with its daemon");
        machine.start();
        let after = wait_for("the unit is shown again", || machine.row());
        assert_eq!(after["mainPID"], before["mainPID"], "the unit was disturbed");
        assert_eq!(after["restarts"], 0);
    }
}

// Holds: I-9
#[test]
fn a_killed_fleet_init_takes_its_units_back_for_the_daemon_that_waits() {
    let mut init = Init::start();
    let mut machine = machine_of(&init);
    let before = machine.start_with_unit();
    init.signal(Signal::KILL);
    init.wait();
    assert!(is_alive(main_pid(&before)), "a unit ended with its fleet-init");
    init.start_again();
    let (_, told) = init.ask(&["status"]);
    assert!(told.contains(&before["mainPID"].to_string()), "{told}");
    wait_for("the daemon orders it about again", || {
        machine.fleetctl(&["stop", crate::run::UNIT]);
        (!is_alive(main_pid(&before))).then_some(())
    });
}

#[test]
fn where_no_fleet_init_listens_the_daemon_says_how_to_start_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    let output = Command::new(env!("CARGO_BIN_EXE_fleetd"))
        .args(["--store", "memory", "--listen", &format!("unix://{path}/fleet.sock")])
        .args(["--data-dir", &format!("{path}/data"), "--native-socket", &format!("{path}/s")])
        .output()
        .unwrap();
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("fleet-init run --fleet --socket {path}/s")), "{told}");
}

#[test]
fn it_ends_its_units_and_kills_who_does_not_mind_when_it_is_told_again() {
    let mut init = Init::start();
    let quick = init.run("quick.service", "ExecStart=/bin/sleep infinity");
    let stubborn = init.run("stubborn.service", STUBBORN);
    wait_for("it minds no TERM", || ignores(stubborn, Signal::TERM).then_some(()));
    init.signal(Signal::TERM);
    wait_for("one ends by itself", || (!is_alive(quick)).then_some(()));
    assert!(is_alive(stubborn), "it may take its time");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert!(!is_alive(stubborn), "it is killed");
    assert!(!init.socket().exists(), "it listens no more");
}

#[test]
fn units_have_nothing_of_what_their_parent_was_started_with() {
    let through = &["sh", "-c", "exec 9</etc/passwd; exec \"$@\"", "sh"];
    let mut init = Init::start_with(through, &["--fleet"]);
    let open = |process: Pid| {
        let path = format!("/proc/{}/fd/9", process.as_raw_nonzero());
        std::fs::read_link(path).is_ok()
    };
    assert!(open(init.pid()), "it was started with it");
    for more in ["", "\nUser=nobody"] {
        if more.is_empty() || rustix::process::geteuid().is_root() {
            let unit = init.run(
                &format!("u{}.service", more.len()),
                &format!("ExecStart=/bin/sleep infinity{more}"),
            );
            assert!(!open(unit), "it was handed down: {more}");
        }
    }
    init.signal(Signal::TERM);
    init.wait();
}

#[test]
fn units_ignore_no_signal_that_whoever_started_their_parent_ignores() {
    let through = &["sh", "-c", "trap '' HUP QUIT USR1; exec \"$@\"", "sh"];
    let mut init = Init::start_with(through, &["--fleet"]);
    let ignored = |process: Pid| {
        let path = format!("/proc/{}/status", process.as_raw_nonzero());
        let status = std::fs::read_to_string(path).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap()
    };
    // As under systemd, a service that writes to where nobody reads is told so, and not ended.
    let pipe = 1 << (Signal::PIPE.as_raw() - 1);
    assert_ne!(ignored(init.pid()) & !pipe, 0, "it was started so");
    for more in ["", "\nUser=nobody"] {
        if more.is_empty() || rustix::process::geteuid().is_root() {
            let unit = init.run(
                &format!("u{}.service", more.len()),
                &format!("ExecStart=/bin/sleep infinity{more}"),
            );
            assert_eq!(ignored(unit), pipe, "what was ignored is handed down: {more}");
        }
    }
    init.signal(Signal::TERM);
    init.wait();
}

#[test]
fn a_time_for_the_end_is_kept() {
    let mut init = Init::start_with(&[], &["--fleet", "--stop-limit", "100ms"]);
    let stubborn = init.run("stubborn.service", STUBBORN);
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert!(!is_alive(stubborn), "it is killed");
}

// Holds: X-16
#[test]
fn who_has_left_its_group_and_a_stop_that_hangs_are_killed_at_the_end_too() {
    let mut init = Init::start_with(&[], &["--fleet", "--stop-limit", "100ms"]);
    let (file, hangs) = (init.home.path().join("escaped"), init.home.path().join("hangs"));
    let for_ever = "while :; do sleep 1000; done";
    let script = format!(
        "trap \"\" TERM; setsid sh -c \"echo \\$\\$ >{}; {for_ever}\" & {for_ever}",
        file.display()
    );
    init.run("unit.service", &format!("ExecStart=/bin/sh -c '{script}'"));
    let stop = format!("trap \"\" TERM; echo $$$$ >{}; {for_ever}", hangs.display());
    let service = format!(
        "TimeoutStopSec=infinity\nExecStart=/bin/sleep infinity\nExecStop=/bin/sh -c '{stop}'"
    );
    init.run("stops.service", &service);
    let written =
        |file: &PathBuf| Pid::from_raw(std::fs::read_to_string(file).ok()?.trim().parse().ok()?);
    let escaped = wait_for("it has left the group of its parent", || written(&file));
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "all is ended");
    assert!(!is_alive(escaped), "it is killed");
    assert!(!is_alive(written(&hangs).expect("it was begun")), "so is the command");
}

/// The children of a process, and whether each is a zombie.
fn children(parent: Pid) -> Vec<(Pid, bool)> {
    let of = |path: PathBuf| {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let (pid, rest) = (stat.split(' ').next()?, stat.rsplit(") ").next()?);
        let mut fields = rest.split(' ');
        let (state, above) = (fields.next()?, fields.next()?);
        let is_child = above == parent.as_raw_nonzero().to_string();
        is_child.then_some((Pid::from_raw(pid.parse().ok()?)?, state == "Z"))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter_map(of).collect()
}

#[test]
fn the_first_process_reaps_orphans_and_starts_again_what_breaks_off() {
    let init = Init::start_with(&[], &["--fleet", "--reap"]);
    // A child whose parent has ended by the time that it ends.
    let gate = init.home.path().join("gate");
    let orphan = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let script = format!("(setsid sh -c \"{orphan}\" &); exec sleep infinity");
    let unit = init.run("unit.service", &format!("ExecStart=/bin/sh -c '{script}'"));
    let watched = wait_for("there are both", || match children(init.pid()).as_slice() {
        [(one, false), (_, false)] => Some(*one),
        _ => None,
    });
    std::fs::write(gate, "").unwrap();
    wait_for("the orphan is reaped", || (children(init.pid()).len() == 1).then_some(()));

    kill_process(watched, Signal::KILL).unwrap();
    wait_for("it listens again", || {
        let (_, told) = init.ask(&["status"]);
        told.contains(&unit.as_raw_nonzero().to_string()).then_some(())
    });
    assert!(is_alive(unit), "the unit was disturbed");
}

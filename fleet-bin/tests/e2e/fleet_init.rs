//! `fleet-init run --fleet`: its units outlive fleetd and a crash of fleet-init.

mod adoption;
mod container;
mod files;
mod formats;
mod home;
mod plans;
mod relations;
mod resource_limits;
mod verbs;

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;

use fleet_agent::ServiceManager as _;
use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::daemon::{is_alive, main_pid, output_text, wait_for};
use crate::run::Machine;

/// A service that ignores TERM and has no stop timeout.
const STUBBORN: &str = "TimeoutStopSec=infinity\n\
    ExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 100; done'";

/// A fleet-init with its own directory. Dropping it stops its units.
struct Init {
    home: TempDir,
    program: Option<Child>,
    /// Command that runs it, with its first arguments.
    wrapper: &'static [&'static str],
    /// Additional arguments.
    more: Vec<String>,
}

impl Init {
    fn start() -> Self {
        Self::start_with(&[], &["--fleet"])
    }

    fn start_with(wrapper: &'static [&'static str], more: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), wrapper, more)
    }

    fn start_in(home: TempDir, wrapper: &'static [&'static str], more: &[&str]) -> Self {
        let more = more.iter().map(ToString::to_string).collect();
        let mut init = Self { home, program: None, wrapper, more };
        init.start_again();
        init
    }

    fn socket(&self) -> PathBuf {
        self.home.path().join("s")
    }

    fn start_again(&mut self) {
        let init = env!("CARGO_BIN_EXE_fleet-init");
        let command_line = self.wrapper.iter().chain([&init]).collect::<Vec<_>>();
        let mut command = Command::new(command_line[0]);
        command.args(&command_line[1..]).arg("run").args(&self.more);
        command.arg("--socket").arg(self.socket());
        command.arg("--state-dir").arg(self.home.path().join("state"));
        command.arg("--runtime-dir").arg(self.home.path().join("run"));
        let log = std::fs::File::create(self.home.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.program = Some(command.spawn().unwrap());
        wait_for("fleet-init responds", || self.client(&["status"]).0.success().then_some(()));
    }

    /// Runs a client command. Returns its status and all output.
    fn client(&self, args: &[&str]) -> (ExitStatus, String) {
        let output = self.output(args);
        (output.status, output_text(&output))
    }

    /// Runs a client command. Returns its output.
    fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        command.args(args).env("FLEET_INIT_SOCKET", self.socket()).output().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.program.as_ref().expect("fleet-init is running"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        self.program.take().expect("fleet-init is running").wait().unwrap()
    }

    /// Loads and starts a unit. Returns its main process.
    fn run(&self, unit: &str, service: &str) -> Pid {
        let name = UnitName::parse(unit).unwrap();
        let file = UnitFile::parse(format!("[Service]\n{service}\n")).unwrap();
        self.with_manager(async |manager| {
            manager.load(&name, &file, Epoch(1)).await.unwrap();
            manager.start(&name, Generation(1)).await.unwrap();
            let state = manager.get(&name).await.unwrap().expect("the unit is loaded").state;
            let pid = state.main_pid.expect("the unit has a main process");
            Pid::from_raw(pid.try_into().unwrap()).unwrap()
        })
    }

    /// Runs `request` with a connection to this fleet-init.
    fn with_manager<T>(&self, request: impl AsyncFnOnce(Arc<RemoteManager>) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = RemoteConfig::new(self.socket(), "test");
            request(RemoteManager::open(config).await.unwrap()).await
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

/// Whether a process ignores a signal.
fn ignores(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits & (1 << (signal.as_raw() - 1)) != 0)
}

/// Creates a machine whose fleetd uses this fleet-init.
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
fn units_keep_running_across_fleetd_restarts() {
    let init = Init::start();
    let mut machine = machine_of(&init);
    let before = machine.start_with_unit();
    let parent = std::fs::read_to_string(format!("/proc/{}/stat", before["mainPID"])).unwrap();
    let parent = parent.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).unwrap();
    assert_eq!(
        parent,
        init.pid().as_raw_nonzero().to_string(),
        "fleet-init is not the unit's parent"
    );
    for end in [Machine::kill, Machine::end] {
        end(&mut machine);
        assert!(is_alive(main_pid(&before)), "the unit ended with its daemon");
        machine.start();
        let after = wait_for("the unit is listed again", || machine.row());
        assert_eq!(after["mainPID"], before["mainPID"], "the unit was disturbed");
        assert_eq!(after["restarts"], 0);
    }
}

// Holds: I-9
#[test]
fn restarted_fleet_init_adopts_units_for_fleetd() {
    let mut init = Init::start();
    let mut machine = machine_of(&init);
    let before = machine.start_with_unit();
    init.signal(Signal::KILL);
    init.wait();
    assert!(is_alive(main_pid(&before)), "the unit ended with its fleet-init");
    init.start_again();
    let (_, printed) = init.client(&["status"]);
    assert!(printed.contains(&before["mainPID"].to_string()), "{printed}");
    wait_for("fleetd can stop the adopted unit", || {
        machine.fleetctl(&["stop", crate::run::UNIT]);
        (!is_alive(main_pid(&before))).then_some(())
    });
}

#[test]
fn fleetd_without_fleet_init_names_the_command() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().display();
    let output = Command::new(env!("CARGO_BIN_EXE_fleetd"))
        .args(["--store", "memory", "--listen", &format!("unix://{path}/fleet.sock")])
        .args(["--data-dir", &format!("{path}/data"), "--native-socket", &format!("{path}/s")])
        .output()
        .unwrap();
    let printed = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains(&format!("fleet-init run --fleet --socket {path}/s")), "{printed}");
}

#[test]
fn invalid_unit_name_of_logs_is_a_usage_error() {
    let init = Init::start();
    let (status, printed) = init.client(&["logs", "BAD!NAME"]);
    assert_eq!(status.code(), Some(2), "{printed}");
    assert!(printed.contains("invalid unit \"BAD!NAME\""), "{printed}");
}

#[test]
fn second_term_kills_units_that_ignore_the_first() {
    let mut init = Init::start();
    let quick = init.run("quick.service", "ExecStart=/bin/sleep infinity");
    let stubborn = init.run("stubborn.service", STUBBORN);
    wait_for("the unit ignores TERM", || ignores(stubborn, Signal::TERM).then_some(()));
    init.signal(Signal::TERM);
    wait_for("the other unit stops", || (!is_alive(quick)).then_some(()));
    assert!(is_alive(stubborn), "the unit was killed before the second TERM");
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
    assert!(!is_alive(stubborn), "a process survived");
    assert!(!init.socket().exists(), "the socket remains");
}

#[test]
fn units_inherit_no_open_files() {
    let wrapper = &["sh", "-c", "exec 9</etc/passwd; exec \"$@\"", "sh"];
    let mut init = Init::start_with(wrapper, &["--fleet"]);
    let open = |process: Pid| {
        let path = format!("/proc/{}/fd/9", process.as_raw_nonzero());
        std::fs::read_link(path).is_ok()
    };
    assert!(open(init.pid()), "fleet-init lacks the open file");
    for more in ["", "\nUser=nobody"] {
        if more.is_empty() || rustix::process::geteuid().is_root() {
            let unit = init.run(
                &format!("u{}.service", more.len()),
                &format!("ExecStart=/bin/sleep infinity{more}"),
            );
            assert!(!open(unit), "the unit inherited the file: {more}");
        }
    }
    init.signal(Signal::TERM);
    init.wait();
}

#[test]
fn units_inherit_no_ignored_signals() {
    let wrapper = &["sh", "-c", "trap '' HUP QUIT USR1; exec \"$@\"", "sh"];
    let mut init = Init::start_with(wrapper, &["--fleet"]);
    let ignored = |process: Pid| {
        let path = format!("/proc/{}/status", process.as_raw_nonzero());
        let status = std::fs::read_to_string(path).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
        u64::from_str_radix(mask, 16).unwrap()
    };
    // As under systemd, PIPE is ignored: a write to a closed pipe fails with an error.
    let pipe = 1 << (Signal::PIPE.as_raw() - 1);
    assert_ne!(ignored(init.pid()) & !pipe, 0, "fleet-init ignores no signal");
    for more in ["", "\nUser=nobody"] {
        if more.is_empty() || rustix::process::geteuid().is_root() {
            let unit = init.run(
                &format!("u{}.service", more.len()),
                &format!("ExecStart=/bin/sleep infinity{more}"),
            );
            assert_eq!(ignored(unit), pipe, "the unit inherited ignored signals: {more}");
        }
    }
    init.signal(Signal::TERM);
    init.wait();
}

#[test]
fn stop_limit_kills_remaining_units() {
    let mut init = Init::start_with(&[], &["--fleet", "--stop-limit", "100ms"]);
    let stubborn = init.run("stubborn.service", STUBBORN);
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
    assert!(!is_alive(stubborn), "a process survived");
}

// Holds: X-16
#[test]
fn stop_kills_escaped_processes_and_hung_stop_commands() {
    let mut init = Init::start_with(&[], &["--fleet", "--stop-limit", "100ms"]);
    let (file, hangs) = (init.home.path().join("escaped"), init.home.path().join("hangs"));
    let forever = "while :; do sleep 1000; done";
    let script = format!(
        "trap \"\" TERM; setsid sh -c \"echo \\$\\$ >{}; {forever}\" & {forever}",
        file.display()
    );
    init.run("unit.service", &format!("ExecStart=/bin/sh -c '{script}'"));
    let stop = format!("trap \"\" TERM; echo $$$$ >{}; {forever}", hangs.display());
    let service = format!(
        "TimeoutStopSec=infinity\nExecStart=/bin/sleep infinity\nExecStop=/bin/sh -c '{stop}'"
    );
    init.run("stops.service", &service);
    let written =
        |file: &PathBuf| Pid::from_raw(std::fs::read_to_string(file).ok()?.trim().parse().ok()?);
    let escaped = wait_for("a process leaves the process group", || written(&file));
    init.signal(Signal::TERM);
    assert!(init.wait().success(), "fleet-init failed");
    assert!(!is_alive(escaped), "a process survived");
    assert!(
        !is_alive(written(&hangs).expect("the stop command has started")),
        "the stop command survived"
    );
}

/// Returns the children of a process, and whether each is a zombie.
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
fn subreaper_reaps_orphans_and_restarts_the_supervisor() {
    let init = Init::start_with(&[], &["--fleet", "--reap"]);
    // This child outlives its parent.
    let gate = init.home.path().join("gate");
    let orphan = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let script = format!("(setsid sh -c \"{orphan}\" &); exec sleep infinity");
    let unit = init.run("unit.service", &format!("ExecStart=/bin/sh -c '{script}'"));
    let supervisor = wait_for("both children exist", || match children(init.pid()).as_slice() {
        [(first, false), (_, false)] => Some(*first),
        _ => None,
    });
    std::fs::write(gate, "").unwrap();
    wait_for("the orphan is reaped", || (children(init.pid()).len() == 1).then_some(()));

    kill_process(supervisor, Signal::KILL).unwrap();
    wait_for("the restarted supervisor lists the unit", || {
        let (_, printed) = init.client(&["status"]);
        printed.contains(&unit.as_raw_nonzero().to_string()).then_some(())
    });
    assert!(is_alive(unit), "the unit was disturbed");
}

//! `fleetd --config FILE`: one machine with a durable store, in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{is_alive, main_pid, told, wait_for};

/// The unit that the machine runs.
pub(crate) const UNIT: &str = "steady.service";

/// A machine with a configuration of its own. However a test ends, its daemon and its unit do, too.
pub(crate) struct Machine {
    home: TempDir,
    /// Where systemd would listen, for a daemon that is a service.
    pub(crate) notify: Option<PathBuf>,
    /// How long systemd would let the daemon be silent, in microseconds.
    pub(crate) watchdog: u32,
    daemon: Option<Child>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display();
        let config = format!(
            "store = \"embedded\"\nlisten = [\"unix://{path}/fleet.sock\"]\n\
             data_dir = \"{path}/data\"\nagent_ttl = \"3s\"\n\
             public_ip = \"192.0.2.7\"\n[metadata]\nrack = \"7\"\n"
        );
        std::fs::write(home.path().join("fleet.conf"), config).unwrap();
        Self { home, notify: None, watchdog: 300_000, daemon: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetd"));
        if let Some(socket) = &self.notify {
            command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", self.watchdog.to_string());
        }
        let daemon = command
            .arg("--config")
            .arg(self.path("fleet.conf"))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(self.path("fleetd.log")).unwrap())
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        wait_for("the machine is there", || {
            let listed = self.fleetctl(&["list-machines", "--no-legend"]);
            String::from_utf8_lossy(&listed.stdout).contains("rack=7").then_some(())
        });
    }

    /// Starts the daemon and the unit; returns its row.
    pub(crate) fn start_with_unit(&mut self) -> Value {
        self.start();
        let unit = self.path(UNIT);
        std::fs::write(&unit, "[Service]\nExecStart=/bin/sleep infinity\n").unwrap();
        let started = self.fleetctl(&["start", unit.to_str().unwrap()]);
        assert!(started.status.success(), "{}", told(&started));
        self.row().expect("the unit is active")
    }

    /// Sends the daemon a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("the daemon runs");
        kill_process(Pid::from_child(daemon), signal).unwrap();
    }

    /// Tells the daemon to end, which leaves its units as they are.
    pub(crate) fn end(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
        let status = daemon.wait().unwrap();
        assert!(status.success(), "the daemon ended with {status}");
    }

    /// Kills the daemon.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.daemon.take().expect("the daemon runs").wait().unwrap();
    }

    pub(crate) fn fleetctl(&self, args: &[&str]) -> Output {
        let endpoint = format!("unix://{}", self.path("fleet.sock").display());
        let mut fleetctl = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        fleetctl.args(["--endpoint", &endpoint]).args(args).stdin(Stdio::null());
        fleetctl.output().unwrap()
    }

    pub(crate) fn row(&self) -> Option<Value> {
        let listed = self.fleetctl(&["list-units", "-o", "json"]);
        let rows: Vec<Value> = serde_json::from_slice(&listed.stdout).ok()?;
        rows.into_iter().find(|row| row["active"] == "active")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            self.start();
        }
        let _gone = self.fleetctl(&["destroy", UNIT]);
        self.end();
    }
}

#[test]
fn a_daemon_that_is_told_to_end_leaves_its_units_and_takes_them_back() {
    let mut machine = Machine::new();
    let before = machine.start_with_unit();
    machine.end();
    assert!(is_alive(main_pid(&before)), "a unit ended with its daemon");

    machine.start();
    let after = wait_for("the unit is shown again", || machine.row());
    assert_eq!(after["mainPID"], before["mainPID"], "the unit was disturbed");
    let destroyed = machine.fleetctl(&["destroy", UNIT]);
    assert!(destroyed.status.success(), "{}", told(&destroyed));
    wait_for("its process has ended", || (!is_alive(main_pid(&before))).then_some(()));
    machine.end();
}

#[test]
fn a_daemon_that_cannot_write_its_log_runs_all_the_same() {
    let mut machine = Machine::new();
    std::os::unix::fs::symlink("/dev/full", machine.path("fleetd.log")).unwrap();
    machine.start_with_unit();
    machine.end();
}

#[test]
fn what_is_passed_over_in_a_unit_is_told_for_each_of_its_files() {
    let mut machine = Machine::new();
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let config = format!("native_accept = [\"PrivateTmp\", \"ProtectHome\"]\n{config}");
    std::fs::write(machine.path("fleet.conf"), config).unwrap();
    machine.start();
    let unit = machine.path(UNIT);
    let run = |wanted: &str, passed_over: &[&str]| {
        let options = passed_over.join("\n");
        let text = format!("{wanted}[Service]\nExecStart=/bin/sleep infinity\n{options}\n");
        std::fs::write(&unit, text).unwrap();
        let applied = machine.fleetctl(&["apply", unit.to_str().unwrap()]);
        assert!(applied.status.success(), "{}", told(&applied));
    };
    run("[Unit]\nAfter=gone.service\n", &["PrivateTmp=yes"]);
    run("[Unit]\nAfter=gone.service\n", &["PrivateTmp=yes", "ProtectHome=yes"]);
    run("[Unit]\nAfter=gone.service lost.service\n", &["ProtectHome=yes"]);
    let log = std::fs::read_to_string(machine.path("fleetd.log")).unwrap();
    for option in ["PrivateTmp", "ProtectHome"] {
        let part = format!("Service.{option} is passed over, as this machine's operator accepts");
        assert_eq!(log.matches(&part).count(), 2, "{part}: {log}");
    }
    for other in ["gone", "lost"] {
        let part = format!("After says nothing of {other}.service, which is not run here");
        assert!(log.contains(&part), "{part}: {log}");
    }
    machine.end();
}

#[test]
fn a_second_daemon_on_the_same_directory_says_what_is_in_the_way() {
    let mut machine = Machine::new();
    machine.start();
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let other = machine.path("other.conf");
    std::fs::write(&other, config.replace("fleet.sock", "other.sock")).unwrap();
    let second = fleetd(&["--config".as_ref(), &other]);
    assert_eq!(second.status.code(), Some(1), "{}", told(&second));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("store.redb") && said.contains("in use"), "{said}");
    machine.end();
}

// Holds: I-11
#[test]
fn a_machine_whose_identity_is_taken_is_told_by_whom() {
    let mut machine = Machine::new();
    machine.start();
    let mut daemon = machine.daemon.take().expect("the daemon runs");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    // The claim of the daemon that was killed stands for a while, and what comes now is a stranger.
    std::fs::remove_file(machine.path("data/machine/token")).unwrap();
    machine.start();
    let said = wait_for("the daemon tells of the refusal", || {
        let said = std::fs::read_to_string(machine.path("fleetd.log")).unwrap();
        said.contains("in use by another machine").then_some(said)
    });
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let version = env!("CARGO_PKG_VERSION");
    for part in [&*host, "at 192.0.2.7", version, "since ", " GMT", "machine_id"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    machine.end();
}

#[test]
fn a_wrong_configuration_is_refused_with_its_place() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("fleet.conf");
    std::fs::write(&path, "# fleet\nagent_tll = \"30s\"\n").unwrap();
    for args in [&["check-config".as_ref(), path.as_path()], &["--config".as_ref(), &*path]] {
        let refused = fleetd(args);
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("fleet.conf:2:1") && said.contains("\"agent_ttl\""), "{said}");
    }
    std::fs::write(&path, "agent_ttl=30s\nmetadata=rack=7\n").unwrap();
    let checked = fleetd(&["check-config".as_ref(), &path]);
    assert!(checked.status.success(), "{}", told(&checked));
}

fn fleetd(args: &[&Path]) -> Output {
    let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
    fleetd.args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn it_is_said_how_processes_are_found_and_when_a_unit_is_tried_again() {
    let mut machine = Machine::new();
    machine.start();
    let log = std::fs::read_to_string(machine.path("fleetd.log")).unwrap();
    let found = log.lines().find_map(|line| line.split_once("tracking processes of units "));
    let tracking = found.unwrap_or_else(|| panic!("it is not said at the start:\n{log}")).1;
    let unit = machine.path(UNIT);
    let text = "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=1h\n";
    std::fs::write(&unit, text).unwrap();
    machine.fleetctl(&["start", "--no-block", unit.to_str().unwrap()]);
    let told = wait_for("it waits for its retry", || {
        let told = told(&machine.fleetctl(&["status", UNIT]));
        told.contains("Retry: in 59min").then_some(told)
    });
    assert!(told.contains(&format!("Tracking: {tracking}\n")), "{told}\n{tracking}");
    machine.end();
}

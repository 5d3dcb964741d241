//! `fleetd --config FILE`: one machine with a durable store, in its own directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{is_alive, main_pid, output_text, wait_for};

/// The unit that the machine runs.
pub(crate) const UNIT: &str = "steady.service";

/// A machine with its own configuration. Its daemon and its unit are stopped when it is dropped.
pub(crate) struct Machine {
    home: TempDir,
    /// The notification socket, for a daemon that runs as a service.
    pub(crate) notify: Option<PathBuf>,
    /// The watchdog timeout of the service, in microseconds.
    pub(crate) watchdog: u32,
    /// The umask of the daemon.
    pub(crate) umask: &'static str,
    daemon: Option<Child>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display();
        let config = format!(
            "store = \"embedded\"\nlisten = [\"unix://{path}/fleet.sock\"]\n\
             data_dir = \"{path}/data\"\nnative_runtime_dir = \"{path}/run\"\nagent_ttl = \"3s\"\n\
             public_ip = \"192.0.2.7\"\n[metadata]\nrack = \"7\"\n"
        );
        std::fs::write(home.path().join("fleet.conf"), config).unwrap();
        Self { home, notify: None, watchdog: 300_000, umask: "0022", daemon: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        self.spawn();
        wait_for("the machine is present", || {
            let listed = self.fleetctl(&["list-machines", "--no-legend"]);
            String::from_utf8_lossy(&listed.stdout).contains("rack=7").then_some(())
        });
    }

    /// Starts the daemon, and waits until it refuses its store.
    pub(crate) fn start_refused(&mut self) {
        self.spawn();
        wait_for("the store is refused", || {
            let log = std::fs::read_to_string(self.path("fleetd.log")).unwrap_or_default();
            log.contains("the store was emptied or replaced").then_some(())
        });
    }

    /// Waits until the daemon has saved a unit in the desired state of its machine.
    pub(crate) fn wait_until_saved(&self, unit: &str) {
        wait_for("the desired state is saved", || {
            let saved = std::fs::read_to_string(self.path("data/machine/desired-state.json"));
            saved.is_ok_and(|saved| saved.contains(unit)).then_some(())
        });
    }

    /// Accepts any store, as a person does.
    pub(crate) fn accept_store(&self) {
        let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
        let config = self.path("fleet.conf");
        let accepted = fleetd.arg("accept-store").arg("--config").arg(config).output().unwrap();
        assert!(accepted.status.success(), "{}", output_text(&accepted));
    }

    /// Imports an export without a daemon.
    pub(crate) fn import_offline(&self, export: &Path) {
        let mut fleetctl = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        fleetctl.arg("import").arg("--config").arg(self.path("fleet.conf")).arg(export);
        let imported = fleetctl.stdin(Stdio::null()).output().unwrap();
        assert!(imported.status.success(), "{}", output_text(&imported));
    }

    fn spawn(&mut self) {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {}; exec \"$0\" \"$@\"", self.umask)]);
        command.arg(env!("CARGO_BIN_EXE_fleetd"));
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
    }

    /// Starts the daemon and the unit, and returns the row of the unit.
    pub(crate) fn start_with_unit(&mut self) -> Value {
        self.start();
        let unit = self.path(UNIT);
        std::fs::write(&unit, "[Service]\nExecStart=/bin/sleep infinity\n").unwrap();
        let started = self.fleetctl(&["start", unit.to_str().unwrap()]);
        assert!(started.status.success(), "{}", output_text(&started));
        self.row().expect("the unit is active")
    }

    /// Sends a signal to the daemon.
    pub(crate) fn signal(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("the daemon runs");
        kill_process(Pid::from_child(daemon), signal).unwrap();
    }

    /// Stops the daemon, which leaves its units running.
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
fn started_daemon_logs_its_addresses() {
    let mut machine = Machine::new();
    machine.start();
    let (version, socket) = (env!("CARGO_PKG_VERSION"), machine.path("fleet.sock"));
    let line = format!("fleetd {version} listens at unix://{}", socket.display());
    // The daemon answers before it has written the line.
    wait_for("the log has the addresses", || {
        let log = std::fs::read_to_string(machine.path("fleetd.log")).ok()?;
        log.contains(&line).then_some(())
    });
}

#[test]
fn stopped_daemon_adopts_running_units() {
    let mut machine = Machine::new();
    let before = machine.start_with_unit();
    machine.end();
    assert!(is_alive(main_pid(&before)), "the unit must outlive its daemon");

    machine.start();
    let after = wait_for("the unit is reported again", || machine.row());
    assert_eq!(after["mainPID"], before["mainPID"], "the unit was restarted");
    let destroyed = machine.fleetctl(&["destroy", UNIT]);
    assert!(destroyed.status.success(), "{}", output_text(&destroyed));
    wait_for("the process has ended", || (!is_alive(main_pid(&before))).then_some(()));
    machine.end();
}

#[test]
fn daemon_runs_without_a_writable_log() {
    let mut machine = Machine::new();
    std::os::unix::fs::symlink("/dev/full", machine.path("fleetd.log")).unwrap();
    machine.start_with_unit();
    machine.end();
}

#[test]
fn ignored_options_are_logged_per_unit_file() {
    let mut machine = Machine::new();
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let config = format!("native_accept = [\"PrivatePIDs\", \"RootEphemeral\"]\n{config}");
    std::fs::write(machine.path("fleet.conf"), config).unwrap();
    machine.start();
    let unit = machine.path(UNIT);
    let run = |unit_section: &str, accepted: &[&str]| {
        let options = accepted.join("\n");
        let text = format!("{unit_section}[Service]\nExecStart=/bin/sleep infinity\n{options}\n");
        std::fs::write(&unit, text).unwrap();
        let applied = machine.fleetctl(&["apply", unit.to_str().unwrap()]);
        assert!(applied.status.success(), "{}", output_text(&applied));
    };
    run("[Unit]\nAfter=gone.service\n", &["PrivatePIDs=yes"]);
    run("[Unit]\nAfter=gone.service\n", &["PrivatePIDs=yes", "RootEphemeral=yes"]);
    run("[Unit]\nAfter=gone.service lost.service\n", &["RootEphemeral=yes"]);
    let log = std::fs::read_to_string(machine.path("fleetd.log")).unwrap();
    for option in ["PrivatePIDs", "RootEphemeral"] {
        let part = format!("Service.{option} is ignored, as this machine accepts");
        assert_eq!(log.matches(&part).count(), 2, "{part}: {log}");
    }
    for other in ["gone", "lost"] {
        let part = format!("After ignores {other}.service, which is not run here");
        assert!(log.contains(&part), "{part}: {log}");
    }
    machine.end();
}

#[test]
fn second_daemon_on_same_data_dir_is_refused() {
    let mut machine = Machine::new();
    machine.start();
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let other = machine.path("other.conf");
    std::fs::write(&other, config.replace("fleet.sock", "other.sock")).unwrap();
    let second = fleetd(&["--config".as_ref(), &other]);
    assert_eq!(second.status.code(), Some(1), "{}", output_text(&second));
    let errors = String::from_utf8_lossy(&second.stderr);
    assert!(errors.contains("store.redb") && errors.contains("in use"), "{errors}");
    machine.end();
}

// Holds: I-11
#[test]
fn duplicate_machine_id_error_names_the_other() {
    let mut machine = Machine::new();
    // The claim must last until the new daemon has reported it.
    let config = std::fs::read_to_string(machine.path("fleet.conf")).unwrap();
    let lasting = config.replace("agent_ttl = \"3s\"", "agent_ttl = \"60s\"");
    std::fs::write(machine.path("fleet.conf"), lasting).unwrap();
    machine.start();
    let mut daemon = machine.daemon.take().expect("the daemon runs");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    // The claim of the killed daemon has not expired, and the new daemon cannot prove that it is
    // the same machine.
    std::fs::remove_file(machine.path("data/machine/token")).unwrap();
    machine.start();
    let log = wait_for("the refusal is logged", || {
        let log = std::fs::read_to_string(machine.path("fleetd.log")).unwrap();
        log.contains("in use by another machine").then_some(log)
    });
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let version = env!("CARGO_PKG_VERSION");
    for part in [&*host, "at 192.0.2.7", version, "since ", " GMT", "machine_id"] {
        assert!(log.contains(part), "{part} is missing: {log}");
    }
    let doctor = machine.fleetctl(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1), "{}", output_text(&doctor));
    let found = String::from_utf8_lossy(&doctor.stdout);
    let expected = "problem: this fleetd has not joined the cluster: machine ID ";
    assert!(found.contains(expected) && found.contains("in use by another machine"), "{found}");
    machine.end();
}

#[test]
fn invalid_configuration_is_refused_with_position() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("fleet.conf");
    std::fs::write(&path, "# fleet\nagent_tll = \"30s\"\n").unwrap();
    for args in [&["check-config".as_ref(), path.as_path()], &["--config".as_ref(), &*path]] {
        let refused = fleetd(args);
        assert_eq!(refused.status.code(), Some(2), "{}", output_text(&refused));
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(errors.contains("fleet.conf:2:1") && errors.contains("\"agent_ttl\""), "{errors}");
    }
    std::fs::write(&path, "agent_ttl=30s\nmetadata=rack=7\n").unwrap();
    let checked = fleetd(&["check-config".as_ref(), &path]);
    assert!(checked.status.success(), "{}", output_text(&checked));
}

fn fleetd(args: &[&Path]) -> Output {
    let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
    fleetd.args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn tracking_and_retry_are_reported() {
    let mut machine = Machine::new();
    machine.start();
    let log = std::fs::read_to_string(machine.path("fleetd.log")).unwrap();
    let found = log.lines().find_map(|line| line.split_once("tracking processes of units "));
    let tracking =
        found.unwrap_or_else(|| panic!("the tracking is not logged at startup:\n{log}")).1;
    let unit = machine.path(UNIT);
    let text = "[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=1h\n";
    std::fs::write(&unit, text).unwrap();
    machine.fleetctl(&["start", "--no-block", unit.to_str().unwrap()]);
    let status = wait_for("the unit waits for its retry", || {
        let status = output_text(&machine.fleetctl(&["status", UNIT]));
        status.contains("Retry: in 59min").then_some(status)
    });
    assert!(status.contains(&format!("Tracking: {tracking}\n")), "{status}\n{tracking}");
    machine.end();
}

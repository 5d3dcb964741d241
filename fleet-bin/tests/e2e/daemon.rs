//! A `fleetd dev` of a test's own, and `fleetctl` pointed at it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long a test waits for a condition before it fails; far longer than any should take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A row of `fleetctl list-units -o json`.
pub(crate) type Row = Value;

/// A cluster in a directory of its own. Its end ends the daemon and all units.
pub(crate) struct Cluster {
    home: TempDir,
    daemon: Option<Child>,
    machines: u16,
    /// How many files the daemon may open, if that is not for others to say.
    files: Option<u32>,
}

impl Cluster {
    /// A cluster of three machines that launches these unit files.
    pub(crate) fn start(units: &[&Path]) -> Self {
        Self::begin(None, units)
    }

    /// The same without units, and with a daemon that may open no more than so many files.
    pub(crate) fn start_with_files(files: u32) -> Self {
        Self::begin(Some(files), &[])
    }

    fn begin(files: Option<u32>, units: &[&Path]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut cluster = Self { home, daemon: None, machines: 3, files };
        cluster.start_daemon(units);
        cluster
    }

    /// Starts the daemon, again if it ran before, and waits until it answers.
    pub(crate) fn start_daemon(&mut self, units: &[&Path]) {
        let log = fs::File::create(self.path("fleetd.log")).unwrap();
        let limit = self.files.map_or_else(String::new, |files| format!("ulimit -n {files};"));
        let daemon = Command::new("sh")
            .args(["-c", &format!("{limit} exec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_fleetd"))
            .args(["dev", "--machines", &self.machines.to_string(), "--data-dir"])
            .arg(self.path("data"))
            .args(units)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemon = Some(daemon);
        self.wait_for("all machines are there", |cluster| {
            let listed = cluster.fleetctl(&["list-machines", "-o", "json"]);
            let machines: Value = serde_json::from_slice(&listed.stdout).ok()?;
            (machines.as_array()?.len() == usize::from(cluster.machines)).then_some(())
        });
    }

    /// The path of a file in the cluster's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a unit file and returns where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs fleetctl against the cluster.
    pub(crate) fn fleetctl<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Output {
        self.fleetctl_command(args).output().unwrap()
    }

    /// A fleetctl against the cluster, for a test to run as it likes.
    pub(crate) fn fleetctl_command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let endpoint = format!("unix://{}", self.path("data/fleet.sock").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        command.env("FLEETCTL_ENDPOINT", endpoint).args(args).stdin(Stdio::null());
        command
    }

    /// Runs fleetctl and demands that it succeeds; returns what it printed.
    pub(crate) fn succeed<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(
        &self,
        args: &[S],
    ) -> String {
        let output = self.fleetctl(args);
        assert!(output.status.success(), "fleetctl {args:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rows of `list-units` that are about one unit.
    pub(crate) fn rows(&self, unit: &str) -> Vec<Row> {
        let all: Vec<Row> =
            serde_json::from_str(&self.succeed(&["list-units", "-o", "json"])).unwrap();
        all.into_iter().filter(|row| row["unit"] == unit).collect()
    }

    /// The names of all units that the cluster knows.
    pub(crate) fn units(&self) -> Vec<String> {
        let listed = self.succeed(&["list-unit-files", "-o", "name"]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Waits until one row of the unit is active, and returns it.
    pub(crate) fn wait_active(&self, unit: &str) -> Row {
        self.wait_for(&format!("{unit} is active"), |cluster| {
            cluster.rows(unit).into_iter().find(|row| row["active"] == "active")
        })
    }

    /// Waits until `condition` gives something.
    pub(crate) fn wait_for<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        wait_for(what, || condition(self))
    }

    /// The process that is the daemon.
    pub(crate) fn daemon_id(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon runs").id()
    }

    /// Sends the daemon a signal.
    pub(crate) fn signal_daemon(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("the daemon runs");
        kill_process(Pid::from_child(daemon), signal).unwrap();
    }

    /// Ends the daemon with a signal and returns how it ended.
    pub(crate) fn end_daemon(&mut self, signal: Signal) -> ExitStatus {
        self.signal_daemon(signal);
        self.daemon.take().expect("the daemon runs").wait().unwrap()
    }

    /// What the daemon has printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("fleetd.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            self.start_daemon(&[]); // what a killed daemon left behind is ended by another
        }
        let status = self.end_daemon(Signal::INT);
        if !std::thread::panicking() {
            assert!(status.success(), "the daemon ended with {status}\n{}", self.log());
        }
    }
}

/// Waits until `condition` gives something.
pub(crate) fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// The process that is a unit.
pub(crate) fn main_pid(row: &Row) -> Pid {
    let pid = row["mainPID"].as_i64().expect("a running unit has a process");
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

/// Whether a process runs; one that ended and waits for its parent to notice does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let after_name = |stat: String| stat.rsplit(") ").next().map(str::to_owned);
    stat.ok().and_then(after_name).is_some_and(|rest| !rest.starts_with('Z'))
}

/// What a program printed, for a failure's message.
pub(crate) fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

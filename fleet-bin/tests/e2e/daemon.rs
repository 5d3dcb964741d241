//! A `fleetd dev` in its own directory, and `fleetctl` for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longest time to wait for a condition, far longer than any should take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A row of `fleetctl list-units -o json`.
pub(crate) type Row = Value;

/// A cluster in its own directory. Dropping it stops the daemon and all units.
pub(crate) struct Cluster {
    home: TempDir,
    daemon: Option<Child>,
    machines: u16,
    /// Limit of open files for the daemon; `None` for the inherited one.
    files: Option<u32>,
}

impl Cluster {
    /// Starts a cluster of three machines that launches these unit files.
    pub(crate) fn start(units: &[&Path]) -> Self {
        Self::begin(None, units)
    }

    /// Starts a cluster without units, whose daemon has this limit of open files.
    pub(crate) fn start_with_files(files: u32) -> Self {
        Self::begin(Some(files), &[])
    }

    fn begin(files: Option<u32>, units: &[&Path]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut cluster = Self { home, daemon: None, machines: 3, files };
        cluster.start_daemon(units);
        cluster
    }

    /// Starts the daemon, and waits until all machines are present.
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
        self.wait_for("all machines are present", |cluster| {
            let listed = cluster.fleetctl(&["list-machines", "-o", "json"]);
            let machines: Value = serde_json::from_slice(&listed.stdout).ok()?;
            (machines.as_array()?.len() == usize::from(cluster.machines)).then_some(())
        });
    }

    /// Returns the path of a file in the cluster's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file. Returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs fleetctl against the cluster.
    pub(crate) fn fleetctl<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Output {
        self.fleetctl_command(args).output().unwrap()
    }

    /// Returns a fleetctl command for the cluster.
    pub(crate) fn fleetctl_command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let endpoint = format!("unix://{}", self.path("data/fleet.sock").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
        command.env("FLEETCTL_ENDPOINT", endpoint).args(args).stdin(Stdio::null());
        command
    }

    /// Runs fleetctl, which must succeed. Returns its standard output.
    pub(crate) fn succeed<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(
        &self,
        args: &[S],
    ) -> String {
        let output = self.fleetctl(args);
        assert!(output.status.success(), "fleetctl {args:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the rows of `list-units` for one unit.
    pub(crate) fn rows(&self, unit: &str) -> Vec<Row> {
        let all: Vec<Row> =
            serde_json::from_str(&self.succeed(&["list-units", "-o", "json"])).unwrap();
        all.into_iter().filter(|row| row["unit"] == unit).collect()
    }

    /// Returns the names of all units of the cluster.
    pub(crate) fn units(&self) -> Vec<String> {
        let listed = self.succeed(&["list-unit-files", "-o", "name"]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Waits until one row of the unit is active. Returns the row.
    pub(crate) fn wait_active(&self, unit: &str) -> Row {
        self.wait_for(&format!("{unit} is active"), |cluster| {
            cluster.rows(unit).into_iter().find(|row| row["active"] == "active")
        })
    }

    /// Waits until `condition` returns a value.
    pub(crate) fn wait_for<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        wait_for(what, || condition(self))
    }

    /// Returns the daemon's process ID.
    pub(crate) fn daemon_id(&self) -> u32 {
        self.daemon.as_ref().expect("the daemon is running").id()
    }

    /// Sends the daemon a signal.
    pub(crate) fn signal_daemon(&self, signal: Signal) {
        let daemon = self.daemon.as_ref().expect("the daemon is running");
        kill_process(Pid::from_child(daemon), signal).unwrap();
    }

    /// Ends the daemon with a signal. Returns its exit status.
    pub(crate) fn end_daemon(&mut self, signal: Signal) -> ExitStatus {
        self.signal_daemon(signal);
        self.daemon.take().expect("the daemon is running").wait().unwrap()
    }

    /// Returns the daemon's output.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("fleetd.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            // Adopts the units of a killed daemon, in order to stop them.
            self.start_daemon(&[]);
        }
        let status = self.end_daemon(Signal::INT);
        if !std::thread::panicking() {
            assert!(status.success(), "the daemon ended with {status}\n{}", self.log());
        }
    }
}

/// Waits until `condition` returns a value.
pub(crate) fn wait_for<T>(what: &str, condition: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for: {what}");
        std::thread::yield_now();
    }
}

/// Returns a directory for the data of etcd, in memory if possible: etcd flushes each write, which
/// takes long on a busy disk. It writes at least 128 MiB.
#[cfg(feature = "etcd")]
pub(crate) fn etcd_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory)
        .is_ok_and(|info| info.f_bavail.saturating_mul(info.f_frsize) > 1 << 30);
    let in_memory = has_room.then(|| tempfile::tempdir_in(memory)).and_then(Result::ok);
    in_memory.unwrap_or_else(|| tempfile::tempdir().expect("a directory can be created"))
}

/// Returns the main process of a unit.
pub(crate) fn main_pid(row: &Row) -> Pid {
    let pid = row["mainPID"].as_i64().expect("a main process");
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

/// Whether a process runs. A zombie does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let after_name = |stat: String| stat.rsplit(") ").next().map(str::to_owned);
    stat.ok().and_then(after_name).is_some_and(|rest| !rest.starts_with('Z'))
}

/// Formats a program's status and output for a failure message.
pub(crate) fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

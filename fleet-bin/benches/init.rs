//! Measures memory and wake-ups of `fleet-init run` with five hundred idle units.
//!
//! `cargo bench -p fleet-bin --bench init` starts the release program in its own directory, with as
//! many `sleep` processes. It prints three JSON lines:
//!
//! - `up`: all units of files are up;
//! - `asked`: after requests for status and a plan, and a reload;
//! - `for fleet`: another one with as many systemd units, loaded by a client as fleetd does.
//!
//! Each line has the resident memory in MB, the anonymous part of it, and the number of context
//! switches while idle. `found_by` is the method of tracking processes, which needs memory, too.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use fleet_agent::ServiceManager as _;
use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};

/// Number of units.
const UNITS: usize = 500;

/// Longest time until all units are up.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Duration of the idle measurement, and of the time to settle before it.
const IDLE: Duration = Duration::from_secs(10);

fn main() {
    // `cargo test` runs this only to check that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    files();
    fleet();
}

/// Measures a fleet-init with units of files.
fn files() {
    let home = tempfile::tempdir().expect("a directory can be made");
    fs::write(home.path().join("all.unit"), units()).expect("a file can be written");
    fs::write(home.path().join("init.conf"), "goal: all\n").expect("a file can be written");
    let units = home.path().as_os_str();
    let mut init = Init::start(home.path(), &[units]); // dropped before its directory
    let found_by = init.until_up(home.path());
    report("up", &init, &found_by);
    for command in [&["status"][..], &["plan"], &["reload"], &["status"]] {
        let output = init.client(home.path(), command);
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
    report("asked", &init, &found_by);
}

/// Measures a fleet-init with the units of a fleetd.
fn fleet() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let mut init = Init::start(home.path(), &["--fleet".as_ref()]);
    init.until(home.path(), |status| status.status.success());
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.expect("threads can be started");
    // Stays connected, like fleetd.
    let _client = threads.block_on(load_and_start(home.path()));
    let found_by = init.until_up(home.path());
    report("for fleet", &init, &found_by);
}

/// Loads all units concurrently, then starts them concurrently, like fleetd.
async fn load_and_start(home: &Path) -> Arc<RemoteManager> {
    let config = RemoteConfig::new(home.join("sock"), "a benchmark");
    let manager = RemoteManager::open(config).await.expect("fleet-init listens");
    let file =
        UnitFile::parse("[Service]\nExecStart=/bin/sleep 1d\n").expect("the unit file is valid");
    let name = |number| format!("u{number}.service").parse().expect("the name is valid");
    let units: Vec<UnitName> = (0..UNITS).map(name).collect();
    let loads = join_all(units.iter().map(|unit| manager.load(unit, &file, Epoch(1)))).await;
    loads.into_iter().for_each(|done| done.expect("the unit is loaded"));
    let starts = join_all(units.iter().map(|unit| manager.start(unit, Generation(1)))).await;
    starts.into_iter().for_each(|done| done.expect("the unit starts"));
    manager
}

fn report(when: &str, init: &Init, found_by: &str) {
    sleep(IDLE);
    let before = init.switches();
    sleep(IDLE);
    let line = serde_json::json!({
        "figure": "memory", "when": when, "units": UNITS, "rss_mb": init.megabytes("VmRSS"),
        "own_mb": init.megabytes("RssAnon"), "switches": init.switches().saturating_sub(before),
        "seconds": IDLE.as_secs(), "found_by": found_by,
    });
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

/// Returns sleeping units and a unit that depends on all of them.
fn units() -> String {
    let mut text = String::new();
    let mut all = Vec::new();
    for number in 0..UNITS {
        write!(
            text,
            "unit: u{number}\ntype: foreground-supervised\nprovides: t{number}\n\
             exec-start: /bin/sleep 1d\n\n"
        )
        .expect("writing to a String cannot fail");
        all.push(format!("t{number}"));
    }
    text + "unit: all\ntype: virtual\nprovides: all\ndepends-on: " + &all.join(", ") + "\n"
}

fn running(status: &Output) -> usize {
    let units: Vec<serde_json::Value> = serde_json::from_slice(&status.stdout).unwrap_or_default();
    units.iter().filter(|unit| unit["mainPID"].is_number()).count()
}

/// A fleet-init that ends with all its units when it is dropped.
struct Init(Child);

impl Init {
    fn start(home: &Path, args: &[&OsStr]) -> Self {
        let mut init = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        init.arg("run").arg("--socket").arg(home.join("sock"));
        init.arg("--state-dir").arg(home.join("state")).args(args);
        let silent = init.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(silent.spawn().expect("fleet-init starts"))
    }

    /// Waits until all units are up. Returns the method of tracking processes.
    fn until_up(&mut self, home: &Path) -> String {
        let status = self.until(home, |status| running(status) == UNITS);
        String::from_utf8_lossy(&status.stderr).trim().to_owned()
    }

    /// Waits until the output of `status` satisfies a condition. Returns the output.
    fn until(&mut self, home: &Path, condition: impl Fn(&Output) -> bool) -> Output {
        let begin = Instant::now();
        loop {
            let status = self.client(home, &["status", "-o", "json"]);
            if condition(&status) {
                return status;
            }
            let ended = self.0.try_wait().expect("fleet-init is a child");
            assert!(ended.is_none() && begin.elapsed() < START_TIMEOUT, "{ended:?}: {status:?}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Runs a client command. Fails until this fleet-init listens.
    fn client(&self, home: &Path, args: &[&str]) -> Output {
        let mut client = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        client.args(args).arg("--socket").arg(home.join("sock"));
        client.output().expect("the program runs")
    }

    fn megabytes(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let kilobytes = number(&status.expect("fleet-init is running"), field);
        (kilobytes * 1024) as f64 / 1e6
    }

    /// Returns the number of context switches of its threads.
    fn switches(&self) -> u64 {
        let threads =
            fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("fleet-init is running");
        let of = |thread: fs::DirEntry| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            number(&status, "voluntary_ctxt_switches")
                + number(&status, "nonvoluntary_ctxt_switches")
        };
        threads.map_while(Result::ok).map(of).sum()
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        let signalled = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let ended = self.0.wait();
        assert!(signalled.is_ok() && ended.is_ok_and(|status| status.success()) || panicking());
    }
}

/// Returns the number in a field of `/proc/PID/status`.
fn number(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("the field is a number")
}

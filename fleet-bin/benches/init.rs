//! What `fleet-init run` takes for five hundred units that run and do nothing.
//!
//! `cargo bench -p fleet-bin --bench init` starts the release program in a directory of its own,
//! with as many processes of `sleep`, and prints three JSON lines: once units of files are up; once
//! they were asked for their status and for a plan, and were read again; and once another one runs
//! as many units of systemd, which it was handed by a service manager's client, as a fleetd does.
//! Each tells the memory that it has, in millions of bytes, and what of it is no page of a file;
//! and how often its threads ran while nothing happened. `found_by` tells how it finds the
//! processes, as that takes memory too.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use fleet_agent::remote::{RemoteConfig, RemoteManager};
use fleet_agent::{ServiceManager as _, SystemClock};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};

/// How many units run.
const UNITS: usize = 500;

/// How long all of them may take to be up.
const PATIENCE: Duration = Duration::from_secs(60);

/// For how long nothing happens, after as long a time in which what has begun comes to rest.
const AT_REST: Duration = Duration::from_secs(10);

fn main() {
    // cargo also builds this to test that it builds; then there is nothing to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    files();
    fleet();
}

/// Measures one that runs units of files.
fn files() {
    let home = tempfile::tempdir().expect("a directory can be made");
    fs::write(home.path().join("all.unit"), units()).expect("a file can be written");
    fs::write(home.path().join("init.conf"), "goal: all\n").expect("a file can be written");
    let units = home.path().as_os_str();
    let mut init = Init::start(home.path(), &[units]); // dropped before its directory is
    let found_by = init.until_up(home.path());
    report("up", &init, &found_by);
    for ask in [&["status"][..], &["plan"], &["reload"], &["status"]] {
        let answer = init.ask(home.path(), ask);
        assert!(answer.status.success(), "{ask:?}: {answer:?}");
    }
    report("asked", &init, &found_by);
}

/// Measures one that runs the units of a fleetd.
fn fleet() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let mut init = Init::start(home.path(), &["--fleet".as_ref()]);
    init.until(home.path(), |status| status.status.success());
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.expect("threads can be started");
    // It stays connected, as a fleetd does.
    let _client = threads.block_on(hand_over(home.path()));
    let found_by = init.until_up(home.path());
    report("for fleet", &init, &found_by);
}

/// Has all units loaded, and then all started, each side by side: so does a fleetd.
async fn hand_over(home: &Path) -> Arc<RemoteManager> {
    let (program, clock) = ("a benchmark".to_owned(), Arc::new(SystemClock::start()));
    let config = RemoteConfig { socket: home.join("sock"), directory: None, program, clock };
    let manager = RemoteManager::open(config).await.expect("fleet-init listens");
    let file = UnitFile::parse("[Service]\nExecStart=/bin/sleep 1d\n").expect("it is well formed");
    let name = |number| format!("u{number}.service").parse().expect("it is a name");
    let units: Vec<UnitName> = (0..UNITS).map(name).collect();
    let loads = join_all(units.iter().map(|unit| manager.load(unit, &file, Epoch(1)))).await;
    loads.into_iter().for_each(|done| done.expect("it is loaded"));
    let starts = join_all(units.iter().map(|unit| manager.start(unit, Generation(1)))).await;
    starts.into_iter().for_each(|done| done.expect("it starts"));
    manager
}

fn report(when: &str, init: &Init, found_by: &str) {
    sleep(AT_REST);
    let before = init.switches();
    sleep(AT_REST);
    let line = serde_json::json!({
        "figure": "memory", "when": when, "units": UNITS, "rss_mb": init.megabytes("VmRSS"),
        "own_mb": init.megabytes("RssAnon"), "switches": init.switches().saturating_sub(before),
        "seconds": AT_REST.as_secs(), "found_by": found_by,
    });
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

/// Units that sleep, and one that needs them all.
fn units() -> String {
    let mut text = String::new();
    let mut all = Vec::new();
    for number in 0..UNITS {
        write!(
            text,
            "unit: u{number}\ntype: foreground-supervised\nprovides: t{number}\n\
             exec-start: /bin/sleep 1d\n\n"
        )
        .expect("a text takes all that is written");
        all.push(format!("t{number}"));
    }
    text + "unit: all\ntype: virtual\nprovides: all\ndepends-on: " + &all.join(", ") + "\n"
}

fn running(status: &Output) -> usize {
    let units: Vec<serde_json::Value> = serde_json::from_slice(&status.stdout).unwrap_or_default();
    units.iter().filter(|unit| unit["mainPID"].is_number()).count()
}

/// An init that ends, with all its units, when the benchmark does, or panics.
struct Init(Child);

impl Init {
    fn start(home: &Path, what: &[&OsStr]) -> Self {
        let mut init = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        init.arg("run").arg("--socket").arg(home.join("sock"));
        init.arg("--state-dir").arg(home.join("state")).args(what);
        let silent = init.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(silent.spawn().expect("fleet-init starts"))
    }

    /// Waits until all units are up; how their processes are found.
    fn until_up(&mut self, home: &Path) -> String {
        let status = self.until(home, |status| running(status) == UNITS);
        String::from_utf8_lossy(&status.stderr).trim().to_owned()
    }

    /// Waits until its status is so.
    fn until(&mut self, home: &Path, is_so: impl Fn(&Output) -> bool) -> Output {
        let begin = Instant::now();
        loop {
            let status = self.ask(home, &["status", "-o", "json"]);
            if is_so(&status) {
                return status;
            }
            let ended = self.0.try_wait().expect("it is a child");
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "{ended:?}: {status:?}");
            sleep(Duration::from_millis(50));
        }
    }

    /// What a fleet-init says of this one: nothing until this one listens.
    fn ask(&self, home: &Path, what: &[&str]) -> Output {
        let mut other = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        other.args(what).arg("--socket").arg(home.join("sock"));
        other.output().expect("the program runs")
    }

    fn megabytes(&self, field: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let kilobytes = number(&status.expect("it runs"), field);
        (kilobytes * 1024) as f64 / 1e6
    }

    /// How often its threads were given a processor.
    fn switches(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
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
        let told = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let ended = self.0.wait();
        assert!(told.is_ok() && ended.is_ok_and(|status| status.success()) || panicking());
    }
}

/// The number in a field of `/proc/PID/status`.
fn number(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("Linux tells it")
}

//! What `fleet-init run` takes for five hundred units that run and do nothing.
//!
//! `cargo bench -p fleet-bin --bench init` starts the release program in a directory of its own,
//! with as many processes of `sleep`, and prints two JSON lines: once they are up, and once they
//! were asked for their status and for a plan, and were read again. Each tells the memory that it
//! has, in millions of bytes, and what of it is no page of a file; and how often its threads ran
//! while nothing happened. `found_by` tells how it finds the processes, as that takes memory too.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

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
    let home = tempfile::tempdir().expect("a directory can be made");
    fs::write(home.path().join("all.unit"), units()).expect("a file can be written");
    fs::write(home.path().join("init.conf"), "goal: all\n").expect("a file can be written");
    let mut init = Init::start(home.path()); // dropped before its directory is
    let found_by = init.until_up(home.path());
    report("up", &init, &found_by);
    for ask in [&["status"][..], &["plan"], &["reload"], &["status"]] {
        let answer = init.ask(home.path(), ask);
        assert!(answer.status.success(), "{ask:?}: {answer:?}");
    }
    report("asked", &init, &found_by);
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
    fn start(home: &Path) -> Self {
        let mut init = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        init.arg("run").arg("--socket").arg(home.join("sock"));
        init.arg("--state-dir").arg(home.join("state")).arg(home);
        let silent = init.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(silent.spawn().expect("fleet-init starts"))
    }

    /// Waits until all units are up; how their processes are found.
    fn until_up(&mut self, home: &Path) -> String {
        let begin = Instant::now();
        loop {
            let status = self.ask(home, &["status", "-o", "json"]);
            if running(&status) == UNITS {
                return String::from_utf8_lossy(&status.stderr).trim().to_owned();
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

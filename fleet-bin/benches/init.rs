//! What `fleet-init run` takes for five hundred units that run and do nothing.
//!
//! `cargo bench -p fleet-bin --bench init` starts the release program in a directory of its own,
//! with as many processes of `sleep`, and prints one JSON line: the memory that it has, in millions
//! of bytes, and what of it is no page of a file; and how often its threads ran while nothing
//! happened. `found_by` tells how it finds the processes, as that takes memory of its own.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{panicking, sleep};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How many units run.
const UNITS: usize = 500;

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
    let init = Init::start(home.path()); // dropped before its directory is
    while running(&init.status(home.path())) < UNITS {
        sleep(Duration::from_millis(50));
    }
    let found_by = init.status(home.path()).stderr;
    sleep(AT_REST);
    let before = init.switches();
    sleep(AT_REST);
    let line = serde_json::json!({
        "figure": "memory", "units": UNITS, "rss_mb": init.megabytes("VmRSS"),
        "own_mb": init.megabytes("RssAnon"), "switches": init.switches() - before,
        "seconds": AT_REST.as_secs(), "found_by": String::from_utf8_lossy(&found_by).trim(),
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

/// An init that ends, with all its units, when the benchmark does, however that ends.
struct Init(Child);

impl Init {
    fn start(home: &Path) -> Self {
        let mut init = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        init.arg("run").arg("--socket").arg(home.join("sock"));
        init.arg("--state-dir").arg(home.join("state")).arg(home);
        let silent = init.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(silent.spawn().expect("fleet-init starts"))
    }

    /// The answer of `fleet-init status`, which fails until it listens.
    fn status(&self, home: &Path) -> Output {
        let mut status = Command::new(env!("CARGO_BIN_EXE_fleet-init"));
        status.args(["status", "-o", "json", "--socket"]).arg(home.join("sock"));
        status.output().expect("the program runs")
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

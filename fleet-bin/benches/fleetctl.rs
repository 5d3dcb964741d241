//! Measures the run time of `fleetctl` commands in a cluster of a thousand units.
//!
//! `cargo bench -p fleet-bin --bench fleetctl` starts the release daemon in its own directory and
//! prints one JSON line per command: the median and minimum time, and the CPU time of one run. For
//! comparison it also measures a program that does nothing, and the requests of `list-units`
//! without a program.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::panicking;
use std::time::{Duration, Instant};

use fleet_core::TargetState;
use fleet_http::client::{StateFilter, UnitUpload};
use fleet_http::{Client, Endpoint};
use fleet_unitfile::UnitFile;
use rustix::process::{Pid, Signal, kill_process};

/// Number of units. They are loaded but not started, since their processes would disturb the
/// measurement.
const UNITS: usize = 1000;

/// Number of runs of each command.
const RUNS: usize = 40;

/// Measured commands: lists of all units, then commands about one unit.
const COMMANDS: [&str; 12] = [
    "version",
    "list-units",
    "list-units -o jsonl",
    "list-unit-files",
    "list-machines",
    "status -n 0 u500",
    "cat u500",
    "explain u500",
    "plan --destroy u500",
    "load u500",
    "status u500",
    "logs u500",
];

#[tokio::main]
async fn main() {
    // `cargo test` runs this only to check that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory for the cluster");
    let daemon = Daemon::start(home.path()); // dropped before its directory
    let endpoint = format!("unix://{}", home.path().join("fleet.sock").display());
    let at: Endpoint = endpoint.parse().expect("the endpoint is a URL");
    fill(&Client::new(&at)).await;
    program("nothing", || Command::new("true"));
    for line in COMMANDS {
        program(&format!("fleetctl {line}"), || {
            let mut fleetctl = Command::new(env!("CARGO_BIN_EXE_fleetctl"));
            fleetctl.args(["--endpoint", &endpoint]).args(line.split(' '));
            fleetctl
        });
    }
    requests(&at).await;
    drop(daemon);
}

/// A daemon that ends with all its units when it is dropped, even by a panic.
struct Daemon(Child);

impl Daemon {
    fn start(data: &Path) -> Self {
        let mut fleetd = Command::new(env!("CARGO_BIN_EXE_fleetd"));
        fleetd.args(["dev", "--data-dir"]).arg(data).stdin(Stdio::null()).stdout(Stdio::null());
        Self(fleetd.spawn().expect("fleetd starts"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let signalled = kill_process(Pid::from_child(&self.0), Signal::INT);
        let ended = self.0.wait();
        assert!(signalled.is_ok() && ended.is_ok_and(|status| status.success()) || panicking());
    }
}

/// Loads all units.
async fn fill(client: &Client) {
    while client.machines().await.map_or(0, |machines| machines.len()) < 3 {
        tokio::task::yield_now().await;
    }
    for number in 0..UNITS {
        let text =
            format!("[Unit]\nDescription=Number {number}\n[Service]\nExecStart=/bin/sleep 1d\n");
        let file = UnitFile::parse(text).expect("the unit file is valid");
        let upload = UnitUpload::new(file).with_desired(TargetState::Loaded).with_create_only(true);
        let name = format!("u{number}.service").parse().expect("the name is valid");
        client.put_unit(&name, &upload).await.expect("the daemon accepts the unit");
    }
    let states = async || client.states(&StateFilter::default()).await.map_or(0, |it| it.len());
    while states().await < UNITS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Measures a program that is run repeatedly.
fn program(figure: &str, program: impl Fn() -> Command) {
    let mut times = Vec::new();
    let before = used_by_children();
    for _ in 0..RUNS {
        let begin = Instant::now();
        program().stdin(Stdio::null()).output().expect("the program runs");
        times.push(begin.elapsed());
    }
    report(figure, times, Some((used_by_children() - before) * 1000.0 / RUNS as f64));
}

/// Measures the requests of `list-units` in this process, over new connections.
async fn requests(at: &Endpoint) {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let (client, all) = (Client::new(at), StateFilter::default());
        let begin = Instant::now();
        let responses =
            futures_util::try_join!(client.units(), client.states(&all), client.machines());
        times.push(begin.elapsed());
        responses.expect("the daemon responds");
    }
    report("the requests of list-units", times, None);
}

/// Returns the CPU time of this process's reaped children, in seconds. The daemon still runs, so it
/// is not included. USER_HZ is 100 on Linux.
fn used_by_children() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(13) + ticks(14)) / 100.0
}

fn report(figure: &str, mut times: Vec<Duration>, used: Option<f64>) {
    times.sort();
    let millis = |time: Duration| round(time.as_secs_f64() * 1000.0);
    let line = serde_json::json!({
        "figure": figure, "median_ms": millis(times[times.len() / 2]), "least_ms": millis(times[0]),
        "processor_ms": used.map(round),
    });
    // A closed standard output must not end the benchmark.
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

//! Measures speed and cost of a cluster on one machine, from a PUT to a running process.
//!
//! `cargo bench -p fleet-bin --bench cluster` starts the release daemon in its own directory and
//! prints one JSON line per figure. Each line also has the cost of the same work without fleet,
//! from the same run: spawning the processes, or doing nothing.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::panicking;
use std::time::{Duration, Instant};

use fleet_core::TargetState;
use fleet_http::client::{PutOutcome, StateFilter, UnitUpload};
use fleet_http::{Client, Endpoint};
use fleet_unitfile::{UnitFile, UnitName};
use rustix::process::{Pid, Signal, kill_process};

/// Number of single units measured.
const SINGLES: usize = 40;

/// Number of units started at once.
const UNITS: usize = 300;

/// Number of units during the list measurement.
const LISTED: usize = 1000;

/// Duration of the idle measurement.
const IDLE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    // `cargo test` runs this only to check that it builds.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory for the cluster");
    let daemon = Daemon::start(home.path()); // dropped before its directory
    let endpoint = format!("unix://{}", home.path().join("fleet.sock").display());
    let client = Client::new(&endpoint.parse::<Endpoint>().expect("the endpoint is a URL"));
    wait_ready(&client).await;
    put_to_running(&client).await;
    many_units(&client).await;
    idle(daemon.0.id()).await;
    listing(&client).await;
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

async fn wait_ready(client: &Client) {
    while client.machines().await.map_or(0, |machines| machines.len()) < 3 {
        tokio::task::yield_now().await;
    }
}

/// Measures the time from PUT to `running` of one unit, and the spawn of its process.
async fn put_to_running(client: &Client) {
    let mut times = Vec::new();
    for number in 0..SINGLES {
        let name = name("single", number);
        let begin = Instant::now();
        put(client, &name, TargetState::Launched).await;
        while !is_running(client, &name).await {
            tokio::task::yield_now().await;
        }
        times.push(begin.elapsed());
    }
    times.sort();
    let floor = spawn_all(1);
    report("put_to_running_median_ms", millis(times[SINGLES / 2]), millis(floor));
    report("put_to_running_p95_ms", millis(times[SINGLES * 95 / 100]), millis(floor));
}

/// Measures the time until sequentially PUT units all run, and the spawn of as many processes.
async fn many_units(client: &Client) {
    let begin = Instant::now();
    for number in 0..UNITS {
        put(client, &name("many", number), TargetState::Launched).await;
    }
    while running(client, "many").await < UNITS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = begin.elapsed();
    report("put_300_units_s", took.as_secs_f64(), spawn_all(UNITS).as_secs_f64());
}

/// Measures the idle daemon.
async fn idle(daemon: u32) {
    tokio::time::sleep(Duration::from_secs(2)).await; // settles first
    let before = cpu_seconds(daemon);
    tokio::time::sleep(IDLE).await;
    let share = (cpu_seconds(daemon) - before) / IDLE.as_secs_f64() * 100.0;
    report("idle_cpu_percent", share, 0.0);
    report("idle_rss_mb", resident_mb(daemon), resident_mb(std::process::id()));
}

/// Measures reading all pages of `GET /units`.
async fn listing(client: &Client) {
    for number in 0..LISTED - UNITS - SINGLES {
        put(client, &name("listed", number), TargetState::Inactive).await;
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        let begin = Instant::now();
        let units = client.units().await.expect("units are listed");
        times.push(begin.elapsed());
        assert_eq!(units.len(), LISTED);
    }
    times.sort();
    let begin = Instant::now();
    client.version().await.expect("the daemon responds");
    report("list_1000_units_median_ms", millis(times[times.len() / 2]), millis(begin.elapsed()));
}

async fn put(client: &Client, name: &UnitName, desired: TargetState) {
    let file = UnitFile::parse("[Service]\nExecStart=/bin/sleep infinity\n")
        .expect("the unit file is valid");
    let upload = UnitUpload::new(file).with_desired(desired).with_create_only(true);
    let outcome = client.put_unit(name, &upload).await.expect("the daemon accepts the unit");
    assert_eq!(outcome, PutOutcome::Created);
}

async fn is_running(client: &Client, name: &UnitName) -> bool {
    let filter = StateFilter::default().with_unit(name.as_str());
    let states = client.states(&filter).await.expect("states are listed");
    states.iter().any(|state| state.systemd_sub_state == "running")
}

async fn running(client: &Client, prefix: &str) -> usize {
    let states = client.states(&StateFilter::default()).await.expect("states are listed");
    let ours = states.iter().filter(|state| state.name.starts_with(prefix));
    ours.filter(|state| state.systemd_sub_state == "running").count()
}

/// Returns the time to spawn the same processes without fleet.
fn spawn_all(count: usize) -> Duration {
    let begin = Instant::now();
    let spawn = |_| Command::new("/bin/sleep").arg("infinity").spawn().expect("sleep is installed");
    let mut children: Vec<Child> = (0..count).map(spawn).collect();
    let took = begin.elapsed();
    for child in &mut children {
        child.kill().and_then(|()| child.wait()).expect("a child of this process");
    }
    took
}

fn name(stem: &str, number: usize) -> UnitName {
    UnitName::parse(&format!("{stem}-{number}.service")).expect("the name is valid")
}

/// Returns the CPU time that a process has used. USER_HZ is 100 on Linux.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) / 100.0
}

fn resident_mb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("the status has VmRSS");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok());
    kib.expect("a number of KiB") / 1024.0
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn report(figure: &str, value: f64, without_fleet: f64) {
    let line = serde_json::json!({
        "figure": figure, "value": round(value), "without_fleet": round(without_fleet),
    });
    // A closed standard output must not end the benchmark.
    let _unread = writeln!(std::io::stdout(), "{line}").is_err();
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

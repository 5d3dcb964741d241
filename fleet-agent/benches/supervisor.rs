//! Costs of supervising the units of a graph.
//!
//! `cargo bench -p fleet-agent --bench supervisor` prints one JSON line per figure:
//!
//! - `oneshots`: time for a thousand oneshots of `/bin/true`, and for a bare loop that spawns as
//!   many
//! - `memory`: memory of five hundred running units
//! - `crashes`: time from the exit of a process to the start of the next one
//! - `asks`: time to start and stop a unit without processes, among many loaded units
//! - `ends`: shutdown of all units of fleet, and the time until the first one is stopped
//! - `unloads`: unloading many units at once, running ones and others
//!
//! The names given as arguments select figures. The first three are measured with control groups,
//! if possible, and without.
//!
//! Oneshots also report CPU time, of this process and including its children; on a busy machine
//! these are the comparable figures. Supervisor and bare loop use as many threads as there are
//! processors, as the programs do. Each unit has a log file, and file systems create files many
//! times slower if others were removed in the seconds before. `TMPDIR` can name a directory without
//! such activity.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet_agent::native::{InitSupervisor, SupervisorConfig};
use fleet_agent::{NativeConfig, NativeManager, ServiceManager};
use fleet_core::graph::format::read_stanzas;
use fleet_core::graph::{Graph, Settings, Timeouts};
use fleet_core::{ActiveState, Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::ClockId;
use tempfile::TempDir;
use tokio::task::JoinSet;

const ONESHOTS: usize = 1000;
const AT_ONCE: u32 = 16;
const ROUNDS: usize = 7;
const UNITS: usize = 500;
const CRASHES: usize = 50;
const ASKS: u64 = 200;

#[tokio::main]
async fn main() {
    // cargo also builds this as a test, where there is nothing to measure.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let figures: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let wanted = |figure: &str| figures.is_empty() || figures.iter().any(|it| it == figure);
    // Kept until all is measured, so that no file is removed meanwhile.
    let mut homes = Vec::new();
    for groups in [true, false] {
        if wanted("memory") {
            memory(groups).await;
        }
        if wanted("oneshots") {
            oneshots(groups, &mut homes).await;
        }
        if wanted("crashes") {
            crashes(groups).await;
        }
    }
    for loaded in [1000, 10_000] {
        if wanted("asks") {
            asks(loaded).await;
        }
    }
    if wanted("ends") {
        ends().await;
    }
    if wanted("unloads") {
        for (many, run) in [(UNITS, true), (UNITS, false), (4 * UNITS, false)] {
            unloads(many, run).await;
        }
    }
}

/// Measured seconds: wall clock, CPU time of this process, and CPU time including its children.
type Taken = [f64; 3];

async fn taken(what: impl Future<Output = ()>) -> Taken {
    let before = used();
    what.await;
    let after = used();
    std::array::from_fn(|at| after[at] - before[at])
}

fn used() -> Taken {
    let seconds = |clock| {
        let now = rustix::time::clock_gettime(clock);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
            .as_secs_f64()
    };
    let own = seconds(ClockId::ProcessCPUTime);
    let stat = std::fs::read_to_string("/proc/self/stat").expect("there is one");
    let (_, fields) = stat.rsplit_once(") ").expect("the name is in brackets");
    // CPU time of reaped children in user and kernel mode, in hundredths of a second.
    let children = fields.split(' ').skip(13).take(2);
    let children: f64 = children.map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
    [seconds(ClockId::Monotonic), own, own + children / 100.0]
}

/// Spawns and reaps as many processes concurrently, on all threads.
async fn bare_loop() {
    let mut running = JoinSet::new();
    for _ in 0..ONESHOTS {
        if running.len() >= AT_ONCE as usize {
            running.join_next().await;
        }
        running.spawn(async {
            let child = tokio::process::Command::new("/bin/true").stdin(Stdio::null()).spawn();
            child.expect("there is /bin/true").wait().await.expect("it is a child")
        });
    }
    while running.join_next().await.is_some() {}
}

/// Measures both in turns, so that other load affects both, and prints the medians.
async fn oneshots(groups: bool, homes: &mut Vec<TempDir>) {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let home = tempfile::tempdir().expect("a directory can be made");
        bare.push(taken(bare_loop()).await);
        ours.push(all_oneshots(home.path(), groups).await);
        homes.push(home);
    }
    for (at, what) in ["clock", "own", "processor"].into_iter().enumerate() {
        let (ours, bare) = (median(&ours, at), median(&bare, at));
        print(&format!(
            "{{\"figure\":\"oneshots\",\"groups\":{groups},\"units\":{ONESHOTS},\
             \"at_once\":{AT_ONCE},\"of\":\"{what}\",\"seconds\":{ours:.3},\
             \"bare_seconds\":{bare:.3},\"ratio\":{:.2}}}",
            ours / bare
        ));
    }
}

fn median(all: &[Taken], at: usize) -> f64 {
    let mut all: Vec<f64> = all.iter().map(|taken| taken[at]).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

async fn all_oneshots(home: &Path, groups: bool) -> Taken {
    let done = home.join("done");
    let names: Vec<String> = (0..ONESHOTS).map(|number| format!("u{number}")).collect();
    let units: String = names
        .iter()
        .map(|name| {
            format!("unit: {name}\ntype: oneshot\nprovides: {name}\nexec-start: /bin/true\n")
        })
        .collect();
    let last = format!(
        "unit: all\ntype: oneshot\nprovides: all\nwaits-for: {}\nexec-start: /bin/touch {}\n",
        names.join(", "),
        done.display()
    );
    let graph = graph(&(units + &last));
    let mut supervisor = None;
    let taken = taken(async {
        supervisor = Some(open(home, groups, graph).await);
        while !done.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let taken = taken.await;
    if let Some(supervisor) = supervisor {
        supervisor.shutdown().await.expect("all end");
    }
    taken
}

async fn memory(groups: bool) {
    let home = tempfile::tempdir().expect("a directory can be made");
    let names: Vec<String> = (0..UNITS).map(|number| format!("u{number}")).collect();
    let units = names.iter().map(|name| sleeper(name)).collect::<String>();
    let all = format!("unit: all\ntype: virtual\nprovides: all\nwaits-for: {}\n", names.join(", "));
    let before = resident();
    let supervisor = open(home.path(), groups, graph(&(units + &all))).await;
    while running(&supervisor).await < UNITS {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after = resident();
    print(&format!(
        "{{\"figure\":\"memory\",\"groups\":{groups},\"units\":{UNITS},\"rss_mb\":{after:.1},\
         \"before_mb\":{before:.1}}}"
    ));
    supervisor.shutdown().await.expect("all end");
}

/// Returns the number of units with a main process.
async fn running(supervisor: &InitSupervisor) -> usize {
    let snapshot = supervisor.snapshot().await.expect("the call succeeds");
    snapshot.units.iter().filter(|unit| unit.main_pid.is_some()).count()
}

async fn crashes(groups: bool) {
    let home = tempfile::tempdir().expect("a directory can be made");
    let unit = sleeper("all") + "restart-delay: 0\nrestart-max-delay: 0\n";
    let supervisor = open(home.path(), groups, graph(&unit)).await;
    let mut pid = next_main(&supervisor, None).await;
    let mut times = Vec::new();
    for _ in 0..CRASHES {
        let begin = Instant::now();
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("it is one");
        kill_process(process, Signal::KILL).expect("it runs");
        pid = next_main(&supervisor, Some(pid)).await;
        times.push(begin.elapsed());
    }
    times.sort();
    print(&format!(
        "{{\"figure\":\"crash_to_restart\",\"groups\":{groups},\"median_us\":{},\"worst_us\":{}}}",
        times[CRASHES / 2].as_micros(),
        times[CRASHES - 1].as_micros()
    ));
    supervisor.shutdown().await.expect("all end");
}

async fn asks(loaded: usize) {
    let home = tempfile::tempdir().expect("a directory can be made");
    let nothing = "[Unit]\nDescription=one of many\n";
    let (manager, names) = services(home.path(), loaded, "target", nothing).await;
    let both = async |generation: u64| {
        manager.start(&names[0], Generation(generation)).await.expect("it starts");
        manager.stop(&names[0]).await.expect("it stops");
    };
    both(0).await;
    let taken = taken(async {
        for generation in 1..=ASKS {
            both(generation).await;
        }
    });
    let [clock, own, _] = taken.await.map(|seconds| seconds * 1e6 / ASKS as f64);
    print(&format!(
        "{{\"figure\":\"asks\",\"loaded\":{loaded},\"clock_us\":{clock:.0},\"own_us\":{own:.0}}}"
    ));
}

const SERVICE: &str = "[Service]\nExecStart=/bin/sleep 1000\n";

async fn ends() {
    let home = tempfile::tempdir().expect("a directory can be made");
    let (manager, names) = services(home.path(), UNITS, "service", SERVICE).await;
    start_all(&manager, &names).await;
    let mut changes = manager.changes();
    let begin = Instant::now();
    let first = async {
        loop {
            for unit in changes.next().await {
                let seen = manager.get(&unit).await.expect("the call succeeds");
                if seen.is_some_and(|it| it.state.active != ActiveState::Active) {
                    return begin.elapsed();
                }
            }
        }
    };
    let (ended, first) = tokio::join!(manager.shutdown(), first);
    ended.expect("all end");
    print(&format!(
        "{{\"figure\":\"ends\",\"units\":{UNITS},\"first_ms\":{:.1},\"all_ms\":{:.1}}}",
        first.as_secs_f64() * 1e3,
        begin.elapsed().as_secs_f64() * 1e3
    ));
}

async fn unloads(many: usize, run: bool) {
    let home = tempfile::tempdir().expect("a directory can be made");
    let (manager, names) = services(home.path(), many, "service", SERVICE).await;
    if run {
        start_all(&manager, &names).await;
    }
    let taken = taken(async {
        for unloaded in join_all(names.iter().map(|name| manager.unload(name))).await {
            unloaded.expect("it is unloaded");
        }
    });
    let [clock, own, _] = taken.await.map(|seconds| seconds * 1e3);
    print(&format!(
        "{{\"figure\":\"unloads\",\"units\":{many},\"run\":{run},\"clock_ms\":{clock:.0},\
         \"own_ms\":{own:.0}}}"
    ));
}

/// Opens a manager with this many units of a type, all with the same file.
async fn services(
    home: &Path,
    many: usize,
    kind: &str,
    text: &str,
) -> (Arc<NativeManager>, Vec<UnitName>) {
    let manager = NativeManager::open(NativeConfig::new(home.join("native"))).await;
    let manager = manager.expect("it opens");
    let file = UnitFile::parse(text).expect("it is well formed");
    let names = (0..many).map(|at| UnitName::parse(&format!("u{at}.{kind}")));
    let names: Vec<UnitName> = names.map(|name| name.expect("it is a name")).collect();
    for name in &names {
        manager.load(name, &file, Epoch(1)).await.expect("it can be loaded");
    }
    (manager, names)
}

async fn start_all(manager: &NativeManager, names: &[UnitName]) {
    let starts = names.iter().map(|name| manager.start(name, Generation(1)));
    for started in join_all(starts).await {
        started.expect("it starts");
    }
}

/// Waits until the unit has another main process, and returns it.
async fn next_main(supervisor: &InitSupervisor, before: Option<u32>) -> u32 {
    let mut changes = supervisor.changes();
    loop {
        let snapshot = supervisor.snapshot().await.expect("the call succeeds");
        let pid = snapshot.units.iter().find_map(|unit| unit.main_pid);
        if let Some(pid) = pid.filter(|pid| Some(*pid) != before) {
            return pid;
        }
        changes.changed().await.expect("it runs");
    }
}

fn sleeper(name: &str) -> String {
    format!(
        "unit: {name}\ntype: foreground-supervised\nprovides: {name}\nexec-start: /bin/sleep 1000\n"
    )
}

fn graph(stanzas: &str) -> Graph {
    let read = read_stanzas(stanzas.as_bytes(), &Timeouts::default());
    let units = read.stanzas.into_iter().map(|stanza| stanza.unit.expect("it is well formed"));
    Graph::strict(units, &Settings::default()).expect("the units form a graph")
}

async fn open(home: &Path, groups: bool, graph: Graph) -> InitSupervisor {
    let mut config = SupervisorConfig::new(home);
    config.control_groups = groups;
    let settings = Settings {
        goal: Some("all".parse().expect("it is a name")),
        max_starting: std::num::NonZeroU32::new(AT_ONCE),
        ..Settings::default()
    };
    InitSupervisor::start(config, graph, &settings).await.expect("it starts")
}

/// Returns the resident memory of this process, in megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}

fn print(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("the output can be written");
}

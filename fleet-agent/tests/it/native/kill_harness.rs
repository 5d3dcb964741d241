//! A daemon in its own process, which is killed at random times, or at a point that the test
//! chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{marked, wait_until};

/// Directory of the daemon to kill; set for its process only.
const PLACE: &str = "FLEET_TEST_KILLED_DAEMON";
/// Seed of its random choices.
const SEED: &str = "FLEET_TEST_SEED";
/// Set if it must not use control groups.
const PLAIN: &str = "FLEET_TEST_PLAIN";

/// Number of kills per test. `FLEET_KILLS` overrides it, and `FLEET_FEWER_CASES=10` leaves a tenth.
const KILLS: u64 = 100;

/// Pseudorandom small numbers, determined by a seed.
pub(super) struct SmallRng(pub(super) u64);

impl SmallRng {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// Configuration of a daemon to kill.
pub(super) struct KilledDaemonConfig {
    pub(super) home: PathBuf,
    pub(super) seed: u64,
    pub(super) plain: bool,
}

impl KilledDaemonConfig {
    /// Returns the configuration of this process, if it is such a daemon.
    pub(super) fn from_env() -> Option<Self> {
        let home = PathBuf::from(std::env::var_os(PLACE)?);
        let seed = std::env::var(SEED).expect("it is set").parse().expect("a number");
        // The reason for a failed recovery is only logged.
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR);
        log.with_writer(std::io::stderr).init();
        Some(Self { home, seed, plain: std::env::var_os(PLAIN).is_some() })
    }

    /// Announces that the recovery begins.
    pub(super) fn begins(&self) {
        self.tell("begins");
    }

    /// Announces that the recovery is finished and verified.
    pub(super) fn is_open(&self) {
        self.tell("open");
    }

    fn tell(&self, what: &str) {
        let path = self.home.join(format!("{what}-{}", self.seed));
        std::fs::write(path, "").expect("it can be written");
    }
}

/// Repeatedly starts this test as a daemon, kills it, and checks its leftovers.
pub(super) async fn kill_repeatedly(test: &str, home: &Path, plain: bool) {
    let number = |name| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
    };
    let fewer = KILLS / number("FLEET_FEWER_CASES").unwrap_or(1);
    for seed in 1..=number("FLEET_KILLS").unwrap_or(fewer) {
        let mut daemon = begin(test, &KilledDaemonConfig { home: home.to_owned(), seed, plain });
        wait_for_random_time(&mut daemon, home, seed).await;
        drop(daemon);
        for (unit, runs) in runs_of_units(home) {
            assert!(runs.len() <= 1, "{unit} runs twice after {seed} kills: {runs:?}");
        }
    }
}

/// Starts this test as a daemon.
pub(super) fn begin(test: &str, setup: &KilledDaemonConfig) -> Daemon {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command
        .args(["--exact", "--nocapture", test])
        .env(PLACE, &setup.home)
        .env(SEED, setup.seed.to_string())
        .stdout(Stdio::null());
    if setup.plain {
        command.env(PLAIN, "");
    }
    Daemon(command.spawn().expect("the test can run itself"))
}

/// The process, which is killed when dropped.
pub(super) struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it can be killed");
    }
}

impl Daemon {
    /// Waits for a condition while the process runs.
    pub(super) async fn wait_until(&mut self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        wait_until(what, async || {
            // The process may exit right after the condition holds.
            let ended = self.0.try_wait().expect("it is a child");
            let is_so = so().await;
            assert!(is_so || ended.is_none(), "it exited before {what}: its findings are above");
            is_so
        })
        .await;
    }

    /// Waits until the process exits.
    pub(super) async fn wait_for_end(&mut self) {
        wait_until("the daemon ends", async || self.0.try_wait().expect("it is a child").is_some())
            .await;
    }
}

/// Lets the process run: every third one until it begins its recovery, the others for a while after
/// it.
async fn wait_for_random_time(daemon: &mut Daemon, home: &Path, seed: u64) {
    let (what, most) = if seed.is_multiple_of(3) { ("begins", 30_000) } else { ("open", 60_000) };
    let path = home.join(format!("{what}-{seed}"));
    daemon.wait_until(&format!("{seed} kills are done"), async || path.exists()).await;
    // Not a wait for an event, but the random time of the kill.
    tokio::time::sleep(Duration::from_micros(SmallRng(seed).below(most))).await;
}

/// Process ID of a unit's process, and its invocation ID if known.
pub(super) type Found = (u32, Option<String>);

/// Pauses between two polls that have their own deadline, or end with the kill.
pub(super) async fn wait_between_looks() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Returns the invocation IDs of each unit that has processes.
pub(super) fn runs_of_units(home: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let runs = |found: Vec<Found>| found.into_iter().filter_map(|(_, run)| run).collect();
    processes_of_units(home).into_iter().map(|(unit, found)| (unit, runs(found))).collect()
}

/// Returns the processes of all units that carry the name of their unit.
pub(super) fn processes_of_units(home: &Path) -> BTreeMap<String, Vec<Found>> {
    let mut all: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for pid in marked(home) {
        let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = |name: &str| {
            let mut variables = text.split('\0').filter_map(|it| it.split_once('='));
            variables.find(|it| it.0 == name).map(|it| it.1.to_owned())
        };
        // The environment of an exiting process disappears gradually.
        let run = value("INVOCATION_ID").filter(|run| run.len() == 32);
        if let Some(unit) = value("UNIT") {
            all.entry(unit).or_default().push((pid, run));
        }
    }
    all
}

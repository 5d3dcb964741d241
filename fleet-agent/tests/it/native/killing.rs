//! A daemon in a process of its own, which is killed: again and again at moments that nobody chose,
//! or when a test has it where it wants it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{marked, wait_until};

/// Where the daemon that is to be killed works; set for its process alone.
const PLACE: &str = "FLEET_TEST_KILLED_DAEMON";
/// What its choices are made from.
const SEED: &str = "FLEET_TEST_SEED";
/// Set if it shall make no control groups.
const PLAIN: &str = "FLEET_TEST_PLAIN";

/// How often the daemon is killed in each test; `FLEET_KILLS` may ask for more.
const KILLS: u64 = 100;

/// Small numbers that look random; the same seed gives the same.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}

/// What a daemon that is to be killed is told.
pub(super) struct Victim {
    pub(super) home: PathBuf,
    pub(super) seed: u64,
    pub(super) plain: bool,
}

impl Victim {
    /// What this process is told, if it is one.
    pub(super) fn told() -> Option<Self> {
        let home = PathBuf::from(std::env::var_os(PLACE)?);
        let seed = std::env::var(SEED).expect("it is set").parse().expect("a number");
        // Why a unit is not taken back is told there alone.
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR);
        log.with_writer(std::io::stderr).init();
        Some(Self { home, seed, plain: std::env::var_os(PLAIN).is_some() })
    }

    /// It is about to take back what the one before has left.
    pub(super) fn begins(&self) {
        self.tell("begins");
    }

    /// It has taken all back, and found it as it should be.
    pub(super) fn is_open(&self) {
        self.tell("open");
    }

    fn tell(&self, what: &str) {
        let path = self.home.join(format!("{what}-{}", self.seed));
        std::fs::write(path, "").expect("it can be written");
    }
}

/// Lets that test of this program be a daemon, kills it, and looks at what is left; so often.
pub(super) async fn kill_again_and_again(test: &str, home: &Path, plain: bool) {
    let asked = std::env::var("FLEET_KILLS").ok();
    let asked = asked.map_or(KILLS, |text| text.parse().expect("FLEET_KILLS is a number"));
    for seed in 1..=asked.max(KILLS) {
        let mut daemon = begin(test, &Victim { home: home.to_owned(), seed, plain });
        wait_for_a_moment(&mut daemon, home, seed).await;
        drop(daemon);
        for (unit, runs) in runs_of_units(home) {
            assert!(runs.len() <= 1, "{unit} runs twice after {seed} kills: {runs:?}");
        }
    }
}

/// Lets that test of this program be a daemon.
pub(super) fn begin(test: &str, told: &Victim) -> Daemon {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command
        .args(["--exact", "--nocapture", test])
        .env(PLACE, &told.home)
        .env(SEED, told.seed.to_string())
        .stdout(Stdio::null());
    if told.plain {
        command.env(PLAIN, "");
    }
    Daemon(command.spawn().expect("the test can run itself"))
}

/// The process, which is killed whatever becomes of the test.
pub(super) struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it can be killed");
    }
}

impl Daemon {
    /// Waits until something is so, as long as it lives.
    pub(super) async fn wait_until(&mut self, what: &str, mut so: impl AsyncFnMut() -> bool) {
        wait_until(what, async || {
            // It may end right after it was so.
            let ended = self.0.try_wait().expect("it is a child");
            let is_so = so().await;
            assert!(is_so || ended.is_none(), "it has ended before {what}: what it found is above");
            is_so
        })
        .await;
    }

    /// Waits for it to end by itself.
    pub(super) async fn wait_for_end(&mut self) {
        wait_until("the daemon ends", async || self.0.try_wait().expect("it is a child").is_some())
            .await;
    }
}

/// Lets it live for a while: each third until it takes back what it finds, the others for a while
/// after that.
async fn wait_for_a_moment(daemon: &mut Daemon, home: &Path, seed: u64) {
    let (what, most) = if seed.is_multiple_of(3) { ("begins", 30_000) } else { ("open", 60_000) };
    let path = home.join(format!("{what}-{seed}"));
    daemon.wait_until(&format!("{seed} kills are done"), async || path.exists()).await;
    // Nothing is waited for: this is the choice of the moment in which it is killed.
    tokio::time::sleep(Duration::from_micros(Dice(seed).below(most))).await;
}

/// The number of a process of a unit, and the run that it is of, if it tells.
pub(super) type Found = (u32, Option<String>);

/// Between two looks at what has a deadline of its own, or goes on until the kill.
pub(super) async fn wait_between_looks() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// The runs of each unit that have processes.
pub(super) fn runs_of_units(home: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let runs = |found: Vec<Found>| found.into_iter().filter_map(|(_, run)| run).collect();
    processes_of_units(home).into_iter().map(|(unit, found)| (unit, runs(found))).collect()
}

/// The processes of all units that say which they are of.
pub(super) fn processes_of_units(home: &Path) -> BTreeMap<String, Vec<Found>> {
    let mut all: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for pid in marked(home) {
        let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let value = |name: &str| {
            let mut variables = text.split('\0').filter_map(|it| it.split_once('='));
            variables.find(|it| it.0 == name).map(|it| it.1.to_owned())
        };
        // What a process was given is gone piece by piece while it ends.
        let run = value("INVOCATION_ID").filter(|run| run.len() == 32);
        if let Some(unit) = value("UNIT") {
            all.entry(unit).or_default().push((pid, run));
        }
    }
    all
}

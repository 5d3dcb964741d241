//! Random kills, pauses and disconnections of members during writes and watches. All results and
//! delivered changes must be consistent with one history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{Commit, Condition, EtcdConfig, EtcdStore, Store as _, StoreError, Transaction};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::history::{Attempt, History, Steps, WatchLog, WriteResult, step};
use crate::link::{Link, LinkMode};
use crate::support::{put, soon};

const WRITERS: u64 = 4;
const WATCHERS: u64 = 3;
/// Number of acknowledged writes during a fault before it ends.
const PROGRESS: u64 = 150;
/// Default number of consecutive faults.
const ROUNDS: u64 = 14;
const LIMIT: Duration = Duration::from_secs(1);
/// Key of the last write.
const LAST: &str = "last";

/// A fault of a member, or of the link to it.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Pause,
    LinkMode(LinkMode),
}

const FAULTS: [Fault; 5] = [
    Fault::Kill,
    Fault::Pause,
    Fault::LinkMode(LinkMode::HoldAll),
    Fault::LinkMode(LinkMode::HoldResponses),
    Fault::LinkMode(LinkMode::Cut),
];

/// `FLEET_ETCD_SEED` repeats the faults of a seed, and `FLEET_ETCD_ROUNDS` sets their number.
// Holds: I-6, I-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn member_faults_lose_no_write_and_no_change() {
    let seed = number("FLEET_ETCD_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds = number("FLEET_ETCD_ROUNDS").unwrap_or(ROUNDS);
    let mut story = Vec::new();
    let field = Field::prepare().await;
    let (contradictions, count) = field.run(seed, rounds, &mut story).await;
    let again = format!("FLEET_ETCD_SEED={seed} FLEET_ETCD_ROUNDS={rounds}: {story:?}");
    assert!(contradictions.is_empty(), "{again}\n{}", contradictions.join("\n"));
    // Otherwise the faults had no effect.
    assert!(count.done > rounds * PROGRESS && count.unknown > 0, "{count:?}\n{again}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Number of writes by result.
#[derive(Debug, Default)]
struct Count {
    done: u64,
    not_done: u64,
    unknown: u64,
}

struct Field {
    cluster: Cluster,
    links: Vec<Link>,
    start: Revision,
    acknowledged: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
}

impl Field {
    async fn prepare() -> Self {
        let cluster = Cluster::three_secure().await;
        let mut links = Vec::new();
        for url in cluster.urls() {
            links.push(Link::to(&url).await);
        }
        let start = put(&cluster.store("test/"), "first", "").await;
        let stop = watch::Sender::new(false);
        Self { cluster, links, start, acknowledged: Arc::default(), stop }
    }

    async fn run(
        mut self,
        seed: u64,
        rounds: u64,
        story: &mut Vec<(usize, Fault)>,
    ) -> (Vec<String>, Count) {
        let watchers: Vec<_> = (0..WATCHERS).map(|i| self.watcher(i)).collect();
        let writers: Vec<_> = (0..WRITERS).map(|i| self.writer(i)).collect();
        let mut chance = Rng(seed);
        for _ in 0..rounds {
            let member = chance.below(self.links.len());
            let fault = FAULTS[chance.below(FAULTS.len())];
            story.push((member, fault));
            self.round(member, fault).await;
        }
        self.stop.send_replace(true);
        let mut history = History::default();
        for writer in writers {
            history.attempts.extend(soon(writer).await.unwrap());
        }
        let last = put(&self.cluster.store("test/"), LAST, "").await;
        for watcher in watchers {
            history.watch_logs.extend(soon(watcher).await.unwrap());
        }
        let truth = self.truth(last).await;
        (history.contradictions(&truth), count(&history))
    }

    /// Causes a fault, waits for progress, ends the fault, and waits for progress again.
    async fn round(&mut self, member: usize, fault: Fault) {
        match fault {
            Fault::Kill => self.cluster.kill_member(member),
            Fault::Pause => self.cluster.pause_member(member),
            Fault::LinkMode(way) => self.links[member].set(way),
        }
        self.wait_for_progress().await;
        match fault {
            Fault::Kill => self.cluster.start_member(member),
            Fault::Pause => self.cluster.resume_member(member),
            Fault::LinkMode(_) => self.links[member].set(LinkMode::Open),
        }
        assert!(self.cluster.wait_until_ready().await, "a member has ended by itself");
        self.wait_for_progress().await;
    }

    async fn wait_for_progress(&self) {
        let enough = self.acknowledged.load(Ordering::SeqCst) + PROGRESS;
        let progress = async {
            while self.acknowledged.load(Ordering::SeqCst) < enough {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(progress).await;
    }

    /// A store with its own order of the members.
    fn store(&self, number: u64) -> EtcdStore {
        let endpoints = self.links.iter().map(|link| link.url().to_owned()).collect();
        let (spread, time_limit) = (Some(number), LIMIT);
        let config = self.cluster.config("test/");
        EtcdStore::new(&EtcdConfig { endpoints, shuffle_seed: spread, time_limit, ..config })
            .unwrap()
    }

    fn writer(&self, number: u64) -> JoinHandle<Vec<Attempt>> {
        let store = self.store(number);
        let writer = Writer {
            store,
            key: format!("w{number}/value"),
            copy: format!("w{number}/copy"),
            known: None,
            acknowledged: self.acknowledged.clone(),
        };
        tokio::spawn(writer.run(self.stop.subscribe()))
    }

    fn watcher(&self, number: u64) -> JoinHandle<Vec<WatchLog>> {
        tokio::spawn(watch_on(self.store(number)))
    }

    /// Reads the whole history from the healed cluster.
    async fn truth(&self, last: Revision) -> Steps {
        let store = self.cluster.store("test/");
        let mut watch = store.watch("", Revision(self.start.0 - 1)).await.unwrap();
        let mut truth = Steps::new();
        while !truth.contains_key(&last) {
            let changes = soon(watch.next()).await.unwrap();
            truth.insert(changes.revision, step(&changes));
        }
        let state = WatchLog { listing: store.read("").await.unwrap(), changes: Vec::new() };
        let whole = History { watch_logs: vec![state], ..History::default() };
        assert_eq!(whole.contradictions(&truth), [""; 0], "the store contradicts itself");
        truth
    }
}

/// Writes a sequence of values, each on condition that the previous one is unchanged.
struct Writer {
    store: EtcdStore,
    key: String,
    copy: String,
    /// Revision of the current value.
    known: Option<Revision>,
    acknowledged: Arc<AtomicU64>,
}

impl Writer {
    async fn run(mut self, stop: watch::Receiver<bool>) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        for number in 0_u64.. {
            if *stop.borrow() {
                break;
            }
            let value = number.to_string();
            let result = self.write(&value, number % 3 == 0).await;
            attempts.push(Attempt { key: self.key.clone(), value, result });
        }
        attempts
    }

    async fn write(&mut self, value: &str, forget: bool) -> WriteResult {
        let expected = match self.known {
            Some(revision) => Condition::modified_at(&self.key, revision),
            None => Condition::absent(&self.key),
        };
        let transaction = Transaction::new().when(expected).put(&self.key, value);
        let transaction = if forget {
            transaction.delete(&self.copy)
        } else {
            transaction.put(&self.copy, value)
        };
        match self.store.commit(transaction).await {
            Ok(Commit::Applied(revision)) => {
                self.known = Some(revision);
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
                WriteResult::Done(revision)
            }
            Ok(Commit::Refused { found, .. }) => {
                self.known = found.map(|entry| entry.modified);
                WriteResult::NotDone
            }
            Err(StoreError::Unavailable(_)) => WriteResult::NotDone,
            Err(StoreError::Unknown(_)) => WriteResult::Unknown,
            Err(error) => panic!("a writer was count {error:?}"),
        }
    }
}

/// Watches until the last write, and restarts with a listing whenever the watch is lost.
async fn watch_on(store: EtcdStore) -> Vec<WatchLog> {
    let mut all = Vec::new();
    loop {
        let Ok(listing) = store.read("").await else { continue };
        let Ok(mut watch) = store.watch("", listing.revision).await else { continue };
        let mut done = listing.entries.iter().any(|entry| entry.key == LAST);
        let mut changes = Vec::new();
        while !done {
            match watch.next().await {
                Ok(next) => {
                    done = next.changes.iter().any(|change| &*change.key == LAST);
                    changes.push(next);
                }
                Err(StoreError::WatchLost) => break,
                Err(error) => panic!("a watcher was count {error:?}"),
            }
        }
        all.push(WatchLog { listing, changes });
        if done {
            return all;
        }
    }
}

fn count(history: &History) -> Count {
    let mut count = Count::default();
    for attempt in &history.attempts {
        match attempt.result {
            WriteResult::Done(_) => count.done += 1,
            WriteResult::NotDone => count.not_done += 1,
            WriteResult::Unknown => count.unknown += 1,
        }
    }
    count
}

/// Random numbers from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let limit = u64::try_from(limit).unwrap();
        usize::try_from((mixed ^ (mixed >> 31)) % limit).unwrap()
    }
}

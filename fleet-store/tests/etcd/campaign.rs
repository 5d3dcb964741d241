//! Members are killed, paused and cut off at random while writers and watchers run, and all that
//! they were told and saw must be true of one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{Commit, Condition, EtcdConfig, EtcdStore, Store as _, StoreError, Transaction};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::history::{Attempt, History, Seen, Steps, Told, step};
use crate::link::{Link, Way};
use crate::support::{put, soon};

const WRITERS: u64 = 4;
const WATCHERS: u64 = 3;
/// How many writes are acknowledged in the middle of a fault before it is healed.
const PROGRESS: u64 = 150;
/// Faults one after the other, unless told otherwise.
const ROUNDS: u64 = 14;
const LIMIT: Duration = Duration::from_secs(1);
/// The key that the last write of all has.
const LAST: &str = "last";

/// What befalls one member, or the way to it.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Pause,
    Way(Way),
}

const FAULTS: [Fault; 5] = [
    Fault::Kill,
    Fault::Pause,
    Fault::Way(Way::Silent),
    Fault::Way(Way::Mute),
    Fault::Way(Way::Cut),
];

/// `FLEET_ETCD_SEED` replays the faults of a seed, and `FLEET_ETCD_ROUNDS` says how many there are.
// Holds: I-6, I-24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test"]
async fn member_faults_lose_no_write_and_no_change() {
    let seed = number("FLEET_ETCD_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let rounds = number("FLEET_ETCD_ROUNDS").unwrap_or(ROUNDS);
    let mut story = Vec::new();
    let field = Field::prepare().await;
    let (contradictions, told) = field.run(seed, rounds, &mut story).await;
    let again = format!("FLEET_ETCD_SEED={seed} FLEET_ETCD_ROUNDS={rounds}: {story:?}");
    assert!(contradictions.is_empty(), "{again}\n{}", contradictions.join("\n"));
    // Or the faults did not bite.
    assert!(told.done > rounds * PROGRESS && told.unknown > 0, "{told:?}\n{again}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How many writes were told to have ended in each way.
#[derive(Debug, Default)]
struct Count {
    done: u64,
    undone: u64,
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
        let mut chance = Chance(seed);
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
            history.seen.extend(soon(watcher).await.unwrap());
        }
        let truth = self.truth(last).await;
        (history.contradictions(&truth), count(&history))
    }

    /// One fault, some progress in spite of it, its end, and some progress after it.
    async fn round(&mut self, member: usize, fault: Fault) {
        match fault {
            Fault::Kill => self.cluster.kill_member(member),
            Fault::Pause => self.cluster.pause_member(member),
            Fault::Way(way) => self.links[member].set(way),
        }
        self.wait_for_progress().await;
        match fault {
            Fault::Kill => self.cluster.start_member(member),
            Fault::Pause => self.cluster.resume_member(member),
            Fault::Way(_) => self.links[member].set(Way::Open),
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

    /// A store that prefers the members in an order of its own.
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

    fn watcher(&self, number: u64) -> JoinHandle<Vec<Seen>> {
        tokio::spawn(watch_on(self.store(number)))
    }

    /// All that happened, as the healed cluster tells it in one go.
    async fn truth(&self, last: Revision) -> Steps {
        let store = self.cluster.store("test/");
        let mut watch = store.watch("", Revision(self.start.0 - 1)).await.unwrap();
        let mut truth = Steps::new();
        while !truth.contains_key(&last) {
            let changes = soon(watch.next()).await.unwrap();
            truth.insert(changes.revision, step(&changes));
        }
        let state = Seen { listing: store.read("").await.unwrap(), changes: Vec::new() };
        let whole = History { seen: vec![state], ..History::default() };
        assert_eq!(whole.contradictions(&truth), [""; 0], "the store contradicts itself");
        truth
    }
}

/// Writes one value after the other, each on condition that the one before is still there.
struct Writer {
    store: EtcdStore,
    key: String,
    copy: String,
    /// The revision of the value that is there.
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
            let told = self.write(&value, number % 3 == 0).await;
            attempts.push(Attempt { key: self.key.clone(), value, told });
        }
        attempts
    }

    async fn write(&mut self, value: &str, forget: bool) -> Told {
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
                Told::Done(revision)
            }
            Ok(Commit::Refused { found, .. }) => {
                self.known = found.map(|entry| entry.modified);
                Told::Undone
            }
            Err(StoreError::Unavailable(_)) => Told::Undone,
            Err(StoreError::Unknown(_)) => Told::Unknown,
            Err(error) => panic!("a writer was told {error:?}"),
        }
    }
}

/// Watches until the last write, beginning with a listing whenever the watch is lost.
async fn watch_on(store: EtcdStore) -> Vec<Seen> {
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
                Err(error) => panic!("a watcher was told {error:?}"),
            }
        }
        all.push(Seen { listing, changes });
        if done {
            return all;
        }
    }
}

fn count(history: &History) -> Count {
    let mut count = Count::default();
    for attempt in &history.attempts {
        match attempt.told {
            Told::Done(_) => count.done += 1,
            Told::Undone => count.undone += 1,
            Told::Unknown => count.unknown += 1,
        }
    }
    count
}

/// Numbers that follow from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let limit = u64::try_from(limit).unwrap();
        usize::try_from((mixed ^ (mixed >> 31)) % limit).unwrap()
    }
}

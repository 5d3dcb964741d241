//! The embedded store in a process that is killed at random times.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fleet_store::{EmbeddedStore, Listing, Store, Transaction};

/// Number of kills.
const ROUNDS: u64 = 200;
/// Number of concurrent writers.
const WRITERS: u64 = 6;
/// Maximum time to write after the first acknowledgement.
const LONGEST: Duration = Duration::from_millis(25);

const CHILD: &str = "FLEET_STORE_TEST_PATH";
const SEED: &str = "FLEET_STORE_CRASH_SEED";

/// A process with concurrent writers prints each acknowledgement, and is killed at a random time.
/// For example, it is killed before its first output or while the file is being created. Each time
/// the file must open, contain all acknowledged writes, and contain no partial write.
// Holds: I-6
#[test]
fn every_acknowledged_write_survives_a_kill() {
    if let Ok(path) = std::env::var(CHILD) {
        return write_for_ever(Path::new(&path));
    }
    let seed = std::env::var(SEED).map_or_else(|_| seed(), |seed| seed.parse().unwrap());
    let mut chance = Rng(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut path = folder.path().join("0.redb");
    let mut acknowledged = BTreeMap::new();
    let mut total = 0;
    for round in 0..ROUNDS {
        if round % 20 == 0 {
            path = folder.path().join(format!("{round}.redb"));
            acknowledged.clear();
        }
        let blind = chance.below(8) == 0;
        let delay = LONGEST.mul_f64(chance.below(1000) as f64 / 1000.0);
        let printed = kill_at(start_writing(&path), delay, !blind);
        total += printed.len();
        acknowledged.extend(printed);
        let survived = block_on(async {
            let store = EmbeddedStore::open(&path).await.unwrap();
            let listing = store.read("").await.unwrap();
            store.close().await;
            listing
        });
        check(&format!("round {round} of {SEED}={seed}"), &acknowledged, &survived);
    }
    assert!(total as u64 > ROUNDS, "too few writes for a load test: {total}");
}

/// Every writer stores its number in two keys, and a third key exists while the number is odd.
fn check(round: &str, acknowledged: &BTreeMap<u64, u64>, survived: &Listing) {
    let number = |key: String| {
        let entry = survived.entries.iter().find(|entry| entry.key == key)?;
        Some(String::from_utf8(entry.value.clone()).unwrap().parse::<u64>().unwrap())
    };
    let mut sum = 0;
    for writer in 0..WRITERS {
        let found = number(format!("a/{writer}"));
        let least = acknowledged.get(&writer).copied();
        assert!(found >= least, "{round}: {found:?} of {least:?}");
        assert_eq!(number(format!("b/{writer}")), found, "{round}: part of a transaction");
        let odd = found.filter(|found| found % 2 == 1);
        assert_eq!(number(format!("odd/{writer}")), odd, "{round}: part of a transaction");
        sum += found.unwrap_or(0);
    }
    assert!(survived.revision.0 >= sum, "{round}: revisions were lost");
}

/// The writer process; killed when dropped.
struct WriterProcess(Child);

impl Drop for WriterProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start_writing(path: &Path) -> WriterProcess {
    let name = "crash::every_acknowledged_write_survives_a_kill";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    WriterProcess(child)
}

/// Kills the process `delay` after its first output if `after_first` is set, otherwise `delay`
/// after its start. Returns the last acknowledged number of each writer.
fn kill_at(mut writing: WriterProcess, delay: Duration, after_first: bool) -> BTreeMap<u64, u64> {
    let lines = BufReader::new(writing.0.stdout.take().unwrap()).lines();
    let printed: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let reader = std::thread::spawn({
        let printed = printed.clone();
        move || {
            for line in lines.map_while(Result::ok) {
                let Some((writer, number)) = acknowledgement(&line) else { continue };
                printed.lock().unwrap().insert(writer, number);
            }
        }
    });
    if after_first {
        wait_until(Duration::from_secs(60), || !printed.lock().unwrap().is_empty());
        assert!(!printed.lock().unwrap().is_empty(), "the process prints nothing");
    }
    wait_until(delay, || false);
    writing.0.kill().unwrap();
    reader.join().unwrap();
    std::mem::take(&mut *printed.lock().unwrap())
}

/// Parses an acknowledgement; `None` for other or truncated lines.
fn acknowledgement(line: &str) -> Option<(u64, u64)> {
    let (writer, number) = line.strip_prefix("ack ")?.strip_suffix(" .")?.split_once(' ')?;
    Some((writer.parse().ok()?, number.parse().ok()?))
}

/// Waits until `done`, but at most for `limit`.
fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < limit && !done() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn write_for_ever(path: &Path) {
    block_on(async {
        let store = Arc::new(EmbeddedStore::open(path).await.unwrap());
        let writers = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer)));
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
}

async fn write(store: Arc<EmbeddedStore>, writer: u64) {
    let key = format!("a/{writer}");
    let found = store.read(&key).await.unwrap().entries;
    let found = found.first().map_or("0", |entry| std::str::from_utf8(&entry.value).unwrap());
    let mut number: u64 = found.parse().unwrap();
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    loop {
        number += 1;
        let text = number.to_string();
        let both = Transaction::new().put(key.as_str(), text.as_str());
        let both = both.put_leased(format!("b/{writer}"), text.as_str(), lease);
        let odd = format!("odd/{writer}");
        let all = if number % 2 == 1 { both.put(odd, text) } else { both.delete(odd) };
        store.commit(all).await.unwrap();
        let line = format!("ack {writer} {number} .\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn seed() -> u64 {
    u64::from(std::process::id()) * 0x9E37_79B9 + 1
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

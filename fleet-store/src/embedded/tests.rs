//! Failures of the file that integration tests cannot cause.

mod content;
mod power_loss;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::load::{Opener, StoreImage};
use super::*;

/// A backend that a test can switch to failing writes.
#[derive(Debug, Clone)]
struct FailingDisk {
    bytes: Arc<Mutex<Arc<InMemoryBackend>>>,
    broken: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    /// Number of mutating calls before they fail.
    left: Arc<AtomicU64>,
    /// Number of mutating calls before one that fails.
    fails_at: Arc<AtomicU64>,
}

impl FailingDisk {
    fn new() -> Self {
        Self {
            bytes: Arc::default(),
            broken: Arc::default(),
            panics: Arc::default(),
            left: Arc::new(AtomicU64::new(u64::MAX)),
            fails_at: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    fn bytes(&self) -> Arc<InMemoryBackend> {
        self.bytes.lock().unwrap().clone()
    }

    fn is_empty(&self) -> bool {
        self.bytes().len().unwrap() == 0
    }

    fn check(&self) -> io::Result<()> {
        assert!(!self.panics.load(Ordering::SeqCst), "injected panic");
        let fewer = |left: u64| left.checked_sub(1);
        let is_over = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_err();
        let fails_at = self.fails_at.load(Ordering::SeqCst);
        if fails_at != u64::MAX {
            self.fails_at.store(fails_at.checked_sub(1).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
        if fails_at == 0 || is_over || self.broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.bytes().len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.bytes().set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.bytes().write(offset, data)
    }
}

impl Opener for FailingDisk {
    fn open(&self, _create: bool) -> Result<(Disk, StoreImage), StoreError> {
        let full = || StoreError::Unavailable("injected full disk".into());
        Disk::open_on(self.clone(), self.is_empty()).ok_or_else(full)
    }
}

fn store_on(file: &FailingDisk) -> EmbeddedStore {
    let (disk, image) = Opener::open(file, true).unwrap();
    let clock = Clock::start();
    EmbeddedStore::start(Writer::new(disk, image, clock, Box::new(file.clone())), clock)
}

fn put(key: &str) -> Transaction {
    Transaction::new().put(key, "1")
}

/// Fails instead of hanging.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, work).await.expect("the event happens within a minute")
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

#[tokio::test(start_paused = true)]
async fn store_on_a_full_disk_is_offline_until_there_is_space() {
    let file = FailingDisk::new();
    let store = store_on(&file);
    let ttl = Duration::from_secs(10);
    let lease = store.grant(ttl).await.unwrap();
    let bound = Transaction::new().put_leased("bound", "1", lease);
    store.commit(bound).await.unwrap();
    let before = store.read("").await.unwrap();
    let mut watch = store.watch("", before.revision).await.unwrap();

    file.set_broken(true);
    let (one, other) = tokio::join!(store.commit(put("a")), store.commit(put("b")));
    for result in [one, other] {
        // The writer may take the two together or one after the other.
        assert!(
            matches!(result, Err(StoreError::Unknown(_))) || is_unavailable(&result),
            "{result:?}"
        );
    }
    assert!(is_unavailable(&store.commit(put("c")).await));
    assert!(is_unavailable(&store.renew(lease).await));
    assert!(is_unavailable(&store.grant(ttl).await.map(drop)));
    assert!(is_unavailable(&store.revoke(lease).await));
    assert!(is_unavailable(&store.read("").await), "the state may be outdated");
    assert!(is_unavailable(&store.watch("", before.revision).await.map(drop)));
    assert!(matches!(soon(watch.next()).await, Err(StoreError::WatchLost)));

    // Renewals fail, so no lease ends.
    tokio::time::advance(ttl * 3).await;
    file.set_broken(false);
    let after = soon(wait_for_online(&store)).await;
    assert_eq!(after.entries[0], before.entries[0]);
    // The changes of the writes that failed are present completely or not at all, and watches
    // continue without a gap.
    let mut watch = store.watch("", before.revision).await.unwrap();
    store.commit(put("d")).await.unwrap();
    let mut revision = before.revision;
    while revision <= after.revision {
        revision = revision.next();
        assert_eq!(soon(watch.next()).await.unwrap().revision, revision);
    }
    store.renew(lease).await.unwrap();
    store.close().await;
    let reopened = store_on(&file).read("").await.unwrap();
    assert_eq!(reopened.entries.len(), after.entries.len() + 1);
}

async fn wait_for_online(store: &EmbeddedStore) -> Listing {
    loop {
        match store.read("").await {
            Ok(listing) => return listing,
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
        wait_simulated(Duration::from_secs(1)).await;
    }
}

/// Waits in simulated time, which passes only while no other thread works.
async fn wait_simulated(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Fails each disk call once, one call later in each repetition, until a commit needs fewer calls.
// Holds: I-6
#[tokio::test]
async fn single_failed_write_leaves_the_store_online() {
    for calls in 0.. {
        let file = FailingDisk::new();
        let store = store_on(&file);
        let mut watch = store.watch("", Revision::ZERO).await.unwrap();
        file.fails_at.store(calls, Ordering::SeqCst);
        let result = store.commit(put("a")).await;
        if file.fails_at.load(Ordering::SeqCst) != u64::MAX {
            return;
        }
        let entries = store.read("").await.unwrap().entries.len();
        match result {
            Ok(_) => assert_eq!(entries, 1, "after {calls}"),
            Err(StoreError::Unavailable(_)) => assert_eq!(entries, 0, "after {calls}"),
            Err(error) => panic!("after {calls}: {error}"),
        }
        store.commit(put("b")).await.unwrap();
        for _ in 0..=entries {
            soon(watch.next()).await.expect("the watch continues");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn store_opened_on_a_full_disk_comes_online() {
    let file = FailingDisk::new();
    let store = store_on(&file);
    store.commit(put("a")).await.unwrap();
    store.close().await;

    file.set_broken(true);
    let failure = WriteFailure::new("injected full disk".into());
    let clock = Clock::start();
    let store =
        EmbeddedStore::start(Writer::offline(failure, clock, Box::new(file.clone())), clock);
    assert!(is_unavailable(&store.read("").await));
    assert!(is_unavailable(&store.commit(put("b")).await));
    wait_simulated(Duration::from_secs(20)).await;
    assert!(is_unavailable(&store.read("").await));

    file.set_broken(false);
    assert_eq!(soon(wait_for_online(&store)).await.entries.len(), 1);
    store.commit(put("b")).await.unwrap();
}

/// Continuing with the content of another file would make the state of the cluster jump.
#[tokio::test(start_paused = true)]
async fn replaced_file_keeps_the_store_offline() {
    let file = FailingDisk::new();
    let store = store_on(&file);
    for key in ["a", "b", "c"] {
        store.commit(put(key)).await.unwrap();
    }
    file.set_broken(true);
    store.commit(put("d")).await.unwrap_err();
    *file.bytes.lock().unwrap() = Arc::new(InMemoryBackend::new());
    file.set_broken(false);
    wait_simulated(Duration::from_secs(20)).await;
    let refused = store.read("").await.unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.starts_with("another program replaced the store's file"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn stalled_store_ends_no_lease() {
    let store = store_on(&FailingDisk::new());
    let ttl = Duration::from_secs(10);
    let lease = store.grant(ttl).await.unwrap();
    let bound = Transaction::new().put_leased("bound", "1", lease);
    store.commit(bound).await.unwrap();
    let before = store.read("").await.unwrap();
    let mut watch = store.watch("", before.revision).await.unwrap();

    // Only the clock advances, as if the process was stopped.
    tokio::time::advance(ttl * 3).await;
    store.renew(lease).await.unwrap();
    assert_eq!(store.read("").await.unwrap(), before);

    // From now on the store is served, so the lease ends on time.
    let ended = soon(watch.next()).await.unwrap();
    assert_eq!(ended.changes.iter().map(|change| &*change.key).collect::<Vec<_>>(), ["bound"]);
    assert!(ended.changes[0].value.is_none());
}

#[tokio::test]
async fn acknowledged_writes_survive_a_failure() {
    let file = FailingDisk::new();
    let store = store_on(&file);
    for key in ["a", "b"] {
        store.commit(put(key)).await.unwrap();
    }
    let before = store.read("").await.unwrap();
    file.set_broken(true);
    let lost = store.commit(put("c")).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    store.close().await;

    file.set_broken(false);
    let store = store_on(&file);
    let after = store.read("").await.unwrap();
    assert_eq!(after.entries[..2], before.entries);
    store.commit(put("d")).await.unwrap();
}

#[test]
fn store_without_its_runtime_is_unavailable() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(async { store_on(&FailingDisk::new()) });
    second.block_on(store.commit(put("a"))).unwrap();
    drop(first);
    for _ in 0..2 {
        let request = async { soon(store.commit(put("b"))).await };
        assert!(is_unavailable(&second.block_on(request)));
    }
    assert_eq!(second.block_on(store.read("")).unwrap().entries.len(), 1);
    second.block_on(async { soon(store.close()).await });
}

/// redb panics on some damaged files.
#[tokio::test(start_paused = true)]
async fn panicking_write_takes_the_store_offline() {
    let file = FailingDisk::new();
    let store = store_on(&file);
    file.panics.store(true, Ordering::SeqCst);
    let lost = store.commit(put("a")).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    assert!(is_unavailable(&store.read("").await));
    file.panics.store(false, Ordering::SeqCst);
    soon(wait_for_online(&store)).await;
    store.commit(put("b")).await.unwrap();
}

/// A request is executed even if its caller has stopped waiting, and does not delay later requests.
#[tokio::test]
async fn abandoned_request_is_executed_atomically() {
    let store = store_on(&FailingDisk::new());
    for number in 0..200 {
        let keys = [format!("a/{number:03}"), format!("b/{number:03}")];
        let both = Transaction::new().put(keys[0].as_str(), "1").put(keys[1].as_str(), "1");
        let mut request = store.commit(both);
        let polled = std::future::poll_fn(|context| {
            let _is_ready = request.as_mut().poll(context).is_ready();
            std::task::Poll::Ready(())
        });
        polled.await;
        drop(request);
        tokio::task::yield_now().await;
    }
    store.commit(put("last")).await.unwrap();
    assert_eq!(store.read("").await.unwrap().entries.len(), 401);
}

#[tokio::test]
async fn closed_or_dropped_store_releases_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    for round in 1..=20 {
        let store = wait_to_open(&path).await;
        store.commit(put("a")).await.unwrap();
        store.close().await;
        let store = EmbeddedStore::open(&path).await.unwrap();
        assert_eq!(store.read("").await.unwrap().revision, Revision(round));
    }
}

/// A dropped store may keep its file until a running write ends.
async fn wait_to_open(path: &Path) -> EmbeddedStore {
    let begin = std::time::Instant::now();
    loop {
        match EmbeddedStore::open(path).await {
            Err(StoreError::InUse { .. }) if begin.elapsed() < Duration::from_secs(60) => {
                tokio::task::yield_now().await;
            }
            opened => return opened.unwrap(),
        }
    }
}

//! Failures of the file that integration tests cannot cause.

mod log;
mod power_loss;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::*;

/// A backend that a test can switch to failing writes.
#[derive(Debug, Clone)]
struct FailingDisk {
    bytes: Arc<InMemoryBackend>,
    broken: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    /// Number of mutating calls before they fail.
    left: Arc<AtomicU64>,
}

impl FailingDisk {
    fn new() -> Self {
        Self {
            bytes: Arc::new(InMemoryBackend::new()),
            broken: Arc::default(),
            panics: Arc::default(),
            left: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    fn check(&self) -> io::Result<()> {
        assert!(!self.panics.load(Ordering::SeqCst), "injected panic");
        let fewer = |left: u64| left.checked_sub(1);
        let is_over = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_err();
        if is_over || self.broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.bytes.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.bytes.write(offset, data)
    }
}

fn store_on(file: &FailingDisk, new: bool) -> EmbeddedStore {
    let (disk, image) = Disk::open_on(file.clone(), new).unwrap();
    EmbeddedStore::from_disk(disk, image)
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
async fn failing_file_stops_writes_and_hides_unwritten_changes() {
    let file = FailingDisk::new();
    let store = store_on(&file, true);
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
    file.set_broken(false);
    assert!(is_unavailable(&store.commit(put("c")).await));
    assert!(is_unavailable(&store.renew(lease).await));
    assert!(is_unavailable(&store.grant(ttl).await.map(drop)));
    assert!(is_unavailable(&store.revoke(lease).await));

    // Reads continue, no lease ends although renewals fail, and watches deliver nothing.
    tokio::time::advance(ttl * 3).await;
    assert_eq!(store.read("").await.unwrap(), before);
    assert!(tokio::time::timeout(ttl, watch.next()).await.is_err());
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn stalled_store_ends_no_lease() {
    let store = store_on(&FailingDisk::new(), true);
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
    let store = store_on(&file, true);
    for key in ["a", "b"] {
        store.commit(put(key)).await.unwrap();
    }
    let before = store.read("").await.unwrap();
    file.set_broken(true);
    let lost = store.commit(put("c")).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    store.close().await;

    file.set_broken(false);
    let store = store_on(&file, false);
    let after = store.read("").await.unwrap();
    assert_eq!(after.entries[..2], before.entries);
    store.commit(put("d")).await.unwrap();
}

#[test]
fn store_without_its_runtime_is_unavailable() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(async { store_on(&FailingDisk::new(), true) });
    second.block_on(store.commit(put("a"))).unwrap();
    drop(first);
    for _ in 0..2 {
        let request = async { soon(store.commit(put("b"))).await };
        assert!(is_unavailable(&second.block_on(request)));
    }
    assert_eq!(second.block_on(store.read("")).unwrap().entries.len(), 1);
    second.block_on(async { soon(store.close()).await });
}

/// redb panics on a damaged file.
#[tokio::test]
async fn panicking_write_stops_writes() {
    let file = FailingDisk::new();
    let store = store_on(&file, true);
    file.panics.store(true, Ordering::SeqCst);
    let lost = store.commit(put("a")).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    file.panics.store(false, Ordering::SeqCst);
    assert!(is_unavailable(&store.commit(put("b")).await));
    assert!(store.read("").await.unwrap().entries.is_empty());
}

/// A request is executed even if its caller has stopped waiting, and does not delay later requests.
#[tokio::test]
async fn abandoned_request_is_executed_atomically() {
    let store = store_on(&FailingDisk::new(), true);
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

//! What happens when the file fails, which no test from outside can bring about.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::*;

/// A file that can be made to fail all writes.
#[derive(Debug, Clone)]
struct Frail {
    bytes: Arc<InMemoryBackend>,
    broken: Arc<AtomicBool>,
}

impl Frail {
    fn new() -> Self {
        Self { bytes: Arc::new(InMemoryBackend::new()), broken: Arc::default() }
    }

    fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    fn check(&self) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl StorageBackend for Frail {
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

fn store_on(file: &Frail, new: bool) -> EmbeddedStore {
    let (disk, kept) = Disk::on(file.clone(), new);
    EmbeddedStore::over(disk, kept)
}

fn put(key: &str) -> Transaction {
    Transaction::new().put(key, "1")
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

#[tokio::test(start_paused = true)]
async fn a_file_that_fails_ends_writing_and_nothing_unwritten_is_shown() {
    let file = Frail::new();
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
        // The two may have been taken together or one after the other.
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

    // Reads go on, no lease ends although nobody can renew it, and no watch tells of anything.
    tokio::time::advance(ttl * 3).await;
    assert_eq!(store.read("").await.unwrap(), before);
    assert!(tokio::time::timeout(ttl, watch.next()).await.is_err());
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_held_up_ends_no_lease_for_that() {
    let store = store_on(&Frail::new(), true);
    let ttl = Duration::from_secs(10);
    let lease = store.grant(ttl).await.unwrap();
    let bound = Transaction::new().put_leased("bound", "1", lease);
    store.commit(bound).await.unwrap();
    let before = store.read("").await.unwrap();
    let mut watch = store.watch("", before.revision).await.unwrap();

    // The clock goes on, and nothing else does, as when the process is stopped.
    tokio::time::advance(ttl * 3).await;
    store.renew(lease).await.unwrap();
    assert_eq!(store.read("").await.unwrap(), before);

    // From now on it is served, so it ends in its time.
    let ended = watch.next().await.unwrap();
    assert_eq!(ended.changes.iter().map(|change| &*change.key).collect::<Vec<_>>(), ["bound"]);
    assert!(ended.changes[0].value.is_none());
}

#[tokio::test]
async fn what_was_acknowledged_before_the_failure_is_in_the_file() {
    let file = Frail::new();
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

#[tokio::test]
async fn a_store_whose_writer_is_gone_says_so() {
    let store = store_on(&Frail::new(), true);
    store.writer.abort();
    while !store.writer.is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(is_unavailable(&store.commit(put("a")).await));
}

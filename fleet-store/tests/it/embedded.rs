//! The embedded store over its lifetime: restarts, a second process and damaged files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Revision;
use fleet_store::{Commit, EmbeddedStore, Listing, Store, StoreError, Transaction};
use redb::{Database, TableDefinition};

use crate::support::soon;

async fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path).await.unwrap()
}

async fn put(store: &impl Store, key: &str, value: &str) -> Revision {
    match store.commit(Transaction::new().put(key, value)).await.unwrap() {
        Commit::Applied(revision) => revision,
        refused @ Commit::Refused { .. } => panic!("{refused:?}"),
    }
}

fn path_in(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("store.redb")
}

#[tokio::test]
async fn acknowledged_writes_survive_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let store = open(&path).await;
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    put(&store, "a", "1").await;
    put(&store, "b", "gone").await;
    store.commit(Transaction::new().delete("b").put_leased("c", "3", lease)).await.unwrap();
    let before = store.read("").await.unwrap();
    store.close().await;

    let store = open(&path).await;
    assert_eq!(store.read("").await.unwrap(), before);
    // Revisions and lease IDs continue.
    assert_eq!(put(&store, "d", "4").await, before.revision.next());
    assert!(store.grant(Duration::from_secs(1)).await.unwrap() > lease);
    assert!(!folder.path().join("store.redb.new").exists());
}

#[tokio::test]
async fn largest_writes_survive_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let store = Arc::new(open(&path).await);
    let first = put(&*store, "small", "1").await;
    let large = "x".repeat(Transaction::MAX_BYTES - "large/0".len());
    let write = |i| {
        let (store, large) = (store.clone(), large.clone());
        tokio::spawn(async move { put(&*store, &format!("large/{i}"), &large).await })
    };
    for write in (0..9).map(write).collect::<Vec<_>>() {
        write.await.unwrap();
    }
    let nothing = store.commit(Transaction::new()).await.unwrap();
    assert_eq!(nothing, Commit::Applied(Revision(10)));
    let last = put(&*store, "small", "2").await;
    let before = store.read("").await.unwrap();
    Arc::into_inner(store).unwrap().close().await;

    let store = open(&path).await;
    assert!(store.read("").await.unwrap() == before, "not shown: they are large");
    for old in [Revision::ZERO, first, Revision(10)] {
        assert!(matches!(store.watch("", old).await, Err(StoreError::Compacted { .. })));
    }
    assert_eq!(put(&store, "small", "3").await, last.next());
}

#[tokio::test]
async fn restart_compacts_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let store = open(&path).await;
    let first = put(&store, "a", "1").await;
    let last = put(&store, "a", "2").await;
    store.close().await;
    let store = open(&path).await;
    let past = store.watch("", first).await;
    assert!(matches!(past, Err(StoreError::Compacted { oldest }) if oldest == last));
    let mut watch = store.watch("", last).await.unwrap();
    let next = put(&store, "a", "3").await;
    assert_eq!(soon(watch.next()).await.unwrap().revision, next);
}

#[tokio::test]
async fn lease_survives_a_restart_and_then_expires() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let store = open(&path).await;
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(3600));
    let (kept, ends) = (store.grant(long).await.unwrap(), store.grant(short).await.unwrap());
    let ended = store.grant(long).await.unwrap();
    let bind = Transaction::new()
        .put_leased("kept", "", kept)
        .put_leased("ends", "", ends)
        .put_leased("ended", "", ended);
    store.commit(bind).await.unwrap();
    store.revoke(ended).await.unwrap();
    store.close().await;

    let store = open(&path).await;
    let listing = store.read("ends").await.unwrap();
    let mut watch = store.watch("ends", listing.revision).await.unwrap();
    if !listing.entries.is_empty() {
        assert!(soon(watch.next()).await.unwrap().changes[0].value.is_none());
    }
    store.renew(kept).await.unwrap();
    for gone in [ends, ended] {
        assert!(
            matches!(store.renew(gone).await, Err(StoreError::LeaseLost(lost)) if lost == gone)
        );
    }
    let left = store.read("").await.unwrap().entries;
    assert_eq!(left.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn second_open_is_refused_until_the_first_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let store = open(&path).await;
    let second = EmbeddedStore::open(&path).await;
    let Err(StoreError::InUse { path: named }) = second else { panic!("{second:?}") };
    assert_eq!(named, path.display().to_string());
    put(&store, "a", "1").await;
    store.close().await;
    open(&path).await;
}

#[tokio::test]
async fn newer_file_format_is_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    open(&path).await.close().await;
    set_format(&path, 4);
    for _ in 0..2 {
        let Err(StoreError::Format(message)) = EmbeddedStore::open(&path).await else {
            panic!("a newer format was opened")
        };
        assert!(message.contains("format 4") && message.contains("newer version"), "{message}");
    }
    set_format(&path, 3);
    open(&path).await;
}

#[tokio::test]
async fn older_file_format_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    open(&path).await.close().await;
    set_format(&path, 2);
    let Err(StoreError::Format(message)) = EmbeddedStore::open(&path).await else {
        panic!("an older format was opened")
    };
    assert!(message.contains("format 2") && message.contains("export the cluster"), "{message}");
}

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");
const KEYS: TableDefinition<'_, &str, (u64, u64, u64, &[u8])> = TableDefinition::new("keys");

fn set_format(path: &Path, format: u64) {
    change(path, |file| {
        file.open_table(META).unwrap().insert("format", format).unwrap();
    });
}

fn change(path: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    change(&transaction);
    transaction.commit().unwrap();
}

/// Creates and closes a store.
async fn closed_store(path: &Path) -> Listing {
    let store = open(path).await;
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    for i in 0..200 {
        put(&store, &format!("key/{i:03}"), &"value ".repeat(20)).await;
    }
    store.commit(Transaction::new().put_leased("bound", "1", lease)).await.unwrap();
    let listing = store.read("").await.unwrap();
    store.close().await;
    listing
}

/// A sum covers all rows of all tables.
#[tokio::test]
async fn changed_or_missing_row_is_refused() {
    let spoil: [fn(&redb::WriteTransaction); 9] = [
        |file| drop(file.open_table(META).unwrap().insert("revision", 1 << 40).unwrap()),
        |file| drop(file.open_table(META).unwrap().insert("last lease", 9).unwrap()),
        |file| drop(file.open_table(META).unwrap().insert("format", 1).unwrap()),
        |file| drop(file.open_table(META).unwrap().remove("sum").unwrap()),
        |file| drop(file.open_table(LEASES).unwrap().insert(1, 1).unwrap()),
        |file| drop(file.open_table(LEASES).unwrap().insert(0, 1).unwrap()),
        |file| drop(file.open_table(KEYS).unwrap().remove("key/007").unwrap()),
        |file| {
            let mut keys = file.open_table(KEYS).unwrap();
            let row = keys.remove("key/007").unwrap().unwrap();
            let (modified, lease, sum, value) = row.value();
            let value = value.to_vec();
            drop(row);
            keys.insert("key/other", (modified, lease, sum, value.as_slice())).unwrap();
        },
        |file| assert!(file.delete_table(KEYS).unwrap()),
    ];
    for spoil in spoil {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(&folder);
        closed_store(&path).await;
        change(&path, spoil);
        let opened = EmbeddedStore::open(&path).await;
        assert!(matches!(opened, Err(StoreError::Format(_))), "{opened:?}");
    }
}

#[tokio::test]
async fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let other = Database::create(folder.path().join("other.redb")).unwrap();
    drop(other);
    let other = std::fs::read(folder.path().join("other.redb")).unwrap();
    for bytes in [&b""[..], b"fleet", &[0; 10_000], &other] {
        std::fs::write(&path, bytes).unwrap();
        let opened = EmbeddedStore::open(&path).await;
        assert!(matches!(opened, Err(StoreError::Format(_))), "{} bytes: {opened:?}", bytes.len());
    }
    let nowhere = EmbeddedStore::open(folder.path().join("none/store.redb")).await;
    assert!(matches!(nowhere, Err(StoreError::Unavailable(_))), "{nowhere:?}");
}

/// For any wrong byte, the file is either refused or its content is unchanged. Some wrong bytes of
/// each page, for example of the free page list, make redb panic. That must not abort the process.
#[tokio::test]
async fn damaged_file_is_refused_or_intact() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder);
    let before = closed_store(&path).await;
    let good = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for page in (0..good.len()).step_by(4096) {
        let used: Vec<usize> = (page..page + 4096).filter(|at| good[*at] != 0).collect();
        for at in used.iter().step_by((used.len() / 16).max(1)) {
            let mut bad = good.clone();
            bad[*at] ^= 0x55;
            std::fs::write(&path, bad).unwrap();
            refused += usize::from(is_refused_or_whole(&path, &before, *at).await);
        }
    }
    assert!(refused > 20, "only {refused} were refused");
    for length in [good.len() / 2, 4096, 100] {
        std::fs::write(&path, &good[..length]).unwrap();
        let cut = EmbeddedStore::open(&path).await;
        assert!(matches!(cut, Err(StoreError::Format(_))), "{length} bytes: {cut:?}");
    }
}

/// Checks a file with a wrong byte at `at`; returns whether it was refused.
async fn is_refused_or_whole(path: &Path, before: &Listing, at: usize) -> bool {
    match EmbeddedStore::open(path).await {
        Ok(store) => {
            assert_eq!(store.read("").await.unwrap(), *before, "byte {at}");
            store.close().await;
            false
        }
        Err(StoreError::Format(_)) => true,
        Err(other) => panic!("byte {at}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_share_the_writes_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&path_in(&folder)).await);
    let writers = (0..64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for i in 0..20 {
                let revision = put(&*store, &format!("{writer}"), &i.to_string()).await;
                let listing = store.read(&format!("{writer}")).await.unwrap();
                assert!(listing.revision >= revision, "a reader is behind its own write");
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(store.read("").await.unwrap().revision, Revision(64 * 20));
}

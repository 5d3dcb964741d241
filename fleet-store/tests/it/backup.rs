//! Backups of a running embedded store, and restoring from them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_core::{Epoch, Revision, Term};
use fleet_store::mirror::StoreIdentity;
use fleet_store::registry::{Key, Lineage, PlacementWrites, SetPlacement};
use fleet_store::{EmbeddedStore, Layout, Mirror, Registry, Store, StoreError, Transaction};

use crate::support::{TTL, id, join, mirror, name, soon, state, submit};

/// Epoch base of the lineage that is backed up.
const BEGINNING: u64 = 1 << 50;

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn lineage(text: &str) -> Lineage {
    text.parse().unwrap()
}

async fn open(path: &Path) -> Arc<EmbeddedStore> {
    Arc::new(EmbeddedStore::open(path).await.unwrap())
}

fn registry(store: &Arc<EmbeddedStore>) -> Registry {
    Registry::new(store.clone(), Layout::DEFAULT_PREFIX)
}

async fn restore(files: &Files, to: &str) -> Result<Revision, StoreError> {
    let (backup, to) = (files.path("backup"), files.path(to));
    EmbeddedStore::restore(backup, to, &Layout::default(), &lineage("second")).await
}

/// Returns a store with two units, one of them placed and reported, and the revision of its backup.
/// The backup was made while the leases lasted.
async fn cluster_with_backup(files: &Files) -> (Arc<EmbeddedStore>, Revision) {
    let store = open(&files.path("store")).await;
    let registry = registry(&store);
    let first = lineage("first").with_epoch_base(BEGINNING);
    assert_eq!(registry.lineage(&first).await.unwrap(), first);
    submit(&registry, "a.service").await;
    submit(&registry, "b.service").await;
    let presence = join(&registry, "m-1").await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let epoch = Epoch(leader.elected().0);
    let place = SetPlacement { unit: name("a.service"), machine: id("m-1"), epoch, previous: None };
    let writes = PlacementWrites { set: vec![place], ..PlacementWrites::default() };
    leader.commit(&writes).await.unwrap();
    presence.publish_states(&[state("a.service", "running")], &[]).await.unwrap();
    let revision = store.backup(files.path("backup")).await.unwrap();
    (store, revision)
}

#[tokio::test]
async fn store_and_backup_are_for_their_owner_alone() {
    let files = Files::new();
    drop(cluster_with_backup(&files).await);
    restore(&files, "restored").await.unwrap();
    for name in ["store", "backup", "restored"] {
        let mode = std::fs::metadata(files.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

// Holds: I-2
#[tokio::test]
async fn restored_state_is_later_than_the_lost_one() {
    let files = Files::new();
    let (store, revision) = cluster_with_backup(&files).await;
    // This write after the backup is lost with the store.
    submit(&registry(&store), "late.service").await;
    let lost = store.read("").await.unwrap().revision;
    let last_lease = store.grant(TTL).await.unwrap();
    drop(store);

    let begun = restore(&files, "restored").await.unwrap();
    assert!(revision < lost && lost < begun);
    let store = open(&files.path("restored")).await;
    let registry = registry(&store);
    let mirror = mirror(&registry).await;
    let snapshot = mirror.snapshot();
    assert_eq!(snapshot.revision, begun);
    let units: Vec<&str> = snapshot.units().map(|unit| unit.name.as_str()).collect();
    assert_eq!(units, ["a.service", "b.service"]);
    let placement = snapshot.placement("a.service").unwrap();
    let epoch = Epoch(BEGINNING + begun.0);
    assert_eq!((placement.machine.as_str(), placement.epoch), ("m-1", epoch));
    // No machine is present, and there is no leader.
    assert_eq!((snapshot.machines().len(), snapshot.states().count()), (0, 0));
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    assert!(leader.term() > Term(lost.0));
    assert!(store.grant(TTL).await.unwrap() > last_lease);
    let second = lineage("second").with_epoch_base(BEGINNING).with_predecessor(&lineage("first"));
    assert_eq!(mirror.lineage(), Some(second.clone()));
    assert_eq!(registry.lineage(&lineage("third")).await.unwrap(), second);
}

#[tokio::test]
async fn backup_and_store_are_not_interchangeable() {
    let files = Files::new();
    let (store, _) = cluster_with_backup(&files).await;
    let opened = EmbeddedStore::open(files.path("backup")).await.map(drop);
    assert_says(opened, "is a backup, not a store: restore it");
    Arc::into_inner(store).unwrap().close().await;
    std::fs::rename(files.path("store"), files.path("backup")).unwrap();
    assert_says(restore(&files, "restored").await.map(drop), "is a store, not a backup");
    std::fs::write(files.path("backup"), "neither").unwrap();
    assert_says(restore(&files, "restored").await.map(drop), "is damaged");
    assert!(!files.path("restored").exists());
}

fn assert_says(result: Result<(), StoreError>, text: &str) {
    let Err(StoreError::Format(message)) = result else { panic!("{result:?}") };
    assert!(message.contains(text), "{message}");
}

#[tokio::test]
async fn existing_file_is_not_overwritten() {
    let files = Files::new();
    let (store, _) = cluster_with_backup(&files).await;
    let before = std::fs::read(files.path("backup")).unwrap();
    let again = store.backup(files.path("backup")).await;
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    let over = restore(&files, "store").await;
    assert!(matches!(over, Err(StoreError::Exists { .. })), "{over:?}");
    assert_eq!(std::fs::read(files.path("backup")).unwrap(), before);
}

/// Backups run during concurrent writes, and each is a consistent state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_is_one_revision_despite_concurrent_writes() {
    let files = Files::new();
    let store = open(&files.path("store")).await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..u64::MAX {
                let text = number.to_string();
                let both = Transaction::new().put("/fleet/x/a", text.as_str());
                store.commit(both.put("/fleet/x/b", text)).await.unwrap();
            }
        }
    });
    for number in 0..5 {
        let backup = files.path(&format!("backup-{number}"));
        store.backup(&backup).await.unwrap();
        let restored = files.path(&format!("restored-{number}"));
        let second = lineage("second");
        EmbeddedStore::restore(&backup, &restored, &Layout::default(), &second).await.unwrap();
        let entries = open(&restored).await.read("/fleet/x/").await.unwrap().entries;
        assert!(entries.windows(2).all(|pair| pair[0].value == pair[1].value));
    }
    writer.abort();
}

/// A running daemon must not silently continue with another history.
// Holds: I-8
#[tokio::test(start_paused = true)]
async fn store_with_another_lineage_is_not_followed() {
    let registry = crate::support::registry();
    let mirror = mirror(&registry).await;
    assert_eq!(mirror.lineage(), None);
    registry.lineage(&lineage("first")).await.unwrap();
    submit(&registry, "a.service").await;
    let revision = registry.store().read("").await.unwrap().revision;
    soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(mirror.lineage(), Some(lineage("first")));
    // Simulate that another cluster replaced this one under the same prefix.
    let key = registry.layout().key(&Key::Lineage);
    let other = br#"{"v":2,"id":"other"}"#.to_vec();
    let unit = registry.layout().key(&Key::Unit(name("a.service")));
    let exchange = Transaction::new().put(key.as_str(), other).delete(unit);
    registry.store().commit(exchange).await.unwrap();
    until_behind(&mirror).await;
    assert!(mirror.snapshot().unit("a.service").is_some());
    tokio::time::timeout(TTL, mirror.wait_current()).await.unwrap_err();
    let back = Transaction::new().put(key, br#"{"v":2,"id":"first"}"#.to_vec());
    registry.store().commit(back).await.unwrap();
    soon(mirror.wait_current()).await.unwrap();
}

// Holds: I-8
#[tokio::test(start_paused = true)]
async fn only_continuing_lineage_is_followed_at_start() {
    let registry = crate::support::registry();
    let start = |id: &str| Mirror::start_expecting(&registry, Some(lineage(id)));
    let mirror = start("first");
    let refused = |mirror: Mirror| async move {
        let mut progress = mirror.subscribe();
        let other = soon(progress.wait_for(|it| it.store == StoreIdentity::Other)).await;
        assert!(!other.unwrap().is_current);
        tokio::time::timeout(TTL, mirror.wait_current()).await.unwrap_err();
    };
    refused(mirror.clone()).await; // a store without a lineage
    registry.lineage(&lineage("second").with_predecessor(&lineage("first"))).await.unwrap();
    soon(mirror.wait_current()).await.unwrap();
    for id in ["first", "second"] {
        soon(start(id).wait_expected_store()).await.unwrap();
    }
    refused(start("third")).await;
}

/// Restored placements all have the same epoch, so superseded ones could no longer be recognized.
#[tokio::test]
async fn superseded_placements_are_not_restored() {
    let files = Files::new();
    let store = open(&files.path("store")).await;
    let registry = registry(&store);
    registry.lineage(&lineage("first")).await.unwrap();
    submit(&registry, "a.service").await;
    for (machine, epoch) in [("m-1", 3), ("m-2", 9), ("m-3", 9)] {
        let key = registry.layout().key(&Key::Placement(id(machine), name("a.service")));
        let put = Transaction::new().put(key, format!(r#"{{"v":2,"epoch":{epoch}}}"#));
        store.commit(put).await.unwrap();
    }
    store.backup(files.path("backup")).await.unwrap();
    restore(&files, "restored").await.unwrap();
    let entries = open(&files.path("restored")).await.read("/fleet/placements/").await.unwrap();
    let keys: Vec<_> = entries.entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["/fleet/placements/m-2/a.service"]);
}

/// Such a backup has keys that this version does not read.
#[tokio::test]
async fn backup_of_another_layout_is_refused() {
    let files = Files::new();
    let store = open(&files.path("store")).await;
    let old = Transaction::new()
        .put("/fleet/cluster/lineage", r#"{"v":1,"id":"first"}"#)
        .put("/fleet/placements/a.service", r#"{"v":1,"machine":"m-1","epoch":7}"#);
    store.commit(old).await.unwrap();
    store.backup(files.path("backup")).await.unwrap();
    let refused = restore(&files, "restored").await.unwrap_err().to_string();
    assert!(refused.contains("export the cluster with the older version"), "{refused}");
    assert!(!files.path("restored").exists());
}

async fn until_behind(mirror: &Mirror) {
    let mut progress = mirror.subscribe();
    soon(progress.wait_for(|progress| !progress.is_current)).await.unwrap();
}

#[test]
fn lineage_is_short_plain_text() {
    for bad in ["", "a b", "a/b", "\u{e9}", &"x".repeat(65)] {
        assert!(bad.parse::<Lineage>().is_err(), "{bad:?}");
    }
    assert_eq!(lineage("0f-9A").to_string(), "0f-9A");
}

/// After an import, epochs are far ahead of revisions, also on the machines.
// Holds: I-2
#[tokio::test]
async fn restored_import_is_later_than_the_lost_one() {
    let files = Files::new();
    let store = open(&files.path("store")).await;
    let registry = registry(&store);
    registry.lineage(&lineage("first")).await.unwrap();
    submit(&registry, "a.service").await;
    let mut leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    leader.raise_epochs(Epoch(5_000_000_000_000)).await.unwrap();
    let epoch = Epoch(leader.elected().0 + 1);
    let place = SetPlacement { unit: name("a.service"), machine: id("m-1"), epoch, previous: None };
    leader
        .commit(&PlacementWrites { set: vec![place], ..PlacementWrites::default() })
        .await
        .unwrap();
    let epoch = async |registry: &Registry| {
        registry.export().await.unwrap().snapshot.placement("a.service").unwrap().epoch
    };
    let before = epoch(&registry).await;
    assert!(before > Epoch(5_000_000_000_000));
    store.backup(files.path("backup")).await.unwrap();
    restore(&files, "restored").await.unwrap();
    assert!(epoch(&self::registry(&open(&files.path("restored")).await)).await > before);
}

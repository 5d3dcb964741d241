//! Salvage of real store files with flipped bytes, lost pages and noise.

use std::sync::Arc;

use fleet_core::TargetState;
use fleet_unitfile::UnitFile;

use super::*;
use crate::registry::{ExpectUnit, NewUnit};
use crate::{Registry, Store as _, Transaction};

/// With this many units, the tables have branch pages.
const UNITS: usize = 120;

fn unit(i: usize) -> NewUnit {
    let file = format!("[Service]\nExecStart=/bin/{i} {}\n", "x".repeat(200));
    let file = UnitFile::parse(&file).unwrap();
    NewUnit {
        name: format!("u{i:03}.service").parse().unwrap(),
        file,
        desired: TargetState::Loaded,
    }
}

fn is_destroyed(i: usize) -> bool {
    i % 20 == 7
}

/// Returns the bytes of a store's file. Some units were destroyed.
async fn store_file() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    for half in [0..UNITS - 30, UNITS - 30..UNITS] {
        let store = Arc::new(EmbeddedStore::open(&path).await.unwrap());
        let registry = Registry::new(store.clone(), Layout::DEFAULT_PREFIX);
        registry.lineage(&"first".parse().unwrap()).await.unwrap();
        for i in half {
            let key = registry.layout().key(&Key::Unit(unit(i).name));
            registry.put_unit(unit(i), ExpectUnit::Absent).await.unwrap();
            if is_destroyed(i) {
                store.commit(Transaction::new().delete(key)).await.unwrap();
            }
        }
        drop(registry);
        Arc::into_inner(store).unwrap().close().await;
    }
    std::fs::read(path).unwrap()
}

fn salvaged(bytes: &[u8]) -> Option<Salvage> {
    salvage(bytes, &Layout::default())
}

/// Checks what was saved. `is_intact` tells whether the damage spared all rows of a unit.
fn check(saved: &Salvage, is_intact: impl Fn(usize) -> bool, what: &str) {
    let is_uncertain = |name: &UnitName| saved.uncertain.contains(&format!("unit {name}"));
    for i in 0..UNITS {
        let NewUnit { name, file, .. } = unit(i);
        match saved.export.snapshot.unit(name.as_str()) {
            Some(found) => {
                assert_eq!(found.file.source(), file.source(), "{what}: {name}");
                assert!(!is_destroyed(i) || is_uncertain(&name), "{what}: {name} is back");
            }
            None => assert!(is_destroyed(i) || !is_intact(i), "{what}: {name} is lost"),
        }
    }
    let is_complete = saved.unreadable.is_empty() && saved.uncertain.is_empty();
    assert_eq!(saved.export.lineage.is_some(), is_complete, "{what}");
    let units = (0..UNITS).filter(|i| !is_destroyed(*i)).count();
    assert!(!is_complete || saved.export.snapshot.units().len() == units, "{what}");
}

/// For each unit, the pages of the file that its live rows are in.
fn unit_pages(file: &[u8]) -> Vec<BTreeSet<usize>> {
    let (pages, layout) = (Pages(file), Layout::default());
    let mut found = vec![BTreeSet::new(); UNITS];
    let page = |bytes: &[u8]| (bytes.as_ptr().addr() - file.as_ptr().addr()) / 4096;
    let keys: Vec<[String; 2]> = (0..UNITS)
        .map(|i| {
            let NewUnit { name, file, .. } = unit(i);
            let content = crate::registry::ContentId::of(file.source());
            [Key::Unit(name), Key::Content(content)].map(|key| layout.key(&key))
        })
        .collect();
    let mut note = |key: &str, at: usize| {
        for (pages, _) in found.iter_mut().zip(&keys).filter(|(_, keys)| keys.contains(&key.into()))
        {
            pages.insert(at);
        }
    };
    let Some(Some(root)) = root_of_keys(pages).0 else { panic!("the file is intact") };
    pages.walk(root.page, &mut |part| {
        let Part::Row(row) = part else { panic!("the file is intact") };
        note(std::str::from_utf8(row.key).unwrap(), page(row.key));
    });
    found
}

#[tokio::test]
async fn intact_file_is_salvaged_completely() {
    let saved = salvaged(&store_file().await).unwrap();
    check(&saved, |_| true, "intact");
    assert_eq!((saved.unreadable, saved.uncertain), (vec![], vec![]));
    assert!(saved.lost_units.is_empty());
}

/// For any wrong byte, all units in other pages are saved, and no destroyed unit returns without a
/// report.
#[tokio::test]
async fn flipped_byte_loses_at_most_its_page() {
    let good = store_file().await;
    let places = unit_pages(&good);
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    let header = 0..320;
    let mut damaged = 0;
    for at in header.chain(used.iter().copied().step_by(used.len() / 400)) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        let saved = salvaged(&bad).unwrap();
        check(&saved, |i| !places[i].contains(&(at / 4096)), &format!("byte {at}"));
        damaged += usize::from(!saved.unreadable.is_empty());
    }
    assert!(damaged > 20, "only {damaged} flips had an effect");
}

#[tokio::test]
async fn zeroed_page_loses_at_most_its_rows() {
    let good = store_file().await;
    let places = unit_pages(&good);
    for page in 0..good.len() / 4096 {
        let mut bad = good.clone();
        bad[page * 4096..][..4096].fill(0);
        let saved = salvaged(&bad).unwrap();
        check(&saved, |i| !places[i].contains(&page), &format!("page {page}"));
    }
}

#[tokio::test]
async fn other_bytes_are_no_store_and_do_not_panic() {
    let good = store_file().await;
    for length in [good.len() / 2, 4097, 4096, 200, 10, 0] {
        if let Some(saved) = salvaged(&good[..length]) {
            check(&saved, |_| false, &format!("{length} bytes"));
        }
    }
    let mut random = 1_u64;
    let noise = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    });
    let mut noise: Vec<u8> = noise.take(1 << 20).collect();
    assert!(salvaged(&noise).is_none());
    // Each page looks like a leaf, in a file that looks like a store.
    for at in (0..noise.len()).step_by(4096) {
        noise[at] = 1;
    }
    noise[..4096].copy_from_slice(&good[..4096]);
    assert!(salvaged(&noise).is_none());
}

/// The file is only read, also if a daemon has it open.
#[tokio::test]
async fn salvage_does_not_write_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.redb");
    let mut bytes = store_file().await;
    bytes[0] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let refused = EmbeddedStore::open(&path).await.unwrap_err().to_string();
    assert!(refused.contains("fleetctl export --salvage"), "{refused}");
    let saved = EmbeddedStore::salvage(&path, &Layout::default()).await.unwrap();
    check(&saved, |_| true, "without its first byte");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);

    bytes[0] = b'r';
    std::fs::write(&path, &bytes).unwrap();
    let store = EmbeddedStore::open(&path).await.unwrap();
    let refused = EmbeddedStore::salvage(&path, &Layout::default()).await;
    assert!(matches!(refused, Err(StoreError::InUse { .. })), "{refused:?}");
    store.close().await;
}

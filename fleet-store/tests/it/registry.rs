//! Units and metadata: each operation and each refusal.

use std::sync::Arc;

use fleet_core::{Generation, Revision, TargetState};
use fleet_store::registry::{ExpectUnit, Key, MetadataChange};
use fleet_store::testing::FaultyStore;
use fleet_store::{Condition, Layout, Registry, RegistryError, Store, StoreError, Transaction};

use crate::support::{destroy, id, join, memory, mirror, name, registry, soon, submit, unit};

const FILE: &str = "# kept byte for byte\r\n[Service]\r\nExecStart=/bin/true\r\n";

// Holds: I-13
#[tokio::test(start_paused = true)]
async fn unit_is_stored_with_the_bytes_of_its_file() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let new = unit("a.service", FILE, TargetState::Loaded);
    let revision = registry.put_unit(new, ExpectUnit::Absent).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.revision, revision);
    let unit = snapshot.unit("a.service").unwrap();
    assert_eq!(unit.file.source(), FILE.as_bytes());
    assert_eq!((unit.desired, unit.generation), (TargetState::Loaded, Generation::ZERO));
}

#[tokio::test(start_paused = true)]
async fn expectation_on_the_unit_name_is_enforced() {
    let registry = registry();
    let put = |expect| registry.put_unit(unit("a.service", FILE, TargetState::Inactive), expect);
    let missing = put(ExpectUnit::Present).await;
    assert!(matches!(missing, Err(RegistryError::NotFound { name }) if name == "a.service"));
    let first = put(ExpectUnit::Absent).await.unwrap();
    let twice = put(ExpectUnit::Absent).await;
    let Err(RegistryError::AlreadyExists { name, modified }) = twice else {
        panic!("{twice:?}");
    };
    assert_eq!((name.as_str(), modified), ("a.service", first));
    put(ExpectUnit::Present).await.unwrap();
    put(ExpectUnit::Any).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn changed_unit_is_not_written() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let a = name("a.service");
    let put = |expect| registry.put_unit(unit("a.service", FILE, TargetState::Inactive), expect);
    let set = |seen| registry.set_desired_if_unchanged(&a, TargetState::Loaded, seen);
    let never = put(ExpectUnit::UnchangedSince(Revision(1000))).await;
    assert!(matches!(never, Err(RegistryError::NotFound { .. })));
    let first = put(ExpectUnit::Absent).await.unwrap();
    submit(&registry, "b.service").await;
    let second = put(ExpectUnit::UnchangedSince(first)).await.unwrap();
    let assert_changed = |error: RegistryError, at: Revision| {
        assert!(
            matches!(&error, RegistryError::Changed { name, modified }
            if *name == a && *modified == at),
            "{error}"
        );
    };
    assert_changed(put(ExpectUnit::UnchangedSince(first)).await.unwrap_err(), second);
    assert_changed(set(first).await.unwrap_err(), second);
    assert_changed(registry.destroy_if_unchanged(&a, &mirror, first).await.unwrap_err(), second);
    let third = set(second).await.unwrap();
    assert_changed(registry.destroy_if_unchanged(&a, &mirror, second).await.unwrap_err(), third);
    registry.destroy_if_unchanged(&a, &mirror, third).await.unwrap();
    let gone = registry.destroy_if_unchanged(&a, &mirror, third).await;
    assert!(matches!(gone, Err(RegistryError::NotFound { .. })));
}

#[tokio::test(start_paused = true)]
async fn setting_an_unchanged_desired_state_writes_nothing() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let unknown = registry.set_desired(&name("a.service"), TargetState::Loaded).await;
    assert!(matches!(unknown, Err(RegistryError::NotFound { .. })));
    submit(&registry, "a.service").await;
    let set = registry.set_desired(&name("a.service"), TargetState::Loaded).await.unwrap();
    let again = registry.set_desired(&name("a.service"), TargetState::Loaded).await.unwrap();
    assert_eq!(set, again);
    let snapshot = soon(mirror.wait_for(again)).await.unwrap();
    assert_eq!(snapshot.unit("a.service").unwrap().desired, TargetState::Loaded);
    assert_eq!(registry.store().read("").await.unwrap().revision, set);
}

#[tokio::test(start_paused = true)]
async fn optimistic_desired_state_is_set_despite_concurrent_changes() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let submitted = registry.set_desired(&name("a.service"), TargetState::Inactive).await.unwrap();
    let snapshot = soon(mirror.wait_for(submitted)).await.unwrap();
    let seen = snapshot.unit("a.service").unwrap();
    let set = |desired| registry.set_desired_optimistic(seen, desired);
    assert_eq!(set(TargetState::Inactive).await.unwrap(), submitted, "the state is set already");
    set(TargetState::Loaded).await.unwrap();
    let (_, generation) = registry.request_restart(&name("a.service")).await.unwrap();
    let last = set(TargetState::Launched).await.unwrap();
    assert_eq!(set(TargetState::Launched).await.unwrap(), last, "the request has changed already");
    let snapshot = soon(mirror.wait_for(last)).await.unwrap();
    let unit = snapshot.unit("a.service").unwrap();
    assert_eq!((unit.desired, unit.generation), (TargetState::Launched, generation));
    registry.destroy(&name("a.service"), &mirror).await.unwrap();
    let gone = set(TargetState::Loaded).await;
    assert!(matches!(gone, Err(RegistryError::NotFound { .. })), "{gone:?}");
}

// Holds: I-6
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_unit_updates_are_not_lost() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let mut writers = Vec::new();
    for i in 0..3 {
        let registry = registry.clone();
        writers.push(tokio::spawn(async move {
            let name = name("a.service");
            let mut restarts = 0;
            for round in 0..30 {
                match (i, round % 2) {
                    (0, _) => match registry.request_restart(&name).await {
                        Ok(_) => restarts += 1,
                        Err(error) => assert!(matches!(error, RegistryError::Conflict)),
                    },
                    (1, 0) => drop(registry.set_desired(&name, TargetState::Loaded).await),
                    (1, _) => drop(registry.set_desired(&name, TargetState::Launched).await),
                    _ => {
                        let file = format!("[Unit]\nDescription={round}\n");
                        let unit = unit("a.service", &file, TargetState::Launched);
                        drop(registry.put_unit(unit, ExpectUnit::Any).await);
                    }
                }
            }
            restarts
        }));
    }
    let mut restarts = 0;
    for writer in writers {
        restarts += writer.await.unwrap();
    }
    let revision = registry.store().read("").await.unwrap().revision;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let unit = snapshot.unit("a.service").unwrap();
    assert!(restarts > 0);
    assert!(unit.generation >= Generation(restarts), "{} < {restarts}", unit.generation);
}

#[tokio::test(start_paused = true)]
async fn generation_rises_across_destruction_of_the_unit() {
    let registry = registry();
    let unit_name = name("a.service");
    assert!(matches!(
        registry.request_restart(&unit_name).await,
        Err(RegistryError::NotFound { .. })
    ));
    submit(&registry, "a.service").await;
    let mut last = Generation::ZERO;
    for round in 0..6 {
        let (_, generation) = registry.request_restart(&unit_name).await.unwrap();
        assert!(generation > last, "{generation} after {last}");
        last = generation;
        if round % 2 == 0 {
            destroy(&registry, unit_name.as_str()).await.unwrap();
        }
        submit(&registry, "a.service").await;
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_unit_keeps_its_generation() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let (_, generation) = registry.request_restart(&name("a.service")).await.unwrap();
    let new = unit("a.service", FILE, TargetState::Launched);
    let revision = registry.put_unit(new, ExpectUnit::Present).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let unit = snapshot.unit("a.service").unwrap();
    assert_eq!((unit.generation, unit.desired), (generation, TargetState::Launched));
    assert_eq!(unit.file.source(), FILE.as_bytes());
}

// Holds: I-19
#[tokio::test(start_paused = true)]
async fn each_stop_raises_the_generation() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let launched = unit("a.service", FILE, TargetState::Launched);
    registry.put_unit(launched, ExpectUnit::Absent).await.unwrap();
    let name = name("a.service");
    let mut before = (TargetState::Launched, Generation::ZERO);
    let (stop, start) = (Some(TargetState::Loaded), Some(TargetState::Launched));
    for (set, expected, raises) in [
        (stop, TargetState::Loaded, true),
        (stop, TargetState::Loaded, false),
        (start, TargetState::Launched, false),
        (Some(TargetState::Inactive), TargetState::Inactive, true),
        (None, TargetState::Inactive, false),
        (start, TargetState::Launched, false),
        (None, TargetState::Loaded, true),
        (None, TargetState::Loaded, true),
    ] {
        let revision = match set {
            Some(desired) => registry.set_desired(&name, desired).await.unwrap(),
            None => registry.request_stop(&name).await.unwrap().0,
        };
        let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
        let unit = snapshot.unit("a.service").unwrap();
        let found = (unit.desired, unit.generation > before.1);
        assert_eq!(found, (expected, raises), "{set:?} of {before:?}");
        before = (unit.desired, unit.generation);
    }
    // Replacing the file can stop the unit too.
    let launched = unit("a.service", FILE, TargetState::Launched);
    let loaded = unit("a.service", FILE, TargetState::Loaded);
    registry.put_unit(launched, ExpectUnit::Present).await.unwrap();
    let revision = registry.put_unit(loaded, ExpectUnit::Present).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert!(snapshot.unit("a.service").unwrap().generation > before.1);
}

// Holds: I-7
#[tokio::test(start_paused = true)]
async fn destroyed_unit_leaves_only_its_content() {
    let registry = registry();
    submit(&registry, "a.service").await;
    let placed = |machine| Key::Placement(id(machine), name("a.service"));
    let extra = [placed("m-1"), placed("m-2"), Key::Reason(name("a.service"))];
    for key in extra {
        let put = Transaction::new().put(registry.layout().key(&key), "{}");
        registry.store().commit(put).await.unwrap();
    }
    destroy(&registry, "a.service").await.unwrap();
    let left = registry.store().read("").await.unwrap().entries;
    assert_eq!(left.len(), 1);
    assert!(left[0].key.starts_with("/fleet/contents/"));
    let again = destroy(&registry, "a.service").await;
    assert!(matches!(again, Err(RegistryError::NotFound { name }) if name == "a.service"));
}

#[tokio::test(start_paused = true)]
async fn replaced_files_are_kept_as_revisions() {
    let registry = registry();
    let web = name("web.service");
    assert!(matches!(registry.revisions(&web).await, Err(RegistryError::NotFound { .. })));
    let text = |number: u32| format!("[Service]\nExecStart=/bin/{number}\n");
    for number in [1, 2, 2, 3] {
        let unit = unit("web.service", &text(number), TargetState::Inactive);
        registry.put_unit(unit, ExpectUnit::Any).await.unwrap();
        registry.set_desired(&web, TargetState::Launched).await.unwrap();
    }
    let revisions = registry.revisions(&web).await.unwrap();
    let found: Vec<_> = revisions.iter().map(|it| (it.number, it.source.clone())).collect();
    assert_eq!(found, [1, 2, 3].map(|number| (number.into(), text(number).into_bytes())));
    assert!(revisions.iter().all(|it| it.written_at.is_some()));
    // A daemon that keeps no revisions replaces the file.
    let key = registry.layout().key(&Key::Revisions(web.clone()));
    registry.store().commit(Transaction::new().delete(key)).await.unwrap();
    let [current] = &registry.revisions(&web).await.unwrap()[..] else { panic!("there is one") };
    assert_eq!((current.number, current.written_at), (1, None));
    let unit = unit("web.service", &text(4), TargetState::Launched);
    registry.put_unit(unit, ExpectUnit::Present).await.unwrap();
    let numbers = registry.revisions(&web).await.unwrap();
    assert_eq!(numbers.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn damaged_record_can_be_replaced_and_destroyed() {
    let registry = registry();
    let key = registry.layout().key(&Key::Unit(name("a.service")));
    for _ in 0..2 {
        registry.store().commit(Transaction::new().put(&key, "damaged")).await.unwrap();
        let refused = registry.set_desired(&name("a.service"), TargetState::Loaded).await;
        assert!(matches!(refused, Err(RegistryError::Value { key: found, .. }) if found == key));
        submit(&registry, "a.service").await;
        registry.set_desired(&name("a.service"), TargetState::Loaded).await.unwrap();
        registry.store().commit(Transaction::new().put(&key, "damaged")).await.unwrap();
        destroy(&registry, "a.service").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn used_contents_are_not_collected() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    for unit_name in ["a.service", "b.service"] {
        submit(&registry, unit_name).await;
    }
    let contents = async || registry.store().read("/fleet/contents/").await.unwrap().entries.len();
    assert_eq!(contents().await, 1);
    let gone = destroy(&registry, "a.service").await.unwrap();
    soon(mirror.wait_for(gone)).await.unwrap();
    assert_eq!(mirror.unused_contents(), []);
    let gone = destroy(&registry, "b.service").await.unwrap();
    soon(mirror.wait_for(gone)).await.unwrap();
    let unused = mirror.unused_contents();
    assert_eq!(unused.len(), 1);

    // Another writer stores the same content between the listing and the collection. It must
    // remain.
    submit(&registry, "c.service").await;
    assert_eq!(registry.collect_contents(&unused).await.unwrap(), 0);
    assert_eq!(contents().await, 1);

    let gone = destroy(&registry, "c.service").await.unwrap();
    soon(mirror.wait_for(gone)).await.unwrap();
    assert_eq!(registry.collect_contents(&mirror.unused_contents()).await.unwrap(), 1);
    assert_eq!(contents().await, 0);
}

#[tokio::test(start_paused = true)]
async fn metadata_patch_is_atomic_and_the_last_change_counts() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let _presence = join(&registry, "m-1").await;
    let set = |key: &str, value: &str| MetadataChange::Set {
        machine: id("m-1"),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let remove = |key: &str| MetadataChange::Remove { machine: id("m-1"), key: key.to_owned() };
    let before = registry.store().read("").await.unwrap().revision;
    let changes = [set("disk", "hdd"), set("disk", "ssd"), remove("region"), set("gone", "x")];
    let revision = registry.patch_metadata(&changes).await.unwrap();
    assert_eq!(revision, before.next());
    let revision = registry.patch_metadata(&[remove("gone")]).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let metadata = &snapshot.machine("m-1").unwrap().metadata;
    assert_eq!(metadata.iter().collect::<Vec<_>>(), [(&"disk".to_owned(), &"ssd".to_owned())]);
    let revision = registry.patch_metadata(&[set("region", "us")]).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.machine("m-1").unwrap().metadata["region"], "us");
}

#[tokio::test(start_paused = true)]
async fn metadata_change_without_a_key_is_refused() {
    let registry = registry();
    let nameless = MetadataChange::Remove { machine: id("m-1"), key: String::new() };
    for changes in [&[][..], &[nameless]] {
        let refused = registry.patch_metadata(changes).await;
        assert!(matches!(refused, Err(RegistryError::Store(StoreError::Invalid(_)))));
    }
}

#[tokio::test(start_paused = true)]
async fn write_without_a_response_is_unknown() {
    let store = FaultyStore::new(memory());
    let registry = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    store.lose_responses(1);
    let new = unit("a.service", FILE, TargetState::Loaded);
    let result = registry.put_unit(new, ExpectUnit::Absent).await;
    assert!(matches!(result, Err(RegistryError::Store(StoreError::Unknown(_)))));
    let key = registry.layout().key(&Key::Unit(name("a.service")));
    assert_eq!(store.read(&key).await.unwrap().entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn clusters_in_one_store_are_separate() {
    let store = memory();
    let (one, other) =
        (Registry::new(store.clone(), "/one"), Registry::new(store.clone(), "/other"));
    let mirror = mirror(&other).await;
    submit(&one, "a.service").await;
    let gone = destroy(&other, "a.service").await;
    assert!(matches!(gone, Err(RegistryError::NotFound { .. })));
    submit(&other, "b.service").await;
    let revision = store.read("").await.unwrap().revision;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!(snapshot.units().map(|unit| unit.name.as_str()).collect::<Vec<_>>(), ["b.service"]);
    let kept = Transaction::new().when(Condition::present("/one/units/a.service"));
    assert!(matches!(store.commit(kept).await, Ok(fleet_store::Commit::Applied(_))));
}

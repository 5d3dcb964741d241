//! Concurrent writes of units are merged, and each gets its own result.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Revision, TargetState};
use fleet_store::registry::ExpectUnit;
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, Registry, RegistryError, StoreError};

use crate::support::{memory, mirror, name, soon, unit};

type CreateResult = Result<Revision, RegistryError>;

fn registry() -> (Registry, FaultyStore) {
    let store = FaultyStore::new(memory());
    store.set_delay(Duration::from_secs(1));
    (Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX), store)
}

/// Creates all units concurrently.
async fn create(registry: &Registry, names: &[&str]) -> Vec<CreateResult> {
    let tasks: Vec<_> = names
        .iter()
        .map(|name| {
            let file = format!("[Unit]\nDescription={name}\n");
            let (registry, unit) = (registry.clone(), unit(name, &file, TargetState::Inactive));
            tokio::spawn(async move { registry.put_unit(unit, ExpectUnit::Absent).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(soon(task).await.unwrap());
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn concurrent_creates_share_a_revision_and_fail_individually() {
    let (registry, store) = registry();
    create(&registry, &["b.service"]).await.remove(0).unwrap();
    assert_eq!(store.commits(), 1);
    let names = ["a.service", "b.service", "c.service", "d.service"];
    let answers = create(&registry, &names).await;
    let [Ok(_alone), Err(RegistryError::AlreadyExists { name: b, .. }), Ok(c), Ok(d)] =
        &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!((b.as_str(), c, store.commits()), ("b.service", d, 4), "once more without it");
    let mirror = mirror(&registry).await;
    let wanted = ["a.service", "c.service", "d.service"].map(|unit| {
        let registry = registry.clone();
        tokio::spawn(async move { registry.set_desired(&name(unit), TargetState::Launched).await })
    });
    let mut set = Vec::new();
    for task in wanted {
        set.push(soon(task).await.unwrap().unwrap());
    }
    let gone = soon(registry.destroy(&name("b.service"), &mirror)).await.unwrap();
    let snapshot = soon(mirror.wait_for(gone)).await.unwrap();
    let desired: Vec<_> = snapshot.units().map(|unit| (unit.name.as_str(), unit.desired)).collect();
    let launched = TargetState::Launched;
    assert_eq!(desired, ["a.service", "c.service", "d.service"].map(|unit| (unit, launched)));
    assert_eq!((set[1], store.commits()), (set[2], 7));
}

#[tokio::test(start_paused = true)]
async fn failed_commit_fails_every_merged_transaction() {
    // The first one is committed alone, and the others together.
    let names = ["a.service", "b.service", "c.service"];
    let (registry, store) = registry();
    store.set_unreachable(true);
    for answer in create(&registry, &names).await {
        assert!(matches!(answer, Err(RegistryError::Store(StoreError::Unavailable(_)))));
    }
    store.set_unreachable(false);
    store.lose_responses(2);
    for answer in create(&registry, &names).await {
        assert!(matches!(answer, Err(RegistryError::Store(StoreError::Unknown(_)))));
    }
    for answer in create(&registry, &names).await {
        assert!(matches!(answer, Err(RegistryError::AlreadyExists { .. })), "it was done");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_commit_does_not_cancel_others() {
    let (registry, _store) = registry();
    let begin = |name: &'static str| {
        let registry = registry.clone();
        tokio::spawn(async move { create(&registry, &[name]).await.remove(0) })
    };
    let (first, second) = (begin("a.service"), begin("b.service"));
    tokio::time::advance(Duration::from_millis(500)).await;
    first.abort();
    soon(second).await.unwrap().unwrap();
    let again = create(&registry, &["a.service"]).await.remove(0);
    assert!(matches!(again, Err(RegistryError::AlreadyExists { .. })), "{again:?}");
}

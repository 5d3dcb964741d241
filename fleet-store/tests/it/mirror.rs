//! The mirror follows the store, and an unreadable value affects nothing else.

use std::sync::Arc;

use fleet_core::{Revision, TargetState};
use fleet_store::mirror::MirrorStatus;
use fleet_store::registry::{ContentId, ExpectUnit, Key};
use fleet_store::testing::FaultyStore;
use fleet_store::{Layout, Mirror, Registry, Transaction};

use crate::support::{
    destroy, id, join, memory, mirror, name, registry, soon, state, submit, unit,
};

async fn put_raw(registry: &Registry, key: &Key, value: &[u8]) -> Revision {
    let put = Transaction::new().put(registry.layout().key(key), value);
    registry.store().commit(put).await.unwrap();
    registry.store().read("").await.unwrap().revision
}

#[tokio::test(start_paused = true)]
async fn mirror_starts_empty_and_behind_then_syncs() {
    let registry = registry();
    submit(&registry, "a.service").await;
    let mirror = Mirror::start(&registry);
    assert!(!mirror.is_current());
    assert!(matches!(mirror.status(), MirrorStatus::Behind { .. }));
    assert!(mirror.current().is_none());
    assert_eq!(mirror.snapshot().revision, Revision::ZERO);
    let snapshot = soon(mirror.wait_current()).await.unwrap();
    assert_eq!(snapshot.units().len(), 1);
    assert_eq!(mirror.status(), MirrorStatus::Synced);
    assert_eq!(mirror.current().unwrap().revision, snapshot.revision);
}

#[tokio::test(start_paused = true)]
async fn subscriber_is_woken_by_each_change() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let mut progress = mirror.subscribe();
    for i in 0..5 {
        progress.mark_unchanged();
        submit(&registry, &format!("u{i}.service")).await;
        soon(progress.changed()).await.unwrap();
        assert_eq!(mirror.snapshot().units().len(), i + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn reported_states_are_no_scheduling_input() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    submit(&registry, "a.service").await;
    let scheduling_revision = async |revision| {
        soon(mirror.wait_for(revision)).await.unwrap();
        mirror.subscribe().borrow().scheduling_revision
    };
    let submitted = registry.store().read("").await.unwrap().revision;
    assert_eq!(scheduling_revision(submitted).await, submitted);
    let published = presence.publish_states(&[state("a.service", "running")], &[]).await.unwrap();
    assert!(published > submitted);
    assert_eq!(scheduling_revision(published).await, submitted, "a state is a result");
    let wanted = registry.set_desired(&name("a.service"), TargetState::Launched).await.unwrap();
    assert_eq!(scheduling_revision(wanted).await, wanted);
    let placement = Key::Placement(id("m-1"), name("a.service"));
    let placed = put_raw(&registry, &placement, br#"{"v":2,"epoch":1}"#).await;
    assert_eq!(scheduling_revision(placed).await, placed);
}

// Holds: I-25
#[tokio::test(start_paused = true)]
async fn following_needs_no_further_reads() {
    let store = FaultyStore::new(memory());
    let registry = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    let mirror = mirror(&registry).await;
    let writer = Registry::new(Arc::new(store.clone()), Layout::DEFAULT_PREFIX);
    let before = store.reads();
    for i in 0..50 {
        submit(&writer, &format!("u{i}.service")).await;
    }
    let submitting = store.reads() - before;
    soon(mirror.wait_for(Revision(50))).await.unwrap();
    assert_eq!(submitting, 50, "each submission reads only its own record");
    assert_eq!(store.reads() - before, submitting);
}

#[tokio::test(start_paused = true)]
async fn old_snapshot_is_unchanged() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let old = soon(mirror.wait_for(Revision(1))).await.unwrap();
    destroy(&registry, "a.service").await.unwrap();
    let new = soon(mirror.wait_for(Revision(2))).await.unwrap();
    assert_eq!((old.units().len(), new.units().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn units_share_equal_files() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    submit(&registry, "b.service").await;
    let snapshot = soon(mirror.wait_for(Revision(2))).await.unwrap();
    let source = |unit: &str| snapshot.unit(unit).unwrap().file.source().as_ptr();
    assert_eq!(source("a.service"), source("b.service"));
}

// Holds: I-12
#[tokio::test(start_paused = true)]
async fn unreadable_value_is_a_fault_of_its_unit_only() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    for unit in ["good.service", "bad.service"] {
        submit(&registry, unit).await;
    }
    let key = Key::Unit(name("bad.service"));
    let id_of_text = ContentId::of(b"no unit file");
    let missing = format!(
        "{{\"v\":1,\"content\":\"{}\",\"desired\":\"loaded\",\"generation\":0}}",
        ContentId::of(b"never stored")
    );
    put_raw(&registry, &Key::Content(id_of_text), b"{\"v\":1}\nno unit file").await;
    let no_file =
        missing.replace(&ContentId::of(b"never stored").to_string(), &id_of_text.to_string());
    for value in ["", "{", "{\"v\":1}", "{\"v\":2,\"new\":[]}", "{\"v\":0}", &missing, &no_file] {
        let revision = put_raw(&registry, &key, value.as_bytes()).await;
        let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
        assert!(snapshot.unit("bad.service").is_none(), "{value}");
        assert!(snapshot.fault("bad.service").is_some(), "{value}");
        assert!(snapshot.unit("good.service").is_some(), "{value}");
        assert_eq!(snapshot.faults().len(), 1);
        // A new mirror shows the same.
        let fresh = self::mirror(&registry).await.snapshot();
        assert_eq!(fresh.fault("bad.service"), snapshot.fault("bad.service"));
        assert_eq!(fresh.units().len(), 1);
    }
    submit(&registry, "bad.service").await;
    let revision = registry.store().read("").await.unwrap().revision;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!((snapshot.units().len(), snapshot.faults().len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn fault_describes_the_problem() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let revision = put_raw(&registry, &Key::Unit(name("a.service")), b"{\"v\":2}").await;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let message = &snapshot.fault("a.service").unwrap().message;
    insta::assert_snapshot!(
        message.replace(": ", ":\n"),
        @r"
    the unit's record cannot be read:
    format 2 is newer than format 1, which this version of fleet reads:
    upgrade fleet on this machine
    "
    );
}

#[tokio::test(start_paused = true)]
async fn missing_content_is_a_fault_until_it_is_stored_again() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let file = "[Unit]\nDescription=x\n";
    let key = Key::Content(ContentId::of(file.as_bytes()));
    let new = unit("a.service", file, TargetState::Loaded);
    registry.put_unit(new, ExpectUnit::Any).await.unwrap();
    let delete = Transaction::new().delete(registry.layout().key(&key));
    registry.store().commit(delete).await.unwrap();
    let snapshot = soon(mirror.wait_for(Revision(2))).await.unwrap();
    assert!(snapshot.fault("a.service").is_some() && snapshot.units().len() == 0);
    let damaged = put_raw(&registry, &key, b"[Unit]\nDescription=y\n").await;
    let snapshot = soon(mirror.wait_for(damaged)).await.unwrap();
    assert!(snapshot.fault("a.service").unwrap().message.contains("damaged"));
    let mended = put_raw(&registry, &key, format!("{{\"v\":1}}\n{file}").as_bytes()).await;
    let snapshot = soon(mirror.wait_for(mended)).await.unwrap();
    assert!(snapshot.unit("a.service").is_some() && snapshot.faults().len() == 0);
}

/// Unknown is not absent: an unreadable placement must not look like none, and a machine with an
/// unreadable claim must not look absent.
// Holds: I-8
#[tokio::test(start_paused = true)]
async fn unreadable_placement_or_claim_is_not_absent() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    let _presence = join(&registry, "m-1").await;
    put_raw(&registry, &Key::Placement(id("m-1"), name("a.service")), b"{\"v\":3}").await;
    let revision = put_raw(&registry, &Key::Machine(id("m-1")), b"{\"v\":2}").await;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert!(snapshot.fault("a.service").unwrap().message.contains("placement"));
    assert_eq!(snapshot.machine("m-1").unwrap().metadata["region"], "eu");
    let fresh = self::mirror(&registry).await.snapshot();
    assert!(fresh.fault("a.service").is_some());
    assert!(fresh.machine("m-1").is_some());
    let good = b"{\"v\":2,\"epoch\":3}";
    let revision = put_raw(&registry, &Key::Placement(id("m-1"), name("a.service")), good).await;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert!(snapshot.unit("a.service").is_some() && snapshot.placement("a.service").is_some());
    let revision = put_raw(&registry, &Key::Placement(id("m-1"), name("a.service")), b"?").await;
    let key = registry.layout().key(&Key::Placement(id("m-1"), name("a.service")));
    registry.store().commit(Transaction::new().delete(key)).await.unwrap();
    let snapshot = soon(mirror.wait_for(revision.next())).await.unwrap();
    assert!(snapshot.unit("a.service").is_some() && snapshot.placement("a.service").is_none());
}

#[tokio::test(start_paused = true)]
async fn unreadable_states_reasons_and_metadata_are_ignored() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    submit(&registry, "a.service").await;
    put_raw(&registry, &Key::Reason(name("a.service")), b"?").await;
    put_raw(&registry, &Key::State(id("m-1"), name("a.service")), b"?").await;
    let metadata = Key::Metadata(id("m-1"), "disk".to_owned());
    let revision = put_raw(&registry, &metadata, b"?").await;
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    assert_eq!((snapshot.reasons().len(), snapshot.states().count()), (0, 0));
    assert!(snapshot.dynamic_metadata("m-1").is_none());
    assert_eq!((snapshot.units().len(), snapshot.faults().len()), (1, 0));
}

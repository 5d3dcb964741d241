//! Operators' intents for machines, as shown by the mirror.

use fleet_core::{Intent, Machine, Revision};
use fleet_store::registry::Key;
use fleet_store::{Mirror, Registry, Transaction};

use crate::support::{id, join, mirror, registry, soon};

async fn seen(mirror: &Mirror, revision: Revision) -> Option<(bool, Option<Intent>)> {
    let snapshot = soon(mirror.wait_for(revision)).await.unwrap();
    let said = |machine: &Machine| (machine.cordoned, machine.intent);
    snapshot.machine("m-1").map(|machine| said(machine))
}

async fn put_raw(registry: &Registry, bytes: &str) -> Revision {
    let key = registry.layout().key(&Key::Intent(id("m-1")));
    registry.store().commit(Transaction::new().put(key, bytes)).await.unwrap();
    registry.store().read("").await.unwrap().revision
}

#[tokio::test(start_paused = true)]
async fn intent_outlives_the_presence() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let presence = join(&registry, "m-1").await;
    let drained = Intent::Drained { min_available: 2 };
    let revision = registry.set_intent(&id("m-1"), Some(drained)).await.unwrap();
    assert_eq!(seen(&mirror, revision).await, Some((true, Some(drained))));
    presence.leave().await.unwrap();
    assert_eq!(seen(&mirror, revision.next()).await, None);
    join(&registry, "m-1").await;
    assert_eq!(seen(&mirror, revision.next().next()).await, Some((true, Some(drained))));
    let revision = registry.set_intent(&id("m-1"), None).await.unwrap();
    assert_eq!(seen(&mirror, revision).await, Some((false, None)));
    let again = registry.set_intent(&id("m-1"), None).await;
    assert!(again.is_ok(), "there is no request, and that is not an error");
}

#[tokio::test(start_paused = true)]
async fn machine_with_unreadable_intent_is_cordoned() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    join(&registry, "m-1").await;
    let newer = r#"{"v":2,"intent":"retired"}"#;
    let cordoned = Some((true, Some(Intent::Cordoned)));
    let revision = put_raw(&registry, newer).await;
    assert_eq!(seen(&mirror, revision).await, cordoned);
    let drained = Intent::Drained { min_available: 0 };
    registry.set_intent(&id("m-1"), Some(drained)).await.unwrap();
    let revision = put_raw(&registry, newer).await;
    assert_eq!(seen(&mirror, revision).await, Some((true, Some(drained))), "what was known stays");
}

//! The rebalancing request: operators create it, the leader updates its progress, and the mirror
//! shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
use fleet_core::{Epoch, Placement, Revision, TargetState};
use fleet_store::registry::{ExpectUnit, Key, PlacementWrites, RebalanceUpdate, SetPlacement};
use fleet_store::{Mirror, Registry, RegistryError, Transaction};

use crate::support::{TTL, id, mirror, name, registry, soon, unit};

const KEY: &str = "/fleet/orders/rebalancing";

async fn seen(mirror: &Mirror, revision: Revision) -> Option<Arc<Rebalancing>> {
    soon(mirror.wait_for(revision)).await.unwrap().rebalancing.clone()
}

fn limits(at_once: u32) -> RebalanceLimits {
    RebalanceLimits { max_in_flight: at_once, ..RebalanceLimits::default() }
}

/// The request after a unit was moved.
fn begun(order: &Rebalancing) -> Rebalancing {
    let moving = RecentMove { from: id("m-1"), to: id("m-2"), was_active: true };
    let moving = BTreeMap::from([(name("a.service"), moving)]);
    Rebalancing { moved: 1, moves: moving, ..order.clone() }
}

async fn put_raw(registry: &Registry, bytes: &str) -> Revision {
    let key = registry.layout().key(&Key::Rebalancing);
    registry.store().commit(Transaction::new().put(key, bytes)).await.unwrap();
    registry.store().read("").await.unwrap().revision
}

#[tokio::test(start_paused = true)]
async fn rebalancing_request_remains_until_it_is_ended() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let first = registry.request_rebalancing(limits(2)).await.unwrap();
    let news = mirror.wait_for(first).await.map(|_| mirror.delta_since(Revision(first.0 - 1)));
    assert!(news.unwrap().changes.is_some_and(|changes| changes.rebalancing));
    assert_eq!(seen(&mirror, first).await.as_deref(), Some(&Rebalancing::new(limits(2))));
    let stored = registry.store().read("/fleet/orders/").await.unwrap().entries;
    let form = r#"{"v":1,"max_in_flight":2,"gain":0,"min_available":0,"moved":0,"moves":[]}"#;
    assert_eq!((stored[0].key.as_str(), &stored[0].value[..]), (KEY, form.as_bytes()));
    assert_eq!(
        registry.request_rebalancing(limits(2)).await.unwrap(),
        first,
        "the unit exists already"
    );
    let end = registry.end_rebalancing().await.unwrap();
    assert_eq!(seen(&mirror, end).await, None);
    assert!(registry.end_rebalancing().await.is_ok(), "there is no request");
}

#[tokio::test(start_paused = true)]
async fn new_limits_keep_moves_in_flight() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let revision = registry.request_rebalancing(limits(2)).await.unwrap();
    let order = seen(&mirror, revision).await.unwrap();
    let noted = leader.update_rebalancing(&order, Some(&begun(&order))).await.unwrap();
    assert_eq!(seen(&mirror, noted).await.as_deref(), Some(&begun(&order)));
    assert_eq!(registry.request_rebalancing(limits(2)).await.unwrap(), noted);
    let revision = registry.request_rebalancing(limits(1)).await.unwrap();
    let now = seen(&mirror, revision).await.unwrap();
    assert_eq!((now.limits, now.moved, now.moves.len()), (limits(1), 0, 1));
}

#[tokio::test(start_paused = true)]
async fn leader_cannot_update_a_changed_rebalancing_request() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let revision = registry.request_rebalancing(limits(2)).await.unwrap();
    let order = seen(&mirror, revision).await.unwrap();
    registry.end_rebalancing().await.unwrap();
    for now in [Some(&begun(&order)), None] {
        let noted = leader.update_rebalancing(&order, now).await;
        assert!(matches!(noted, Err(RegistryError::Conflict)), "{noted:?}");
    }
    let revision = registry.request_rebalancing(limits(2)).await.unwrap();
    registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let noted = leader.update_rebalancing(&order, None).await;
    assert!(matches!(noted, Err(RegistryError::Deposed { .. })), "{noted:?}");
    assert!(seen(&mirror, revision).await.is_some());
}

/// Refused moves do not count as made.
#[tokio::test(start_paused = true)]
async fn refused_moves_do_not_update_the_rebalancing_request() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let leader = registry.campaign(&id("m-1"), TTL).await.unwrap().unwrap();
    let new = unit("a.service", "", TargetState::Launched);
    registry.put_unit(new, ExpectUnit::Absent).await.unwrap();
    let revision = registry.request_rebalancing(limits(2)).await.unwrap();
    let order = seen(&mirror, revision).await.unwrap();
    let place = |machine: &str, epoch: Revision, previous: Option<Placement>| PlacementWrites {
        set: vec![SetPlacement {
            unit: name("a.service"),
            machine: id(machine),
            epoch: Epoch(epoch.0),
            previous,
        }],
        ..PlacementWrites::default()
    };
    let placed = leader.commit(&place("m-1", revision, None)).await.unwrap();
    let previous = soon(mirror.wait_for(placed)).await.unwrap().placement("a.service").cloned();
    let balance = Some(RebalanceUpdate { previous: order.clone(), next: begun(&order) });
    let stale = previous.clone().map(|previous| Placement { machine: id("m-3"), ..previous });
    let stale = PlacementWrites { rebalance: balance.clone(), ..place("m-2", placed, stale) };
    let refused = leader.commit(&stale).await;
    assert!(matches!(refused, Err(RegistryError::Conflict)), "{refused:?}");
    let moves = PlacementWrites { rebalance: balance, ..place("m-2", placed, previous) };
    assert_eq!(seen(&mirror, placed).await, Some(order));
    let moved = leader.commit(&moves).await.unwrap();
    assert_eq!(seen(&mirror, moved).await.map(|order| order.moved), Some(1));
    let again = leader.commit(&moves).await;
    assert!(matches!(again, Err(RegistryError::Conflict)), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn unreadable_rebalancing_request_can_be_replaced() {
    let registry = registry();
    let mirror = mirror(&registry).await;
    let revision = registry.request_rebalancing(limits(2)).await.unwrap();
    assert!(seen(&mirror, revision).await.is_some());
    let revision = put_raw(&registry, r#"{"v":2,"spread":"evenly"}"#).await;
    assert_eq!(seen(&mirror, revision).await, None);
    let revision = registry.request_rebalancing(limits(2)).await.unwrap();
    assert!(seen(&mirror, revision).await.is_some());
}

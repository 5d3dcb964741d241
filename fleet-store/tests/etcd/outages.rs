//! Failing members and connections: unknown results are reported as unknown.

use std::sync::Arc;
use std::time::Duration;

use fleet_core::{Revision, TargetState};
use fleet_store::registry::{ExpectUnit, NewUnit};
use fleet_store::{
    Commit, Condition, EtcdConfig, EtcdStore, Layout, Mirror, Registry, Store as _, StoreError,
    Transaction, Watch,
};
use fleet_unitfile::UnitFile;

use crate::cluster::{Cluster, Kind};
use crate::link::{Link, LinkMode};
use crate::support::{chain, next, put, soon};

/// Short, because some tests wait for it.
const LIMIT: Duration = Duration::from_millis(500);

fn over(cluster: &Cluster, links: &[&Link]) -> EtcdStore {
    let endpoints = links.iter().map(|link| link.url().to_owned()).collect();
    let config = EtcdConfig { endpoints, time_limit: LIMIT, ..cluster.config("test/") };
    EtcdStore::new(&config).unwrap()
}

async fn present(store: &EtcdStore) -> Revision {
    store.read("").await.unwrap().revision
}

/// Reads until the watch has ended, and returns the error.
async fn end_of(mut watch: Watch) -> StoreError {
    soon(async {
        loop {
            if let Err(error) = watch.next().await {
                return error;
            }
        }
    })
    .await
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn commit_with_a_lost_response_may_be_applied() {
    let cluster = Cluster::one().await;
    let link = Link::to(&cluster.urls()[0]).await;
    let store = over(&cluster, &[&link]);
    put(&store, "before", "").await;
    link.set(LinkMode::HoldResponses);
    let lost = soon(store.commit(Transaction::new().put("a", "1"))).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    let lost = soon(store.read("")).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    link.set(LinkMode::Open);
    assert_eq!(store.read("a").await.unwrap().entries.len(), 1, "it did happen");
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn unreachable_endpoint_is_skipped() {
    let cluster = Cluster::one().await;
    let link = Link::to(&cluster.urls()[0]).await;
    let closed_port = "http://127.0.0.1:1".to_owned(); // a port without a listener
    for endpoints in [
        vec![closed_port.clone(), link.url().to_owned()],
        vec![closed_port.clone(), closed_port.clone(), link.url().to_owned()],
    ] {
        let config = EtcdConfig { endpoints, ..cluster.config("test/") };
        let store = EtcdStore::new(&config).unwrap();
        for i in 0..5 {
            put(&store, "a", &i.to_string()).await;
            assert_eq!(store.read("a").await.unwrap().entries.len(), 1);
        }
    }
    let config = EtcdConfig { endpoints: vec![closed_port], ..cluster.config("test/") };
    let store = EtcdStore::new(&config).unwrap();
    let failed = store.commit(Transaction::new().put("a", "1")).await.unwrap_err();
    assert!(matches!(failed, StoreError::Unavailable(_)), "it was never sent: {}", chain(&failed));
    assert!(chain(&failed).contains("refused"), "{}", chain(&failed));
    assert!(matches!(store.read("").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.watch("", Revision(1)).await, Err(StoreError::Unavailable(_))));
}

/// A client that chose members at random would fail repeatedly while one member is stopped.
#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn stopped_member_fails_no_call() {
    let mut cluster = Cluster::start(Kind { members: 3, secure: false, arguments: &[] }).await;
    let store = |number| {
        let config = EtcdConfig { shuffle_seed: Some(number), ..cluster.config("test/") };
        EtcdStore::new(&config).unwrap()
    };
    let stores = [0, 1, 2].map(store);
    for store in &stores {
        put(store, "a", "").await;
    }
    cluster.kill_member(1);
    for store in &stores {
        // The members may have to elect a leader first.
        soon(async { while store.read("").await.is_err() {} }).await;
        for i in 0..100 {
            put(store, "a", &i.to_string()).await;
            assert_eq!(store.read("").await.unwrap().entries.len(), 1);
        }
    }
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn silent_endpoint_is_skipped_and_the_watch_moves() {
    let cluster = Cluster::one().await;
    let (first, second) = (Link::to(&cluster.urls()[0]).await, Link::to(&cluster.urls()[0]).await);
    let store = over(&cluster, &[&first, &second]);
    let other = cluster.store("test/");
    let mut watch = store.watch("", present(&store).await).await.unwrap();
    let one = put(&other, "a", "1").await;
    assert_eq!(next(&mut watch).await.revision, one);
    first.set(LinkMode::HoldAll);
    let two = put(&other, "a", "2").await;
    assert_eq!(soon(store.read("a")).await.unwrap().entries[0].value, b"2");
    assert_eq!(next(&mut watch).await.revision, two);
    second.set(LinkMode::Cut);
    first.set(LinkMode::Open);
    let three = put(&other, "a", "3").await;
    assert_eq!(next(&mut watch).await.revision, three);
}

// Holds: I-24
#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn watch_that_cannot_continue_returns_an_error() {
    let cluster = Cluster::one().await;
    for way in [LinkMode::HoldAll, LinkMode::HoldResponses, LinkMode::Cut] {
        let link = Link::to(&cluster.urls()[0]).await;
        let store = over(&cluster, &[&link]);
        let watch = store.watch("", present(&store).await).await.unwrap();
        link.set(way);
        assert!(matches!(end_of(watch).await, StoreError::WatchLost), "{way:?}");
    }
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn watch_of_a_quiet_prefix_lasts() {
    let cluster = Cluster::one().await;
    let link = Link::to(&cluster.urls()[0]).await;
    let store = over(&cluster, &[&link]);
    let mut watch = store.watch("quiet", present(&store).await).await.unwrap();
    // Until a lease ends, which is longer than the watch tolerates silence.
    let lease = store.grant(Duration::from_secs(2)).await.unwrap();
    let bound = Transaction::new().put_leased("quiet", "", lease);
    let Commit::Applied(bound) = store.commit(bound).await.unwrap() else { panic!("refused") };
    assert_eq!(next(&mut watch).await.revision, bound);
    assert_eq!(next(&mut watch).await.changes[0].value, None);
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn watch_and_leases_survive_a_server_restart() {
    let mut cluster = Cluster::start(Kind { members: 1, secure: true, arguments: &[] }).await;
    let patient = Duration::from_secs(20);
    let config = EtcdConfig { time_limit: patient, ..cluster.config("test/") };
    let store = EtcdStore::new(&config).unwrap();
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    let bind = Transaction::new().put_leased("bound", "", lease);
    assert!(matches!(store.commit(bind).await.unwrap(), Commit::Applied(_)));
    let mut watch = store.watch("", present(&store).await).await.unwrap();
    for i in 0..3 {
        let made = put(&store, "a", &i.to_string()).await;
        assert_eq!(next(&mut watch).await.revision, made);
        cluster.kill_member(0);
        let down = store.commit(Transaction::new().put("a", "never")).await;
        assert!(matches!(down, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))));
        cluster.start_member(0);
        assert!(cluster.wait_until_ready().await);
    }
    let made = put(&store, "a", "last").await;
    assert_eq!(next(&mut watch).await.revision, made);
    store.renew(lease).await.unwrap();
    assert_eq!(store.read("bound").await.unwrap().entries[0].lease, Some(lease));
}

/// Members keep tokens in memory, so a restarted member knows none.
#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn lost_token_is_renewed() {
    let mut cluster = Cluster::three_secure().await;
    let store = cluster.store("test/");
    put(&store, "a", "1").await;
    for member in 0..3 {
        cluster.kill_member(member);
        cluster.start_member(member);
        assert!(cluster.wait_until_ready().await);
    }
    let revision = put(&store, "a", "2").await;
    let mut watch = store.watch("", revision).await.unwrap();
    for member in 0..3 {
        cluster.kill_member(member);
        cluster.start_member(member);
        assert!(cluster.wait_until_ready().await);
    }
    let other = cluster.store("test/");
    let made = put(&other, "a", "3").await;
    let seen = next(&mut watch).await;
    assert_eq!(seen.revision, made);
}

// Holds: I-24
#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn isolated_member_does_not_respond() {
    let mut cluster = Cluster::start(Kind { members: 3, secure: false, arguments: &[] }).await;
    let endpoints = vec![cluster.urls()[0].clone()];
    let config = EtcdConfig { endpoints, ..cluster.config("test/") };
    let store = EtcdStore::new(&config).unwrap();
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    let revision = put(&store, "a", "1").await;
    let watch = store.watch("", revision).await.unwrap();
    cluster.kill_member(1);
    cluster.kill_member(2);
    let never = Transaction::new().when(Condition::absent("b")).put("b", "1");
    assert!(soon(store.commit(never)).await.is_err());
    assert!(matches!(soon(store.read("")).await, Err(StoreError::Unavailable(_))));
    let looks = Transaction::new().when(Condition::value("a", "1"));
    assert!(matches!(soon(store.commit(looks)).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(soon(store.renew(lease)).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(end_of(watch).await, StoreError::WatchLost));
    cluster.start_member(1);
    cluster.start_member(2);
    assert!(cluster.wait_until_ready().await);
    store.renew(lease).await.unwrap();
    put(&store, "a", "2").await;
}

#[tokio::test]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn mirror_resyncs_after_missed_changes_are_compacted() {
    let cluster = Cluster::one().await;
    let link = Link::to(&cluster.urls()[0]).await;
    let layout = Layout::DEFAULT_PREFIX;
    let behind = Registry::new(Arc::new(cluster.store("test/")), layout);
    let mirror = Mirror::start(&Registry::new(Arc::new(over(&cluster, &[&link])), layout));
    let before = submit(&behind, "before.service").await;
    soon(mirror.wait_for(before)).await.unwrap();
    link.set(LinkMode::Cut);
    let mut progress = mirror.subscribe();
    soon(progress.wait_for(|progress| !progress.is_current)).await.unwrap();
    let seen = Mirror::start(&behind);
    soon(seen.wait_current()).await.unwrap();
    behind.destroy(&"before.service".parse().unwrap(), &seen).await.unwrap();
    let after = submit(&behind, "after.service").await;
    cluster.etcdctl(&["compact", &after.to_string()]);
    link.set(LinkMode::Open);
    let snapshot = soon(mirror.wait_for(after)).await.unwrap();
    let units: Vec<_> = snapshot.units().map(|unit| unit.name.to_string()).collect();
    assert_eq!(units, ["after.service"]);
    soon(mirror.wait_current()).await.unwrap();
    let last = submit(&behind, "last.service").await;
    assert_eq!(soon(mirror.wait_for(last)).await.unwrap().units().len(), 2);
}

async fn submit(registry: &Registry, name: &str) -> Revision {
    let unit = NewUnit {
        name: name.parse().unwrap(),
        file: UnitFile::parse("[Service]\nExecStart=/bin/true\n").unwrap(),
        desired: TargetState::Launched,
    };
    registry.put_unit(unit, ExpectUnit::Absent).await.unwrap()
}

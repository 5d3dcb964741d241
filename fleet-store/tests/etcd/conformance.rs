//! The etcd store keeps the contract of every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use fleet_store::testing::{FaultInjector, conformance, conformance_under_faults};
use fleet_store::{EtcdConfig, EtcdStore, Store};

use crate::cluster::Cluster;
use crate::link::{Link, LinkMode};
use crate::support::put;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn single_server_keeps_the_contract() {
    keeps_the_contract(&Cluster::one().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn secured_cluster_keeps_the_contract() {
    keeps_the_contract(&Cluster::three_secure().await).await;
}

/// Checks each promise on separate keys.
async fn keeps_the_contract(cluster: &Cluster) {
    let count = AtomicU32::new(0);
    let make = || async {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Arc::new(cluster.store(&format!("test/{number}/"))) as Arc<dyn Store>
    };
    conformance(make).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn single_server_keeps_the_contract_under_faults() {
    keeps_the_contract_under_faults(Cluster::one().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test --full"]
async fn secured_cluster_keeps_the_contract_under_faults() {
    keeps_the_contract_under_faults(Cluster::three_secure().await).await;
}

/// Fault injection through the links to all members of a real cluster.
struct Links {
    cluster: Arc<Cluster>,
    links: Vec<Link>,
}

impl Links {
    async fn to(cluster: Arc<Cluster>) -> Self {
        let mut links = Vec::new();
        for url in cluster.urls() {
            links.push(Link::to(&url).await);
        }
        Self { cluster, links }
    }

    /// Returns a store that reaches the members only over these links.
    fn store(&self, prefix: &str) -> EtcdStore {
        let endpoints = self.links.iter().map(|link| link.url().to_owned()).collect();
        let config = EtcdConfig { endpoints, ..self.cluster.config(prefix) };
        EtcdStore::new(&config).unwrap()
    }

    fn set(&self, way: LinkMode) {
        self.links.iter().for_each(|link| link.set(way));
    }
}

#[async_trait]
impl FaultInjector for Links {
    async fn disconnect(&self) {
        self.set(LinkMode::Cut);
    }

    async fn slow_down(&self) {
        self.set(LinkMode::Slow);
    }

    async fn heal(&self) {
        self.set(LinkMode::Open);
    }

    /// Compacts at the revision of a write outside the tested stores, because etcd keeps the change
    /// at the compaction revision itself.
    async fn compact(&self) {
        let beside = put(&self.cluster.store("test/beside/"), "a", "").await;
        self.cluster.etcdctl(&["compact", &beside.to_string()]);
    }
}

/// Checks each promise on separate keys and links.
async fn keeps_the_contract_under_faults(cluster: Cluster) {
    let cluster = Arc::new(cluster);
    let count = AtomicU32::new(0);
    let make = || async {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let links = Links::to(cluster.clone()).await;
        let store = links.store(&format!("test/{number}/"));
        (Arc::new(store) as Arc<dyn Store>, Arc::new(links) as Arc<dyn FaultInjector>)
    };
    conformance_under_faults(make).await;
}

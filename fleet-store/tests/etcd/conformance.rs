//! The etcd store keeps the contract that every store keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fleet_store::Store;
use fleet_store::testing::conformance;

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test"]
async fn one_server_keeps_the_contract() {
    keeps_the_contract(&Cluster::one().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd: run by scripts/test"]
async fn three_members_with_certificates_and_users_keep_the_contract() {
    keeps_the_contract(&Cluster::three_secure().await).await;
}

/// Each promise is checked on keys of its own.
async fn keeps_the_contract(cluster: &Cluster) {
    let count = AtomicU32::new(0);
    let make = || async {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Arc::new(cluster.store(&format!("test/{number}/"))) as Arc<dyn Store>
    };
    conformance(make).await;
}

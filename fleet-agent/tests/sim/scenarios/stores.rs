//! Machines whose store was emptied or replaced.

use std::time::Duration;

use crate::cluster::Cluster;

/// Longer than a lease, a rejoin grace and a blind start together.
const LONG: Duration = Duration::from_secs(300);

const UNITS: [&str; 3] = ["a.service", "b.service", "h.service"];

/// Two machines with units, in a store with a lineage.
async fn cluster_with_units() -> Cluster {
    let mut cluster = Cluster::start(2).await;
    cluster.begin_lineage("first").await;
    cluster.launch("a.service", "").await;
    cluster.launch("b.service", "").await;
    cluster.launch("h.service", "Global=true").await;
    cluster.rest().await;
    cluster.wait(Duration::from_secs(2)).await; // the desired state is on disk
    cluster
}

fn running(cluster: &Cluster) -> (usize, Vec<[Option<u32>; 2]>) {
    let pids = |unit: &&str| [0, 1].map(|machine| cluster.pid(machine, unit));
    (cluster.calls(), UNITS.iter().map(pids).collect())
}

// Holds: I-8
#[tokio::test(start_paused = true)]
async fn restart_on_replaced_store_ends_nothing() {
    for lineage in [None, Some("second")] {
        let mut cluster = cluster_with_units().await;
        let before = running(&cluster);
        cluster.replace_store(lineage).await;
        cluster.wait(LONG).await;
        assert_eq!(running(&cluster), before, "daemons that ran, {lineage:?}");
        for machine in [0, 1] {
            cluster.crash(machine);
            cluster.boot(machine);
        }
        cluster.wait(LONG).await;
        assert_eq!(running(&cluster), before, "restarted daemons, {lineage:?}");
        assert_eq!(cluster.history.now().machines().len(), 0, "machines joined, {lineage:?}");
    }
}

// Holds: I-8
#[tokio::test(start_paused = true)]
async fn accepted_store_decides_on_units() {
    let mut cluster = cluster_with_units().await;
    let kept = cluster.pid(1, "h.service");
    cluster.replace_store(Some("second")).await;
    for machine in [0, 1] {
        cluster.crash(machine);
    }
    cluster.accept_store(0).await;
    for machine in [0, 1] {
        cluster.boot(machine);
    }
    cluster.wait(LONG).await;
    assert!(cluster.hosts[0].units().is_empty(), "{:?}", cluster.hosts[0].units());
    assert_eq!(cluster.pid(1, "h.service"), kept, "the other machine has accepted nothing");
    cluster.launch("n.service", "").await;
    cluster.wait(LONG).await;
    assert_eq!(cluster.active_on("n.service"), [0]);
    // The accepted store is now the protected one.
    cluster.crash(0);
    cluster.replace_store(Some("third")).await;
    cluster.boot(0);
    cluster.wait(LONG).await;
    assert_eq!(cluster.active_on("n.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn machine_without_units_follows_any_store() {
    let mut cluster = Cluster::start(1).await;
    cluster.begin_lineage("first").await;
    cluster.wait(Duration::from_secs(2)).await;
    cluster.crash(0);
    cluster.replace_store(Some("second")).await;
    cluster.boot(0);
    cluster.launch("a.service", "").await;
    cluster.wait(LONG).await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

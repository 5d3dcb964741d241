//! Many units at once: their cost does not depend on how often each of them changes.

use std::time::Duration;

use crate::cluster::Cluster;

const MANY: usize = 100;

#[tokio::test(start_paused = true)]
async fn burst_of_units_is_published_in_batches() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("first.service", "").await;
    cluster.wait(Duration::from_secs(2)).await;
    let host = &cluster.hosts[0];
    let (listings, commits) = (host.listings(), host.link().commits());
    for number in 0..MANY {
        cluster.launch(&format!("u{number}.service"), "").await;
    }
    cluster.wait(Duration::from_secs(2)).await;
    let host = &cluster.hosts[0];
    let (listings, commits) = (host.listings() - listings, host.link().commits() - commits);
    assert_eq!(cluster.active_on("u99.service"), [0]);
    let now = cluster.history.now();
    assert!(now.state("u99.service", "m0").is_some_and(|state| state.systemd.main_pid.is_some()));
    // Each has one commit of the engine, and one listing by the agent that sees the placement.
    assert!(listings < MANY + MANY / 4, "{listings} listings");
    assert!(commits < MANY + MANY / 4, "{commits} commits");
}

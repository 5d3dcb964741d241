//! Units with `StartAfter=`: starts that wait for units of other machines.

use std::time::Duration;

use fleet_agent::testing::Behaviour;
use fleet_core::{ActiveState, TargetState};

use crate::cluster::{Cluster, TTL};
use crate::units::name;

/// Returns the published problem of a unit on a machine.
fn problem(cluster: &Cluster, unit: &str, machine: &str) -> Option<String> {
    cluster.history.now().state(unit, machine)?.problem.clone()
}

/// Returns a cluster of two machines with `web.service` on the first, to be started after
/// `db.service`.
async fn waiting_cluster() -> Cluster {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("web.service", "MachineID=m0\nStartAfter=db.service").await;
    cluster.wait(PUBLISHED).await;
    cluster
}

const DB: &str = "MachineID=m1";

/// Time in which each machine publishes its states, and acts on those of the others.
const PUBLISHED: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn start_waits_until_a_unit_elsewhere_is_active() {
    let mut cluster = waiting_cluster().await;
    let waits = |how: &str| Some(format!("waits for db.service (StartAfter=), which {how}"));
    assert_eq!(problem(&cluster, "web.service", "m0"), waits("does not exist"));
    cluster.submit("db.service", DB, 0, TargetState::Loaded).await;
    cluster.wait(PUBLISHED).await;
    assert_eq!(problem(&cluster, "web.service", "m0"), waits("is to be loaded only"));
    let db = name("db.service");
    cluster.hosts[1].fake().set_behaviour(&db, Behaviour::Exits(3));
    cluster.launch("db.service", DB).await;
    cluster.wait(PUBLISHED).await;
    assert_eq!(problem(&cluster, "web.service", "m0"), waits("has failed on m1"));
    let state = cluster.history.now().state("web.service", "m0").cloned().expect("it is loaded");
    assert_eq!(state.requested, TargetState::Loaded);
    cluster.hosts[1].fake().set_behaviour(&db, Behaviour::Runs);
    cluster.registry.request_restart(&db).await.expect("it is there");
    cluster.wait(PUBLISHED).await;
    assert_eq!(cluster.active_on("web.service"), [0]);
    assert_eq!(problem(&cluster, "web.service", "m0"), None);
}

#[tokio::test(start_paused = true)]
async fn running_unit_goes_on_without_the_named_unit() {
    let mut cluster = waiting_cluster().await;
    cluster.launch("db.service", DB).await;
    cluster.wait(PUBLISHED).await;
    let before = cluster.pid(0, "web.service");
    assert!(before.is_some());
    cluster.hosts[1].fake().crash(&name("db.service"));
    cluster.wait(PUBLISHED).await;
    cluster.destroy(&name("db.service")).await;
    cluster.wait(PUBLISHED).await;
    cluster.crash(0);
    cluster.boot(0);
    cluster.rest().await;
    assert_eq!(
        (cluster.pid(0, "web.service"), problem(&cluster, "web.service", "m0")),
        (before, None)
    );
}

#[tokio::test(start_paused = true)]
async fn finished_oneshot_lets_a_unit_start() {
    let mut cluster = waiting_cluster().await;
    cluster.hosts[1].fake().set_behaviour(&name("db.service"), Behaviour::Exits(0));
    cluster.launch("db.service", DB).await;
    cluster.wait(PUBLISHED).await;
    let state = cluster.history.now().state("db.service", "m1").cloned().expect("it has run");
    assert_eq!(state.systemd.active, ActiveState::Inactive);
    assert_eq!(cluster.active_on("web.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn rebooted_machine_starts_its_units_in_order() {
    let mut cluster = waiting_cluster().await;
    cluster.launch("db.service", DB).await;
    cluster.wait(PUBLISHED).await;
    cluster.reboot(1);
    cluster.reboot(0);
    cluster.boot(0);
    cluster.wait(TTL).await;
    assert!(cluster.active_on("web.service").is_empty(), "db.service is lost");
    cluster.boot(1);
    cluster.rest().await;
    assert_eq!(cluster.active_on("web.service"), [0]);
}

/// A held unit reports why it cannot be loaded, rather than that it waits.
#[tokio::test(start_paused = true)]
async fn failed_load_of_a_held_unit_is_reported() {
    let mut cluster = Cluster::start(2).await;
    cluster.hosts[0].fake().fail_load(&name("web.service"), "no such option");
    cluster.launch("web.service", "MachineID=m0\nStartAfter=db.service").await;
    cluster.wait(PUBLISHED).await;
    let text = problem(&cluster, "web.service", "m0").expect("it is reported");
    assert!(text.contains("no such option"), "{text}");
}

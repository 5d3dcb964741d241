//! Machines without the store, and the state stored by their agents.

use std::time::Duration;

use fleet_agent::AgentState as _;
use fleet_agent::agent::StateKey;
use fleet_agent::testing::Call;
use fleet_core::TargetState;

use crate::cluster::Cluster;
use crate::units::name;

/// How long a daemon waits for the store.
const BLIND: Duration = Duration::from_secs(60);

/// A machine with units that was booted while the store was out of reach.
async fn booted_blind() -> Cluster {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.launch("h.service", "Global=true").await;
    cluster.launch("s.service", "OnPartition=stop").await;
    cluster.submit("b.service", "", 0, TargetState::Loaded).await;
    cluster.launch("c.service", "").await;
    cluster.destroy(&name("c.service")).await;
    cluster.wait(Duration::from_secs(1)).await; // a note is not written more often
    cluster.hosts[0].set_unreachable(true);
    cluster.reboot(0);
    cluster.boot(0);
    cluster
}

#[tokio::test(start_paused = true)]
async fn boot_without_store_runs_last_known_units() {
    let mut cluster = booted_blind().await;
    cluster.wait(BLIND - Duration::from_secs(1)).await;
    assert!(cluster.hosts[0].units().is_empty());
    cluster.wait(Duration::from_secs(2)).await;
    let units = cluster.hosts[0].units();
    let told = units.iter().map(|unit| format!("{} {}", unit.unit, unit.state.active));
    let told: Vec<String> = told.collect();
    assert_eq!(told, ["a.service active", "b.service inactive", "h.service active"]);
    let before = (cluster.pid(0, "a.service"), cluster.pid(0, "h.service"));
    cluster.heal_and_rest().await;
    assert_eq!((cluster.pid(0, "a.service"), cluster.pid(0, "h.service")), before);
    assert_eq!(cluster.active_on("s.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn stored_state_is_corrected_once_store_is_back() {
    let mut cluster = booted_blind().await;
    cluster.destroy(&name("a.service")).await;
    cluster.wait(BLIND * 10).await;
    assert_eq!(cluster.active_on("a.service"), [0], "it cannot be known");
    let ends = |call: &Call| matches!(call, Call::Stop(_) | Call::Unload(_) | Call::Restart(..));
    let calls = cluster.hosts[0].events();
    assert!(!calls.iter().any(|event| event.away && ends(&event.call)), "{calls:?}");
    cluster.heal_and_rest().await;
    assert!(cluster.active_on("a.service").is_empty());
}

#[tokio::test(start_paused = true)]
async fn stored_state_restarts_no_running_unit() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    let before = (cluster.pid(0, "a.service"), cluster.calls());
    cluster.hosts[0].set_unreachable(true);
    cluster.crash(0);
    cluster.registry.request_restart(&name("a.service")).await.expect("it is there");
    cluster.boot(0);
    cluster.wait(BLIND * 2).await;
    assert_eq!((cluster.pid(0, "a.service"), cluster.calls()), before);
}

#[tokio::test(start_paused = true)]
async fn damaged_stored_state_is_ignored() {
    let mut cluster = booted_blind().await;
    cluster.crash(0);
    let notes = cluster.hosts[0].notes();
    notes.write(StateKey::DesiredState, b"{\"v\":1,".to_vec()).await.expect("it is in memory");
    cluster.boot(0);
    cluster.wait(BLIND * 2).await;
    assert!(cluster.hosts[0].units().is_empty());
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn state_is_stored_only_on_change() {
    let mut cluster = Cluster::start(2).await;
    let here = format!("MachineID={}", cluster.hosts[0].id());
    cluster.launch("mine.service", &here).await;
    let notes = cluster.hosts[0].notes();
    let stored = notes.read(StateKey::DesiredState).await.expect("it is in memory");
    assert!(String::from_utf8_lossy(&stored.expect("it was stored")).contains("mine.service"));
    // Another write would replace this.
    notes.write(StateKey::DesiredState, b"mark".to_vec()).await.expect("it is in memory");
    cluster.hosts[0].fake().crash(&name("mine.service"));
    cluster.launch("everybodys.service", "Global=true\nMachineMetadata=region=south").await;
    cluster.wait(Duration::from_secs(600)).await;
    assert_eq!(
        notes.read(StateKey::DesiredState).await.expect("it is there"),
        Some(b"mark".to_vec())
    );
}

#[tokio::test(start_paused = true)]
async fn state_is_stored_once_a_second_unless_urgent() {
    let mut cluster = Cluster::start(1).await;
    let notes = cluster.hosts[0].notes();
    let mark = || notes.write(StateKey::DesiredState, b"mark".to_vec());
    let is_marked = async || {
        let stored = notes.read(StateKey::DesiredState).await.expect("it is in memory");
        stored.is_some_and(|stored| stored == b"mark")
    };
    cluster.launch("a.service", "").await;
    mark().await.expect("it is in memory");
    cluster.launch("b.service", "").await;
    cluster.launch("c.service", "").await;
    assert!(is_marked().await, "it was written recently");
    cluster.wait(Duration::from_secs(1)).await;
    assert!(!is_marked().await, "it is never left undone");
    cluster.launch("d.service", "").await;
    mark().await.expect("it is in memory");
    cluster.launch("s.service", "OnPartition=stop").await;
    assert!(!is_marked().await, "the unit may not start before");
}

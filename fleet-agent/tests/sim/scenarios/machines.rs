//! Machines and daemons that end, return, or lose the store.

use std::time::Duration;

use fleet_agent::testing::Call;

use crate::cluster::{Cluster, TTL};

// Holds: I-1
#[tokio::test(start_paused = true)]
async fn unit_moved_during_partition_stops_after_it() {
    let mut cluster = Cluster::start(3).await;
    cluster.launch("a.service", "").await;
    let [cut] = cluster.active_on("a.service")[..] else { panic!("it is active once") };
    cluster.hosts[cut].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    let twice = cluster.active_on("a.service");
    assert!(twice.len() == 2 && twice.contains(&cut), "{twice:?}");
    cluster.hosts[cut].set_unreachable(false);
    cluster.wait(Duration::from_secs(20)).await;
    let once = cluster.active_on("a.service");
    assert!(once.len() == 1 && !once.contains(&cut), "{once:?}");
    cluster.rest().await;
}

// Holds: I-2
#[tokio::test(start_paused = true)]
async fn outdated_order_is_not_executed_after_reboot() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "").await;
    let [old] = cluster.active_on("a.service")[..] else { panic!("it is active once") };
    cluster.reboot(old);
    cluster.wait(TTL * 2).await;
    let calls = cluster.hosts[old].events().len();
    cluster.boot(old);
    cluster.rest().await;
    assert_eq!(cluster.active_on("a.service"), [1 - old]);
    let since = cluster.hosts[old].events().split_off(calls);
    assert!(since.is_empty(), "{since:?}");
}

// Holds: I-8, D-32
#[tokio::test(start_paused = true)]
async fn store_outage_stops_nothing() {
    let mut cluster = Cluster::start(3).await;
    let units = ["a.service", "b.service", "c.service", "l.socket"];
    for unit in units {
        cluster.launch(unit, "").await;
    }
    cluster.rest().await;
    let running = |cluster: &Cluster| {
        let pids = |unit| [0, 1, 2].map(|machine| cluster.pid(machine, unit));
        (cluster.calls(), units.map(pids))
    };
    let before = running(&cluster);
    cluster.hosts.iter().for_each(|host| host.set_unreachable(true));
    for unit in units {
        cluster.destroy(&crate::units::name(unit)).await;
    }
    cluster.wait(Duration::from_secs(3600)).await;
    assert_eq!(running(&cluster), before);
}

// Holds: I-8, D-32
#[tokio::test(start_paused = true)]
async fn long_partition_of_all_machines_moves_nothing() {
    let mut cluster = Cluster::start(3).await;
    let units = ["a.service", "b.service", "c.service", "l.socket"];
    for unit in units {
        cluster.launch(unit, "").await;
    }
    cluster.rest().await;
    let before = (cluster.calls(), units.map(|unit| cluster.active_on(unit)));
    cluster.hosts.iter().for_each(|host| host.set_unreachable(true));
    cluster.wait(Duration::from_secs(3600)).await;
    assert_eq!(cluster.history.now().machines().len(), 0);
    // They return one after the other.
    for host in cluster.hosts.clone() {
        host.set_unreachable(false);
        cluster.wait(Duration::from_secs(1)).await;
    }
    cluster.rest().await;
    assert_eq!((cluster.calls(), units.map(|unit| cluster.active_on(unit))), before);
}

// Holds: I-8
#[tokio::test(start_paused = true)]
async fn daemon_started_without_store_stops_nothing() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.launch("h.service", "Global=true").await;
    let before = (cluster.pid(0, "a.service"), cluster.pid(0, "h.service"), cluster.calls());
    cluster.crash(0);
    cluster.hosts[0].set_unreachable(true);
    cluster.boot(0);
    cluster.wait(Duration::from_secs(600)).await;
    cluster.hosts[0].set_unreachable(false);
    cluster.rest().await;
    let after = (cluster.pid(0, "a.service"), cluster.pid(0, "h.service"), cluster.calls());
    assert_eq!(after, before);
}

// Holds: I-8, D-30
#[tokio::test(start_paused = true)]
async fn slow_store_with_lost_watches_stops_nothing() {
    let mut cluster = Cluster::start(3).await;
    for unit in ["a.service", "b.service", "c.service"] {
        cluster.launch(unit, "").await;
    }
    cluster.rest().await;
    let before = cluster.calls();
    for host in cluster.hosts.clone() {
        host.link().set_delay(TTL / 5);
    }
    for _ in 0..20 {
        cluster.hosts.iter().for_each(|host| host.link().cut_watches());
        cluster.wait(Duration::from_secs(7)).await;
    }
    assert_eq!(cluster.calls(), before);
    cluster.heal_and_rest().await;
    assert_eq!(cluster.calls(), before);
}

// Holds: I-9
#[tokio::test(start_paused = true)]
async fn daemon_restart_changes_no_unit() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.launch("h.service", "Global=true").await;
    cluster.rest().await;
    let running = |cluster: &Cluster| {
        (cluster.calls(), cluster.pid(0, "a.service"), cluster.pid(0, "h.service"))
    };
    let before = running(&cluster);
    assert!(before.1.is_some() && before.2.is_some());
    for kill in [true, false] {
        if kill {
            cluster.crash(0);
        } else {
            cluster.end(0).await;
        }
        cluster.wait(Duration::from_secs(5)).await;
        assert_eq!(running(&cluster), before);
        cluster.boot(0);
        cluster.rest().await;
        assert_eq!(running(&cluster), before);
    }
}

// Holds: I-23
#[tokio::test(start_paused = true)]
async fn global_unit_reaches_late_machine() {
    let mut cluster = Cluster::start(3).await;
    cluster.reboot(2);
    cluster.wait(TTL * 2).await;
    cluster.launch("h.service", "Global=true").await;
    cluster.launch("i.service", "Global=true\nMachineMetadata=region=north").await;
    assert_eq!(cluster.active_on("h.service"), [0, 1]);
    assert_eq!(cluster.active_on("i.service"), [0]);
    cluster.boot(2);
    cluster.settle().await;
    assert_eq!(cluster.active_on("h.service"), [0, 1, 2]);
    assert_eq!(cluster.active_on("i.service"), [0, 2]);
    cluster.rest().await;
}

// Holds: I-15
#[tokio::test(start_paused = true)]
async fn published_states_go_with_their_machine() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("h.service", "Global=true").await;
    let reported = |cluster: &Cluster| cluster.history.now().states().count();
    assert_eq!(reported(&cluster), 2);
    cluster.crash(1);
    cluster.wait(TTL * 2).await;
    assert_eq!(reported(&cluster), 1);
    cluster.boot(1);
    cluster.settle().await;
    assert_eq!(reported(&cluster), 2);
    assert!(!cluster.hosts[1].events().iter().any(|event| matches!(event.call, Call::Stop(_))));
}

//! Units with `OnPartition=stop`: their ends, and their next starts.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_store::registry::MetadataChange;

use crate::cluster::{Cluster, TTL};
use crate::units::{STOP_LIMIT, name};

const STOP: &str = "OnPartition=stop";

/// Time after the end of a machine's lease until its units may be placed elsewhere: eight seconds
/// for their stop, a hundredth of the measured seventeen, and a margin of five, rounded up.
const LIMIT: Duration = Duration::from_secs(14);

/// A cluster that is checked for units running twice.
async fn cluster(machines: usize) -> Cluster {
    Cluster::start_with(machines, |hosts| hosts.iter().for_each(|host| host.watch_others(hosts)))
        .await
}

// Holds: I-1
#[tokio::test(start_paused = true)]
async fn fenced_unit_stops_before_it_starts_elsewhere() {
    let mut cluster = cluster(2).await;
    cluster.launch("s.service", STOP).await;
    cluster.launch("a.service", "").await;
    let [cut] = cluster.active_on("s.service")[..] else { panic!("it is active once") };
    cluster.hosts[cut].fake().hang_stop(&name("s.service"));
    cluster.hosts[cut].set_unreachable(true);
    cluster.wait(TTL).await;
    assert_eq!(cluster.active_on("s.service"), [cut], "its stop is slow");
    cluster.wait(STOP_LIMIT).await;
    assert!(cluster.active_on("s.service").is_empty());
    let now = cluster.history.now();
    let reason = now.reason("s.service").expect("it waits").to_string();
    assert_eq!(
        reason,
        format!(
            "its machine m{cut} is not present: with OnPartition=stop no other machine runs the \
             unit for 14s, until it must have stopped there"
        )
    );
    cluster.wait(LIMIT).await;
    assert_eq!(cluster.active_on("s.service"), [1 - cut]);
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("s.service"), [1 - cut]);
}

#[tokio::test(start_paused = true)]
async fn machine_back_in_time_restarts_its_units() {
    let mut cluster = cluster(2).await;
    cluster.launch("s.service", STOP).await;
    let [cut] = cluster.active_on("s.service")[..] else { panic!("it is active once") };
    cluster.hosts[cut].set_unreachable(true);
    cluster.wait(TTL + Duration::from_secs(2)).await;
    assert!(cluster.active_on("s.service").is_empty());
    cluster.hosts[cut].set_unreachable(false);
    cluster.wait(Duration::from_secs(11)).await;
    assert_eq!(cluster.active_on("s.service"), [cut]);
    cluster.rest().await;
    assert_eq!(cluster.active_on("s.service"), [cut]);
}

// Holds: I-1
#[tokio::test(start_paused = true)]
async fn daemon_started_during_partition_respects_fence() {
    let mut cluster = cluster(1).await;
    cluster.launch("s.service", STOP).await;
    cluster.launch("a.service", "").await;
    let before = cluster.pid(0, "s.service");
    cluster.hosts[0].set_unreachable(true);
    cluster.crash(0);
    cluster.boot(0);
    cluster.wait(TTL / 2).await;
    assert_eq!(cluster.pid(0, "s.service"), before, "the fence is known and has not passed");
    cluster.wait(TTL / 2).await;
    assert!(cluster.active_on("s.service").is_empty());
    assert_eq!(cluster.active_on("a.service"), [0]);
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("s.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn daemon_away_too_long_stops_fenced_units() {
    let mut cluster = cluster(1).await;
    cluster.launch("s.service", STOP).await;
    cluster.hosts[0].set_unreachable(true);
    cluster.crash(0);
    cluster.wait(TTL * 2).await;
    assert_eq!(cluster.active_on("s.service"), [0], "no daemon is there to stop it");
    cluster.boot(0);
    cluster.settle().await;
    assert!(cluster.active_on("s.service").is_empty());
}

#[tokio::test(start_paused = true)]
async fn daemon_back_in_time_restarts_nothing() {
    let mut cluster = cluster(1).await;
    cluster.launch("s.service", STOP).await;
    let before = (cluster.pid(0, "s.service"), cluster.calls());
    cluster.crash(0);
    cluster.wait(TTL / 2).await;
    cluster.boot(0);
    cluster.rest().await;
    assert_eq!((cluster.pid(0, "s.service"), cluster.calls()), before);
}

#[tokio::test(start_paused = true)]
async fn unit_started_after_fence_is_stopped_again() {
    let mut cluster = cluster(1).await;
    cluster.launch("s.service", STOP).await;
    cluster.hosts[0].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    cluster.hosts[0].fake().interfere(&name("s.service"), fleet_agent::Drift::Started);
    assert_eq!(cluster.active_on("s.service"), [0]);
    cluster.settle().await;
    assert!(cluster.active_on("s.service").is_empty());
}

#[tokio::test(start_paused = true)]
async fn moved_unit_stops_before_it_starts_on_target() {
    let mut cluster = cluster(2).await;
    cluster.launch("s.service", "OnPartition=stop\nMachineMetadata=region=north").await;
    assert_eq!(cluster.active_on("s.service"), [0]);
    cluster.hosts[0].fake().hang_stop(&name("s.service"));
    let set = |machine: usize, value: &str| {
        let (machine, key) = (cluster.hosts[machine].id().clone(), "region".to_owned());
        MetadataChange::Set { machine, key, value: value.to_owned() }
    };
    let swap = [set(0, "south"), set(1, "north")];
    cluster.registry.patch_metadata(&swap).await.expect("the store is there");
    cluster.wait(STOP_LIMIT / 2).await;
    assert_eq!(cluster.active_on("s.service"), [0]);
    let now = cluster.history.now();
    let waiting = now.state("s.service", "m1").expect("it is loaded there");
    let problem = "start blocked by OnPartition=stop until it has ended on m0";
    assert_eq!(waiting.problem.as_deref(), Some(problem));
    cluster.wait(STOP_LIMIT / 2 + Duration::from_secs(1)).await;
    assert_eq!(cluster.active_on("s.service"), [1]);
    cluster.rest().await;
    let now = cluster.history.now();
    assert_eq!(now.state("s.service", "m1").expect("it runs there").problem, None);
}

#[tokio::test(start_paused = true)]
async fn unit_unplaced_and_placed_again_runs_once() {
    let mut cluster = cluster(2).await;
    cluster.launch("s.service", STOP).await;
    let [cut] = cluster.active_on("s.service")[..] else { panic!("it is active once") };
    cluster.hosts[cut].fake().hang_stop(&name("s.service"));
    cluster.hosts[cut].set_unreachable(true);
    cluster.wait(TTL + Duration::from_secs(1)).await;
    for desired in [TargetState::Inactive, TargetState::Launched] {
        cluster.registry.set_desired(&name("s.service"), desired).await.expect("it is there");
        cluster.settle().await;
        assert_eq!(cluster.active_on("s.service"), [cut]);
    }
    cluster.wait(LIMIT).await;
    assert_eq!(cluster.active_on("s.service"), [1 - cut]);
}

/// The cluster relies on the limit in the unit's file, whatever its machines allow.
#[tokio::test(start_paused = true)]
async fn unit_with_slower_stop_than_declared_is_refused() {
    let mut cluster = cluster(1).await;
    cluster.hosts[0].fake().set_stop_timeout(&name("s.service"), STOP_LIMIT * 2);
    cluster.hosts[0].fake().set_stop_timeout(&name("a.service"), Duration::MAX);
    cluster.launch("s.service", STOP).await;
    cluster.launch("a.service", "").await;
    cluster.wait(Duration::from_secs(1)).await;
    assert_eq!((cluster.active_on("s.service"), cluster.active_on("a.service")), (vec![], vec![0]));
    let now = cluster.history.now();
    let problem = now.state("s.service", "m0").and_then(|state| state.problem.clone());
    let expected = "s.service: OnPartition=stop requires a stop within 8s, the limit by its file \
                    or by default, and this machine allows 16s: set TimeoutStopSec= in the unit's \
                    file, or check the machine for a drop-in or DefaultTimeoutStopSec=";
    assert_eq!(problem.as_deref(), Some(expected));
    cluster.hosts[0].fake().set_stop_timeout(&name("s.service"), STOP_LIMIT);
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!(cluster.active_on("s.service"), [0]);
}

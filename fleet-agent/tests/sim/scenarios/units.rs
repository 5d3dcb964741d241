//! Units: the order of calls, and effects of one unit on others.

use std::time::Duration;

use fleet_agent::ServiceManager as _;
use fleet_agent::testing::{Behaviour, Call};
use fleet_core::{Epoch, Intent, TargetState};

use crate::cluster::{Cluster, TTL};
use crate::units::{file, name};

/// Returns the calls to a machine's service manager, with one word and one unit per line.
fn story(cluster: &Cluster, machine: usize) -> String {
    let line = |call: &Call| match call {
        Call::Load { unit, .. } => format!("load {unit}"),
        Call::Reload => "reload".to_owned(),
        Call::Unload(unit) => format!("unload {unit}"),
        Call::Start(unit, _) => format!("start {unit}"),
        Call::Restart(unit, _) => format!("restart {unit}"),
        Call::Stop(unit) => format!("stop {unit}"),
        Call::ReloadUnit(unit) => format!("reload {unit}"),
    };
    let events = cluster.hosts[machine].events();
    events.iter().map(|event| line(&event.call) + "\n").collect()
}

#[tokio::test(start_paused = true)]
async fn timer_starts_once_its_service_is_loaded() {
    let mut cluster = Cluster::start(1).await;
    let (timer, service) = (name("a.timer"), name("a.service"));
    cluster.hosts[0].fake().trigger(&timer, &service);
    cluster.launch("a.timer", "").await;
    cluster.wait(Duration::from_secs(600)).await;
    assert_eq!(cluster.active_on("a.timer"), [0; 0]);
    let now = cluster.history.now();
    let state = now.state("a.timer", "m0").expect("it is published");
    let problem = "a.timer did not start: a.service, which it triggers, is not loaded on its \
                   machine: load it as well, and keep it there with MachineOf=a.service in the \
                   [X-Fleet] section of a.timer";
    assert_eq!(state.problem.as_deref(), Some(problem));
    cluster.submit("a.service", "", 0, TargetState::Loaded).await;
    cluster.wait(Duration::from_secs(2)).await;
    assert_eq!(cluster.active_on("a.timer"), [0], "it does not wait for its next attempt");
}

// Holds: I-14
#[tokio::test(start_paused = true)]
async fn batch_reloads_once_before_starts() {
    let mut cluster = Cluster::start(1).await;
    cluster.hosts[0].set_unreachable(true);
    for unit in ["b.service", "a.service", "l.socket"] {
        cluster.launch(unit, "").await;
    }
    cluster.submit("c.service", "", 0, TargetState::Loaded).await;
    cluster.heal_and_rest().await;
    insta::assert_snapshot!(story(&cluster, 0), @r"
    load a.service
    load b.service
    load c.service
    load l.socket
    reload
    start a.service
    start b.service
    start l.socket
    ");
}

#[tokio::test(start_paused = true)]
async fn changed_unit_stops_before_it_starts_again() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.submit("a.service", "", 1, TargetState::Launched).await;
    cluster.registry.request_restart(&name("a.service")).await.expect("it is there");
    cluster.rest().await;
    insta::assert_snapshot!(story(&cluster, 0), @r"
    load a.service
    reload
    start a.service
    unload a.service
    load a.service
    reload
    start a.service
    restart a.service
    ");
}

// Holds: I-2
#[tokio::test(start_paused = true)]
async fn unit_of_newer_placement_is_left_alone() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    let (unit, content) = (name("a.service"), file("", 1));
    let newer = cluster.hosts[0].fake().load(&unit, &content, Epoch(1_000_000));
    newer.await.expect("it loads");
    let before = (cluster.pid(0, "a.service"), cluster.calls());
    cluster.submit("a.service", "", 2, TargetState::Launched).await;
    cluster.registry.request_restart(&unit).await.expect("it is there");
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!((cluster.pid(0, "a.service"), cluster.calls()), before);
}

// Holds: I-7
#[tokio::test(start_paused = true)]
async fn destroyed_unit_is_stopped_everywhere() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "").await;
    let [machine] = cluster.active_on("a.service")[..] else { panic!("it is active once") };
    cluster.hosts[machine].set_unreachable(true);
    cluster.destroy(&name("a.service")).await;
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!(cluster.active_on("a.service"), [machine]);
    cluster.heal_and_rest().await;
    assert!(cluster.active_on("a.service").is_empty());
}

// Holds: I-12
#[tokio::test(start_paused = true)]
async fn damaged_unit_is_left_alone() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "").await;
    cluster.launch("h.service", "Global=true").await;
    let before = (cluster.active_on("a.service"), cluster.active_on("h.service"), cluster.calls());
    cluster.damage("a.service").await;
    cluster.damage("h.service").await;
    cluster.rest().await;
    let after = (cluster.active_on("a.service"), cluster.active_on("h.service"), cluster.calls());
    assert_eq!(after, before);
    cluster.launch("b.service", "").await;
    assert_eq!(cluster.active_on("b.service").len(), 1);
    cluster.destroy(&name("a.service")).await;
    cluster.rest().await;
    assert!(cluster.active_on("a.service").is_empty());
}

// Holds: I-21, D-35
#[tokio::test(start_paused = true)]
async fn failed_load_is_retried_and_blocks_no_other() {
    let mut cluster = Cluster::start(1).await;
    let bad = name("a.service");
    cluster.hosts[0].fake().fail_load(&bad, "it is broken");
    cluster.launch("a.service", "").await;
    cluster.launch("b.service", "").await;
    assert_eq!(cluster.active_on("b.service"), [0]);
    let now = cluster.history.now();
    let state = now.state("a.service", "m0").expect("its state is published");
    let problem = state.problem.as_deref().unwrap_or_default();
    insta::assert_snapshot!(problem, @"a.service, line 1: it is broken");
    cluster.wait(Duration::from_secs(600)).await;
    cluster.hosts[0].fake().clear_failures(&bad);
    cluster.rest().await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

// Holds: I-26, D-34
#[tokio::test(start_paused = true)]
async fn hanging_stop_blocks_no_other_unit() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.hosts[0].fake().hang_stop(&name("a.service"));
    cluster.destroy(&name("a.service")).await;
    cluster.launch("b.service", "").await;
    assert_eq!(cluster.active_on("b.service"), [0]);
    cluster.hosts[0].set_trouble("a stop that hangs", true);
    cluster.wait(Duration::from_secs(600)).await;
    assert_eq!(cluster.active_on("a.service"), [0]);
    cluster.heal_and_rest().await;
    assert!(cluster.active_on("a.service").is_empty());
}

/// Starts a unit whose start never ends, on the machine `m0`.
async fn starting(cluster: &mut Cluster) -> u32 {
    let unit = name("a.service");
    cluster.hosts.iter().for_each(|host| host.fake().set_behaviour(&unit, Behaviour::NeverReady));
    cluster.launch("a.service", "").await;
    cluster.wait(Duration::from_secs(600)).await;
    assert_eq!(cluster.active_on("a.service"), [0]);
    cluster.pid(0, "a.service").expect("it has a process")
}

/// A unit with a start in progress once got no other task until the start had ended. For a oneshot
/// unit without a timeout, that was never.
// Holds: I-26
#[tokio::test(start_paused = true)]
async fn unit_is_stopped_during_its_start() {
    let mut cluster = Cluster::start(1).await;
    starting(&mut cluster).await;
    cluster.submit("a.service", "", 0, TargetState::Loaded).await;
    assert!(cluster.active_on("a.service").is_empty());
    cluster.launch("a.service", "").await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

// Holds: I-26
#[tokio::test(start_paused = true)]
async fn unit_is_destroyed_during_its_start() {
    let mut cluster = Cluster::start(1).await;
    starting(&mut cluster).await;
    cluster.destroy(&name("a.service")).await;
    cluster.settle().await;
    assert!(cluster.active_on("a.service").is_empty());
    cluster.rest().await;
}

// Holds: I-26
#[tokio::test(start_paused = true)]
async fn unit_is_replaced_during_its_start() {
    let mut cluster = Cluster::start(1).await;
    let before = starting(&mut cluster).await;
    cluster.hosts[0].fake().set_behaviour(&name("a.service"), Behaviour::Runs);
    cluster.submit("a.service", "", 1, TargetState::Launched).await;
    assert_ne!(cluster.pid(0, "a.service"), Some(before));
    cluster.rest().await;
}

// Holds: I-26
#[tokio::test(start_paused = true)]
async fn unit_is_restarted_during_its_start() {
    let mut cluster = Cluster::start(1).await;
    let before = starting(&mut cluster).await;
    cluster.hosts[0].fake().set_behaviour(&name("a.service"), Behaviour::Runs);
    let restarted = cluster.registry.request_restart(&name("a.service")).await;
    restarted.expect("the store is there");
    cluster.settle().await;
    assert_ne!(cluster.pid(0, "a.service"), Some(before));
    cluster.rest().await;
}

/// A drained machine once kept a starting unit, which ran on two machines from then on.
// Holds: I-26
#[tokio::test(start_paused = true)]
async fn machine_is_drained_during_a_start() {
    let mut cluster = Cluster::start(2).await;
    starting(&mut cluster).await;
    cluster.hosts[1].fake().set_behaviour(&name("a.service"), Behaviour::Runs);
    let id = cluster.hosts[0].id().clone();
    let drained = Some(Intent::Drained { min_available: 0 });
    cluster.registry.set_intent(&id, drained).await.expect("the store is there");
    cluster.settle().await;
    assert_eq!(cluster.active_on("a.service"), [1]);
    cluster.rest().await;
}

/// The machine once kept the older placement until the start ended, and published states for it.
// Holds: I-26
#[tokio::test(start_paused = true)]
async fn newer_placement_is_recorded_during_a_start() {
    let mut cluster = Cluster::start(2).await;
    let leader = cluster.leader().expect("an engine leads");
    let machine = 1 - leader;
    cluster.hosts[machine].fake().set_behaviour(&name("a.service"), Behaviour::NeverReady);
    cluster.launch("a.service", &format!("MachineID=m{machine}")).await;
    cluster.rest().await;
    let before = cluster.pid(machine, "a.service");
    cluster.hosts[machine].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    assert!(cluster.history.now().placement("a.service").is_none());
    cluster.hosts[machine].set_unreachable(false);
    cluster.rest().await;
    let now = cluster.history.now();
    let placed = now.placement("a.service").expect("it is placed again");
    let state = now.state("a.service", placed.machine.as_str()).expect("it is published");
    assert_eq!((state.epoch, cluster.pid(machine, "a.service")), (placed.epoch, before));
}

/// An agent wakes for its own units alone, so its cost does not grow with the cluster.
// Holds: I-25, D-29
#[tokio::test(start_paused = true)]
async fn changes_elsewhere_cause_no_reads() {
    let mut cluster = Cluster::start(2).await;
    let there = format!("MachineID={}", cluster.hosts[0].id());
    let here = format!("MachineID={}", cluster.hosts[1].id());
    cluster.launch("mine.service", &here).await;
    cluster.rest().await;
    let before = cluster.hosts[1].listings();
    for number in 0..5 {
        cluster.launch(&format!("theirs@{number}.service"), &there).await;
    }
    assert_eq!(cluster.active_on("theirs@4.service"), [0]);
    assert_eq!(cluster.hosts[1].listings(), before);
    cluster.launch("everybodys.service", "Global=true").await;
    assert!(cluster.hosts[1].listings() > before);
    assert_eq!(cluster.active_on("everybodys.service"), [0, 1]);
}

/// Returns the number of stops that a machine's service manager was asked for.
fn stops(cluster: &Cluster) -> usize {
    story(cluster, 0).lines().filter(|call| call.starts_with("stop ")).count()
}

// Holds: I-9, I-19
#[tokio::test(start_paused = true)]
async fn requested_stop_of_a_loaded_unit_is_made_once() {
    let mut cluster = Cluster::start(2).await;
    let unit = name("a.service");
    cluster.submit("a.service", "MachineID=m0", 0, TargetState::Loaded).await;
    cluster.rest().await;
    assert_eq!(stops(&cluster), 0);
    let request = async |cluster: &Cluster| {
        cluster.registry.request_stop(&unit).await.expect("it is there");
    };
    request(&cluster).await;
    cluster.rest().await;
    assert_eq!(stops(&cluster), 1);
    // A daemon that was away catches up.
    cluster.crash(0);
    request(&cluster).await;
    cluster.settle().await;
    cluster.boot(0);
    cluster.rest().await;
    assert_eq!(stops(&cluster), 2);
    // A daemon that returns does not repeat it, and neither does a start and a stop.
    cluster.end(0).await;
    cluster.boot(0);
    cluster.rest().await;
    assert_eq!(stops(&cluster), 2);
    for desired in [TargetState::Launched, TargetState::Loaded] {
        cluster.registry.set_desired(&unit, desired).await.expect("it is there");
        cluster.rest().await;
    }
    assert_eq!(stops(&cluster), 3);
    // On a machine that has just loaded the unit, there is nothing to stop.
    cluster.submit("a.service", "MachineID=m1", 0, TargetState::Loaded).await;
    cluster.rest().await;
    assert!(!story(&cluster, 1).contains("stop "), "{}", story(&cluster, 1));
}

//! Rollouts whose leaders crash, and rollouts of global units.

use std::time::Duration;

use fleet_agent::testing::Call;
use fleet_core::rollout::{
    CountOrPercent, MemberState, RollbackCause, RolloutId, RolloutPhase, RolloutRequest,
    RolloutStrategy,
};
use fleet_unitfile::UnitName;

use crate::cluster::{Cluster, TTL};
use crate::host::Host;
use crate::units::{EXITS, HANGS, file, name};

/// Longest time that a rollout may take here.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a strategy with a short time to settle.
fn strategy(at_once: u32) -> RolloutStrategy {
    let settle = Duration::from_secs(2);
    RolloutStrategy { at_once: CountOrPercent::Count(at_once), settle, ..Default::default() }
}

/// Launches four units on machines that do not lead. Returns the leader, and the units.
async fn group(cluster: &mut Cluster) -> (usize, Vec<UnitName>) {
    let leader = cluster.leader().expect("an engine leads");
    let others: Vec<usize> = (0..cluster.hosts.len()).filter(|it| *it != leader).collect();
    let mut units = Vec::new();
    for number in 0..4 {
        let unit = format!("w@{number}.service");
        cluster.launch(&unit, &here(others[number % others.len()])).await;
        units.push(name(&unit));
    }
    cluster.rest().await;
    (leader, units)
}

fn here(machine: usize) -> String {
    format!("MachineID=m{machine}")
}

async fn start(
    cluster: &mut Cluster,
    units: &[UnitName],
    variant: usize,
    strategy: RolloutStrategy,
) -> RolloutId {
    cluster.roll_out(units, variant, strategy).await.expect("there are units to update")
}

async fn end(cluster: &mut Cluster, id: RolloutId) {
    let mut waited = Duration::ZERO;
    while !cluster.phase(id).has_ended() {
        assert!(waited < PATIENCE, "rollout {id} is {}", cluster.phase(id));
        cluster.wait(Duration::from_secs(1)).await;
        waited += Duration::from_secs(1);
    }
}

/// Returns the number of units that have a variant of their file, according to the store.
fn count(cluster: &Cluster, units: &[UnitName], variant: usize) -> usize {
    let now = cluster.history.now();
    let has_variant = |unit: &&UnitName| {
        let text = format!("ExecStart=/bin/run {variant}\n");
        let unit = now.unit(unit.as_str()).expect("the unit is stored");
        unit.file.source_str().is_some_and(|source| source.contains(&text))
    };
    units.iter().filter(has_variant).count()
}

/// Returns the number of loads of a unit.
fn loads(cluster: &Cluster, unit: &UnitName) -> usize {
    let is_load = |call: &Call| matches!(call, Call::Load { unit: loaded, .. } if loaded == unit);
    let events = cluster.hosts.iter().flat_map(Host::events);
    events.filter(|event| is_load(&event.call)).count()
}

/// Returns whether a machine has a variant of a global unit.
fn has_variant(cluster: &Cluster, machine: usize, unit: &str, variant: usize) -> bool {
    let hash = file("Global=true", variant).hash();
    let units = cluster.hosts[machine].units();
    units.iter().any(|found| found.unit == *unit && found.known.hash == hash)
}

// Holds: I-27, I-29
#[tokio::test(start_paused = true)]
async fn rollout_completes_across_a_crash_of_its_leader() {
    let mut cluster = Cluster::start(3).await;
    let (leader, units) = group(&mut cluster).await;
    let id = start(&mut cluster, &units, 1, strategy(2)).await;
    cluster.wait(Duration::from_secs(1)).await;
    assert_eq!(count(&cluster, &units, 1), 2, "the first batch has begun");
    cluster.crash(leader);
    cluster.wait(TTL * 2).await;
    assert!(cluster.leader().is_some_and(|next| next != leader), "another engine leads");
    end(&mut cluster, id).await;
    assert_eq!(cluster.phase(id), RolloutPhase::Completed);
    assert_eq!(count(&cluster, &units, 1), 4);
    assert!(units.iter().all(|unit| loads(&cluster, unit) == 2), "each was updated once");
    cluster.heal_and_rest().await;
}

// Holds: I-27, I-29
#[tokio::test(start_paused = true)]
async fn next_leader_rolls_a_failing_version_back() {
    let mut cluster = Cluster::start(3).await;
    let (leader, units) = group(&mut cluster).await;
    let untouched = cluster.active_on("w@3.service");
    let id = start(&mut cluster, &units, EXITS, strategy(2)).await;
    cluster.settle().await;
    // The leader has not judged the batch yet.
    assert_eq!((count(&cluster, &units, EXITS), cluster.phase(id)), (2, RolloutPhase::Running));
    cluster.crash(leader);
    end(&mut cluster, id).await;
    assert!(cluster.leader().is_some_and(|next| next != leader), "another engine leads");
    let phase = cluster.phase(id);
    let RolloutPhase::RolledBack { cause: RollbackCause::Failure(failure) } = &phase else {
        panic!("the rollout is {phase}");
    };
    assert!(failure.to_string().contains("failed: its process"), "{failure}");
    assert_eq!(count(&cluster, &units, 0), 4);
    assert!(units.iter().all(|unit| cluster.active_on(unit.as_str()).len() == 1));
    assert_eq!(cluster.active_on("w@3.service"), untouched);
    assert_eq!(loads(&cluster, &units[3]), 1, "no version of it was replaced");
    cluster.heal_and_rest().await;
}

// Holds: I-9, I-27
#[tokio::test(start_paused = true)]
async fn held_machine_keeps_its_version_across_a_restart() {
    let mut cluster = Cluster::start(3).await;
    cluster.launch("h.service", "Global=true").await;
    cluster.rest().await;
    let before = cluster.pid(2, "h.service");
    let id = start(&mut cluster, &[name("h.service")], 1, strategy(1)).await;
    cluster.wait(Duration::from_secs(1)).await;
    cluster.registry.request_rollout(id, RolloutRequest::Pause).await.expect("it is running");
    cluster.settle().await;
    let updated = |cluster: &Cluster| [0, 1, 2].map(|it| has_variant(cluster, it, "h.service", 1));
    assert_eq!(updated(&cluster), [true, false, false]);
    cluster.crash(2);
    cluster.settle().await;
    cluster.boot(2);
    cluster.wait(TTL * 2).await;
    cluster.end(1).await;
    cluster.wait(TTL * 2).await;
    cluster.boot(1);
    cluster.rest().await;
    assert_eq!(updated(&cluster), [true, false, false]);
    assert_eq!(cluster.pid(2, "h.service"), before, "its process still runs");
    cluster.resume_rollouts().await;
    assert_eq!((updated(&cluster), cluster.phase(id)), ([true; 3], RolloutPhase::Completed));
}

// Holds: I-29
#[tokio::test(start_paused = true)]
async fn lost_machine_does_not_block_a_global_rollout() {
    let mut cluster = Cluster::start(3).await;
    cluster.launch("h.service", "Global=true").await;
    cluster.rest().await;
    let lost = if cluster.leader() == Some(1) { 2 } else { 1 };
    let id = start(&mut cluster, &[name("h.service")], 1, strategy(1)).await;
    cluster.reboot(lost);
    end(&mut cluster, id).await;
    assert_eq!(cluster.phase(id), RolloutPhase::Completed);
    let now = cluster.history.now();
    let members = &now.rollout(id).expect("the rollout is stored").rollout.members;
    let states: Vec<MemberState> = members.iter().map(|member| member.state).collect();
    let superseded = states.iter().filter(|state| **state == MemberState::Superseded).count();
    assert_eq!((superseded, states[lost]), (1, MemberState::Superseded), "{states:?}");
    cluster.heal_and_rest().await;
    assert!((0..3).all(|machine| has_variant(&cluster, machine, "h.service", 1)));
}

/// The leader once removed such a unit before its mirror showed the placement, which remained.
// Holds: I-7
#[tokio::test(start_paused = true)]
async fn removal_of_a_created_unit_leaves_no_placement() {
    for step in 0..30 {
        let mut cluster = Cluster::start(2).await;
        cluster.rest().await;
        let leader = cluster.leader().expect("an engine leads");
        cluster.hosts[leader].link().set_delay(Duration::from_millis(500));
        let id = start(&mut cluster, &[name("a.service")], 0, strategy(1)).await;
        cluster.wait(Duration::from_millis(100 * step)).await;
        cluster.registry.request_rollout(id, RolloutRequest::RollBack).await.expect("it runs");
        end(&mut cluster, id).await;
        assert!(cluster.history.now().unit("a.service").is_none());
        cluster.heal_and_rest().await;
    }
}

/// A leader whose mirror lags behind its own write once updated a second batch.
// Holds: I-27
#[tokio::test(start_paused = true)]
async fn lagging_leader_waits_for_its_own_batch() {
    let mut cluster = Cluster::start(3).await;
    let (leader, units) = group(&mut cluster).await;
    let deadline = Duration::from_secs(30);
    let min_available = CountOrPercent::Count(3);
    cluster.hosts[leader].link().set_delay(Duration::from_millis(1500));
    let strategy = RolloutStrategy { deadline, min_available, ..strategy(1) };
    let id = start(&mut cluster, &units, HANGS, strategy).await;
    cluster.wait(Duration::from_secs(1)).await;
    // An unhealthy member may be updated at any time, but not beside another one.
    let [machine] = cluster.active_on("w@1.service")[..] else { panic!("it is active once") };
    cluster.hosts[machine].fake().crash(&units[1]);
    cluster.wait(Duration::from_secs(15)).await;
    assert_eq!((count(&cluster, &units, HANGS), cluster.phase(id)), (1, RolloutPhase::Running));
    cluster.hosts[leader].link().set_delay(Duration::ZERO);
    end(&mut cluster, id).await;
    assert_eq!(count(&cluster, &units, HANGS), 0, "{}", cluster.phase(id));
    cluster.heal_and_rest().await;
}

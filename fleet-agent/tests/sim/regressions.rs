//! Regressions, each as its shortest sequence of operations.

use std::time::Duration;

use fleet_agent::testing::Call;
use fleet_core::TargetState;
use fleet_store::registry::Key;

use crate::cluster::{Cluster, TTL};
use crate::units::name;

/// Whether a machine's service manager was asked to start anything.
fn has_started(cluster: &Cluster) -> bool {
    let started = |call: &Call| matches!(call, Call::Start(..));
    cluster.hosts[0].events().iter().any(|event| started(&event.call))
}

// Holds: I-14
#[tokio::test(start_paused = true)]
async fn nothing_starts_while_reload_fails() {
    let mut cluster = Cluster::start(1).await;
    cluster.hosts[0].refuse_reloads(true);
    cluster.launch("a.service", "").await;
    cluster.wait(Duration::from_secs(300)).await;
    assert!(!has_started(&cluster));
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

/// The service manager may be re-executing itself. A command that waits for the unit must not fail.
#[tokio::test(start_paused = true)]
async fn short_outage_of_the_service_manager_is_no_problem() {
    let mut cluster = Cluster::start(1).await;
    cluster.hosts[0].refuse_reloads(true);
    cluster.launch("a.service", "").await;
    cluster.wait(Duration::from_secs(1)).await;
    assert!(!has_started(&cluster));
    assert_eq!(problem(&cluster, "a.service", "m0"), None);
    cluster.hosts[0].refuse_reloads(false);
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.active_on("a.service"), [0]);
    cluster.hosts[0].refuse_reloads(true);
    cluster.launch("b.service", "").await;
    cluster.wait(Duration::from_secs(5)).await;
    let shown = problem(&cluster, "b.service", "m0");
    assert!(shown.is_some_and(|it| it.contains("cannot reload")), "the outage lasts");
}

// Holds: I-14
#[tokio::test(start_paused = true)]
async fn next_daemon_reloads_before_starts() {
    let mut cluster = Cluster::start(1).await;
    cluster.hosts[0].refuse_reloads(true);
    cluster.launch("a.service", "").await;
    cluster.crash(0);
    assert!(!has_started(&cluster));
    // The safety checks include that no unit is started before a reload.
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn removed_file_triggers_a_reload_by_itself() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    cluster.hosts[0].refuse_reloads(true);
    cluster.destroy(&name("a.service")).await;
    cluster.wait(Duration::from_secs(10)).await;
    cluster.hosts[0].refuse_reloads(false);
    cluster.wait(Duration::from_secs(2)).await;
    let last = cluster.hosts[0].events().pop().expect("there were calls");
    assert!(last.call == Call::Reload && !last.refused, "{last:?}");
}

// Holds: D-31
#[tokio::test(start_paused = true)]
async fn replaced_content_is_collected_with_reason_change() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("f.service", "MachineMetadata=region=nowhere").await;
    cluster.launch("f.service", "MachineMetadata=region=elsewhere").await;
    assert!(!cluster.history.has_unused_contents());
}

// Holds: I-15
#[tokio::test(start_paused = true)]
async fn possibly_published_state_is_removed() {
    let mut cluster = Cluster::start(2).await;
    cluster.hosts[1].link().lose_responses(1);
    cluster.submit("j.timer", "MachineID=m1", 0, TargetState::Loaded).await;
    assert!(cluster.history.now().state("j.timer", "m1").is_some());
    cluster.destroy(&name("j.timer")).await;
    cluster.rest().await;
    assert!(cluster.history.now().state("j.timer", "m1").is_none());
}

#[tokio::test(start_paused = true)]
async fn damaged_unit_placed_elsewhere_is_removed() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "").await;
    let [old] = cluster.active_on("a.service")[..] else { panic!("it is active once") };
    cluster.hosts[old].set_unreachable(true);
    cluster.wait(Duration::from_secs(30)).await;
    cluster.damage("a.service").await;
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("a.service"), [1 - old]);
}

#[tokio::test(start_paused = true)]
async fn leader_stops_while_its_write_is_invisible() {
    let mut cluster = Cluster::start(1).await;
    cluster.hosts[0].link().set_delay(Duration::from_secs(2));
    cluster.launch("a.service", "").await;
    cluster.wait(Duration::from_secs(3)).await;
    cluster.hosts[0].set_unreachable(true);
    cluster.wait(Duration::from_secs(3)).await;
    cluster.end(0).await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_foreign_revision_times_out() {
    let mut cluster = Cluster::start(1).await;
    cluster.submit("i.service", "", 1, TargetState::Inactive).await;
    cluster.hosts[0].wire().answer_ahead();
    cluster.launch("a.service", "").await;
    cluster.submit("i.service", "", 2, TargetState::Inactive).await;
    cluster.wait(Duration::from_secs(5)).await;
    assert!(!cluster.history.has_unused_contents(), "the leader has not come back to its work");
}

#[tokio::test(start_paused = true)]
async fn unit_stopping_under_old_daemon_restarts_if_wanted() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("h.service", "Global=true").await;
    cluster.hosts[0].fake().hang_stop(&name("h.service"));
    cluster.destroy(&name("h.service")).await;
    cluster.settle().await;
    cluster.crash(0);
    cluster.launch("h.service", "Global=true").await;
    cluster.boot(0);
    cluster.wait(Duration::from_secs(30)).await;
    cluster.hosts[0].fake().release(&name("h.service"));
    cluster.rest().await;
    assert_eq!(cluster.active_on("h.service"), [0]);
}

// Holds: I-5
#[tokio::test(start_paused = true)]
async fn new_leader_waits_for_all_earlier_decisions() {
    let mut cluster = Cluster::start(3).await;
    cluster.rest().await;
    assert_eq!(cluster.leader(), Some(0));
    // It receives each revision two seconds after the previous one. When it campaigns because the
    // first leader is gone, the second one is gone too.
    cluster.hosts[1].link().set_delay(Duration::from_secs(2));
    cluster.end(0).await;
    assert_eq!(cluster.leader(), Some(2));
    for unit in ["a.service", "b.service", "c.service", "l.socket"] {
        cluster.launch(unit, "").await;
    }
    let unit = name("l.socket");
    cluster.registry.set_desired(&unit, TargetState::Inactive).await.expect("it is there");
    cluster.settle().await;
    cluster.end(2).await;
    cluster.wait(Duration::from_secs(20)).await;
    assert_eq!(cluster.leader(), Some(1));
    cluster.wait(Duration::from_secs(60)).await;
    assert!(cluster.history.now().placement("l.socket").is_none());
    cluster.heal_and_rest().await;
}

// Holds: I-3
#[tokio::test(start_paused = true)]
async fn unknown_decision_cannot_apply_late() {
    let mut cluster = Cluster::start(1).await;
    cluster.wait(Duration::from_secs(1)).await;
    let unit = name("a.service");
    cluster.hosts[0].wire().hold_up_next(Duration::from_secs(20));
    cluster.launch("a.service", "").await;
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!(cluster.active_on("a.service"), [0]);
    cluster.registry.set_desired(&unit, TargetState::Inactive).await.expect("it is there");
    cluster.wait(Duration::from_secs(30)).await;
    assert!(cluster.history.now().placement("a.service").is_none());
    cluster.rest().await;
}

/// Nothing in the store distinguishes a machine from a copy of its disk booted elsewhere.
// Holds: I-11
#[tokio::test(start_paused = true)]
async fn duplicate_identity_starts_and_deposes_nothing() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "").await;
    let term = term(&cluster).await;
    cluster.reboot(0);
    cluster.boot(0);
    cluster.wait(TTL / 2).await;
    assert_eq!(cluster.active_on("a.service"), [0; 0]);
    assert_eq!(self::term(&cluster).await, term);
    cluster.heal_and_rest().await;
    assert_eq!(cluster.active_on("a.service"), [0]);
}

async fn term(cluster: &Cluster) -> Vec<u8> {
    let key = cluster.registry.layout().key(&Key::Term);
    let found = cluster.registry.store().read(&key).await.expect("the store is there");
    found.entries[0].value.clone()
}

#[tokio::test(start_paused = true)]
async fn unplaceable_unit_keeps_running_after_rejoin() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "MachineID=m1").await;
    cluster.rest().await;
    let before = cluster.pid(1, "a.service");
    assert!(before.is_some());
    // Without a leader, its machine sees temporarily that it has no placement.
    cluster.hosts[1].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    assert!(cluster.history.now().placement("a.service").is_none());
    cluster.crash(0);
    cluster.hosts[1].set_unreachable(false);
    cluster.wait(TTL * 2).await;
    assert_eq!(cluster.pid(1, "a.service"), before);
    cluster.heal_and_rest().await;
    assert_eq!(cluster.pid(1, "a.service"), before);
}

#[tokio::test(start_paused = true)]
async fn destroyed_unit_stops_during_rejoin_grace() {
    let mut cluster = Cluster::start(2).await;
    cluster.launch("a.service", "MachineID=m1").await;
    cluster.rest().await;
    cluster.hosts[1].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    cluster.crash(0);
    cluster.hosts[1].set_unreachable(false);
    while cluster.history.now().machine("m1").is_none() {
        cluster.wait(Duration::from_secs(1)).await;
    }
    assert!(cluster.history.now().placement("a.service").is_none());
    assert!(cluster.pid(1, "a.service").is_some());
    cluster.destroy(&name("a.service")).await;
    cluster.wait(Duration::from_secs(1)).await;
    assert_eq!(cluster.pid(1, "a.service"), None);
}

/// Returns the published problem of a unit on a machine.
fn problem(cluster: &Cluster, unit: &str, machine: &str) -> Option<String> {
    cluster.history.now().state(unit, machine).expect("it is published").problem.clone()
}

#[tokio::test(start_paused = true)]
async fn errors_of_unwanted_units_are_cleared() {
    let mut cluster = Cluster::start(1).await;
    let timer = name("a.timer");
    cluster.hosts[0].fake().trigger(&timer, &name("a.service"));
    cluster.launch("a.timer", "").await;
    cluster.wait(Duration::from_secs(600)).await;
    assert!(problem(&cluster, "a.timer", "m0").is_some(), "there is nothing for it to start");
    cluster.registry.set_desired(&timer, TargetState::Loaded).await.expect("it is there");
    cluster.wait(Duration::from_secs(2)).await;
    assert_eq!(problem(&cluster, "a.timer", "m0"), None);
    // It is another order, which does not wait for the old failure's retry.
    let calls = cluster.calls();
    cluster.registry.set_desired(&timer, TargetState::Launched).await.expect("it is there");
    cluster.wait(Duration::from_secs(1)).await;
    assert!(cluster.calls() > calls, "it is tried at once");
    assert!(problem(&cluster, "a.timer", "m0").is_some());
}

#[tokio::test(start_paused = true)]
async fn unfenced_unit_clears_its_waiting_error() {
    let mut cluster = Cluster::start(2).await;
    let fenced = |machine: usize| format!("OnPartition=stop\nMachineID=m{machine}");
    cluster.launch("u.service", &fenced(0)).await;
    cluster.hosts[0].set_trouble("a stop that hangs", true);
    cluster.hosts[0].fake().hang_stop(&name("u.service"));
    cluster.launch("u.service", &fenced(1)).await;
    cluster.wait(Duration::from_secs(2)).await;
    assert!(problem(&cluster, "u.service", "m1").is_some(), "it has not ended on the other one");
    cluster.launch("u.service", "MachineID=m1").await;
    cluster.wait(Duration::from_secs(2)).await;
    assert_eq!(cluster.active_on("u.service"), [0, 1]);
    assert_eq!(problem(&cluster, "u.service", "m1"), None);
}

#[tokio::test(start_paused = true)]
async fn slow_fenced_stop_delays_no_other_unit() {
    let mut cluster = Cluster::start(2).await;
    let (unit, here) = (name("s.service"), "OnPartition=stop\nMachineID=m0");
    cluster.launch("s.service", here).await;
    cluster.hosts[0].limit_no_stop(true);
    cluster.hosts[0].fake().hang_stop(&unit);
    cluster.hosts[0].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    cluster.destroy(&unit).await;
    cluster.launch("s.service", here).await;
    cluster.hosts[0].set_unreachable(false);
    cluster.wait(TTL * 2).await;
    let placed = cluster.history.now().placement("s.service").cloned();
    assert!(placed.is_some_and(|placed| placed.machine == *cluster.hosts[0].id()));
    let asked = |cluster: &Cluster| {
        let events = cluster.hosts[0].events();
        let stopped = events.iter().rposition(|event| matches!(event.call, Call::Stop(_)));
        events.len() - stopped.expect("it was asked to stop") - 1
    };
    assert_eq!(asked(&cluster), 0, "a call about it would be answered after its stop alone");
    cluster.launch("a.service", "MachineID=m0").await;
    assert_eq!(cluster.active_on("a.service"), [0]);
    cluster.hosts[0].fake().release(&unit);
    cluster.wait(TTL).await;
    assert_eq!(cluster.active_on("s.service"), [0]);
}

#[tokio::test(start_paused = true)]
async fn failed_listing_is_retried_after_rejoin() {
    let mut cluster = Cluster::start(1).await;
    cluster.launch("a.service", "Global=true").await;
    cluster.wait(Duration::from_secs(2)).await;
    let before = cluster.pid(0, "a.service");
    cluster.hosts[0].refuse_lists(true);
    cluster.hosts[0].set_unreachable(true);
    cluster.wait(TTL * 2).await;
    assert!(cluster.history.now().state("a.service", "m0").is_none());
    cluster.hosts[0].set_unreachable(false);
    cluster.wait(TTL * 2).await;
    cluster.hosts[0].refuse_lists(false);
    cluster.wait(Duration::from_secs(2)).await;
    let now = cluster.history.now();
    let state = now.state("a.service", "m0").expect("it is published");
    assert_eq!((state.systemd.main_pid, cluster.pid(0, "a.service")), (before, before));
}

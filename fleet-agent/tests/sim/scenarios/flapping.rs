//! Units with `MoveAfterFailures=` that keep failing: restarts with delays, and moves.

use std::sync::Arc;
use std::time::Duration;

use fleet_agent::testing::{Behaviour, Call};
use fleet_core::Intent;
use fleet_core::failures::FailureRecord;

use crate::cluster::Cluster;
use crate::units::name;

const UNIT: &str = "a.service";

impl Cluster {
    /// Sets whether the unit fails on a machine, from its next start on.
    fn set_failing(&self, machine: usize, fails: bool) {
        let behaviour = if fails { Behaviour::Exits(3) } else { Behaviour::Runs };
        self.hosts[machine].fake().set_behaviour(&name(UNIT), behaviour);
    }

    fn failures(&self) -> Option<Arc<FailureRecord>> {
        self.history.now().failures_of(UNIT).cloned()
    }

    /// Returns the number of starts and restarts of the unit on a machine.
    fn starts_on(&self, machine: usize) -> usize {
        let is_start = |call: &Call| match call {
            Call::Start(unit, _) | Call::Restart(unit, _) => unit.as_str() == UNIT,
            _ => false,
        };
        self.hosts[machine].events().iter().filter(|event| is_start(&event.call)).count()
    }

    fn all_starts(&self) -> usize {
        (0..self.hosts.len()).map(|machine| self.starts_on(machine)).sum()
    }

    /// Returns the machine on which the unit is placed.
    fn placed(&self) -> usize {
        let now = self.history.now();
        let at = &now.placement(UNIT).expect("it is placed").machine;
        self.hosts.iter().position(|host| host.id() == at).expect("the machine exists")
    }
}

#[tokio::test(start_paused = true)]
async fn unit_that_fails_on_one_machine_moves() {
    let mut cluster = Cluster::start(3).await;
    cluster.set_failing(0, true);
    cluster.launch(UNIT, "MoveAfterFailures=3").await;
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!((cluster.placed(), cluster.starts_on(0)), (0, 1));
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!((cluster.placed(), cluster.starts_on(0)), (0, 3), "it restarts in place");
    cluster.wait(Duration::from_secs(60)).await;
    let placed = cluster.placed();
    assert_ne!(placed, 0, "it moves");
    assert_eq!((cluster.active_on(UNIT), cluster.all_starts()), (vec![placed], 4));
    let record = cluster.failures().expect("it is kept for a while");
    assert_eq!((record.to_string().as_str(), record.total), ("failed 3 times on m0", 3));
    // A drain of the new machine does not bring the unit back.
    let machine = cluster.hosts[placed].id().clone();
    let drained = Some(Intent::Drained { min_available: 0 });
    cluster.registry.set_intent(&machine, drained).await.expect("the store is there");
    cluster.wait(Duration::from_secs(5)).await;
    let next = cluster.placed();
    assert_eq!((next, cluster.active_on(UNIT)), (3 - placed, vec![next]));
    cluster.wait(Duration::from_secs(660)).await;
    assert_eq!((cluster.failures(), cluster.placed()), (None, next));
}

#[tokio::test(start_paused = true)]
async fn unit_that_fails_everywhere_is_not_a_busy_loop() {
    let mut cluster = Cluster::start(3).await;
    (0..3).for_each(|machine| cluster.set_failing(machine, true));
    cluster.launch(UNIT, "MoveAfterFailures=1").await;
    cluster.wait(Duration::from_secs(75)).await;
    // After 0 s, 10 s, 30 s and 70 s.
    assert_eq!(cluster.all_starts(), 4);
    assert!((0..3).all(|machine| cluster.starts_on(machine) > 0), "it tries each machine");
    cluster.wait(Duration::from_secs(3600)).await;
    let starts = cluster.all_starts();
    // The delays grow to 10 min, after 630 s.
    assert!((11..=12).contains(&starts), "{starts} starts in an hour");
    let calls = cluster.calls();
    cluster.wait(Duration::from_secs(60)).await;
    assert!(cluster.calls() <= calls + 4, "nothing happens during a delay");
    // A restart by a user begins anew, and the unit stays where it then runs.
    (0..3).for_each(|machine| cluster.set_failing(machine, false));
    cluster.registry.request_restart(&name(UNIT)).await.expect("the unit is there");
    cluster.wait(Duration::from_secs(5)).await;
    assert_eq!((cluster.failures(), cluster.active_on(UNIT).len()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn only_machine_gets_the_unit_back() {
    let mut cluster = Cluster::start(1).await;
    cluster.set_failing(0, true);
    cluster.launch(UNIT, "MoveAfterFailures=2").await;
    cluster.wait(Duration::from_secs(35)).await;
    assert_eq!(cluster.starts_on(0), 3);
    cluster.set_failing(0, false);
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!((cluster.active_on(UNIT), cluster.starts_on(0)), (vec![0], 4));
    assert_eq!(cluster.failures().map(|record| record.total), Some(3));
}

#[tokio::test(start_paused = true)]
async fn next_leader_continues_with_the_failures() {
    let mut cluster = Cluster::start(3).await;
    cluster.set_failing(0, true);
    cluster.launch(UNIT, "MoveAfterFailures=2").await;
    cluster.wait(Duration::from_secs(15)).await;
    assert_eq!(cluster.failures().map(|record| record.total), Some(2));
    let leader = cluster.leader().expect("a machine leads");
    cluster.crash(leader);
    cluster.wait(Duration::from_secs(5)).await;
    cluster.boot(leader);
    cluster.wait(Duration::from_secs(60)).await;
    let placed = cluster.placed();
    assert_ne!(placed, 0);
    assert_eq!(cluster.starts_on(0), 2, "no failure is forgotten or counted twice");
    assert_eq!(cluster.active_on(UNIT), [placed]);
}

#[tokio::test(start_paused = true)]
async fn absent_machine_keeps_its_failed_unit_for_the_grace_period() {
    let mut cluster = Cluster::start(2).await;
    cluster.set_failing(0, true);
    cluster.launch(UNIT, "MoveAfterFailures=1\nReschedule=never").await;
    cluster.wait(Duration::from_secs(2)).await;
    assert_eq!(cluster.failures().map(|record| record.total), Some(1));
    cluster.crash(0);
    cluster.wait(Duration::from_secs(120)).await;
    assert_eq!(cluster.placed(), 0, "only its machine may run it");
    cluster.boot(0);
    cluster.wait(Duration::from_secs(60)).await;
    assert_eq!(cluster.active_on(UNIT), [1]);
}

#[tokio::test(start_paused = true)]
async fn other_units_stay_failed() {
    let mut cluster = Cluster::start(2).await;
    cluster.set_failing(0, true);
    cluster.launch(UNIT, "MoveAfterFailures=0").await;
    cluster.wait(Duration::from_secs(3600)).await;
    assert_eq!((cluster.failures(), cluster.all_starts(), cluster.placed()), (None, 1, 0));
}

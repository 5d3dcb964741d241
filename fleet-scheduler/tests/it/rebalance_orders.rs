//! The rebalance request that follows from the order of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
use fleet_core::unit::LoadState;
use fleet_core::{
    ActiveState, Epoch, Generation, Machine, Snapshot, SystemdState, TargetState, UnitState,
};
use fleet_scheduler::{Cluster, Policy, Rebalance};
use fleet_unitfile::UnitName;

use crate::language::unit;

/// Returns a cluster of two machines. One has three units, two of which must stay together; the
/// other has none.
fn lopsided(order: Option<Rebalancing>) -> Snapshot {
    let mut cluster = Snapshot::default();
    for id in ["m1", "m2"] {
        cluster.put_machine(Machine::new(id.parse().unwrap()));
    }
    for (name, option) in
        [("e.service", ""), ("f.service", "MachineOf=e.service"), ("g.service", "")]
    {
        cluster.put_unit(unit(name, "launched", &format!("[X-Fleet]\n{option}\n")));
        cluster.place(name.parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    }
    cluster.rebalancing = order.map(Arc::new);
    cluster
}

fn order(max_in_flight: u32, most: Option<u32>) -> Rebalancing {
    Rebalancing::new(RebalanceLimits {
        max_in_flight,
        max_moves: most,
        ..RebalanceLimits::default()
    })
}

fn moved(cluster: &Snapshot, request: &Rebalance) -> Vec<String> {
    let plan = Cluster::load(Policy::default(), cluster).rebalance(request);
    plan.steps.iter().map(|step| step.unit.to_string()).collect()
}

#[test]
fn no_order_gives_no_request() {
    let cluster = lopsided(None);
    assert_eq!((Rebalance::from_order(&cluster), Rebalance::remaining(&cluster)), (None, None));
}

#[test]
fn group_moves_only_if_it_fits_the_in_flight_limit() {
    for (max_in_flight, expected) in [(1, &["g.service"] as &[_]), (2, &["e.service", "f.service"])]
    {
        let cluster = lopsided(Some(order(max_in_flight, None)));
        let all = Rebalance::remaining(&cluster).unwrap();
        assert_eq!((all.budget, all.max_group_size), (u32::MAX, Some(max_in_flight)));
        assert_eq!(moved(&cluster, &all), expected, "{max_in_flight}");
        assert_eq!(
            moved(&cluster, &Rebalance::from_order(&cluster).unwrap()),
            expected,
            "{max_in_flight}"
        );
    }
}

#[test]
fn units_in_flight_reduce_the_budget() {
    let [from, to] = ["m1", "m2"].map(|id| id.parse().unwrap());
    let unit: UnitName = "e.service".parse().unwrap();
    let moving = BTreeMap::from([(unit.clone(), RecentMove { from, to, was_active: true })]);
    let mut cluster = lopsided(Some(Rebalancing { moved: 1, moves: moving, ..order(3, Some(9)) }));
    assert_eq!(Rebalance::from_order(&cluster).unwrap().budget, 3, "the unit has not left yet");
    cluster.place(unit, "m2".parse().unwrap(), Epoch(2));
    assert_eq!(Rebalance::from_order(&cluster).unwrap().budget, 2);
    assert_eq!(Rebalance::remaining(&cluster).unwrap().budget, 8);
}

#[test]
fn down_units_count_as_recovering_unless_finished() {
    let limits = RebalanceLimits { min_available: 2, ..RebalanceLimits::default() };
    let mut cluster = lopsided(Some(Rebalancing::new(limits)));
    let [done, failed, stopped] = ["w@1.service", "w@2.service", "w@3.service"];
    for (name, desired) in [(done, "launched"), (failed, "launched"), (stopped, "loaded")] {
        cluster.put_unit(unit(name, desired, ""));
        cluster.place(name.parse().unwrap(), "m1".parse().unwrap(), Epoch(1));
    }
    for (name, active) in [(done, ActiveState::Inactive), (failed, ActiveState::Failed)] {
        let unit = cluster.unit(name).unwrap().clone();
        let result = Some("success".to_owned());
        let systemd = SystemdState { result, ..SystemdState::new(LoadState::Loaded, active, "") };
        cluster.put_state(UnitState {
            unit: unit.name.clone(),
            machine: "m1".parse().unwrap(),
            hash: unit.hash(),
            requested: TargetState::Launched,
            epoch: Epoch(1),
            generation: Generation(0),
            systemd,
            problem: None,
            health: None,
            output: Vec::new(),
        });
    }
    let request = Rebalance::from_order(&cluster).unwrap();
    assert_eq!(request.down.len(), 6, "all other units count as down");
    let recovered = request.assuming_recovery(&cluster).unwrap();
    assert_eq!(recovered.down.iter().map(UnitName::as_str).collect::<Vec<_>>(), [done, stopped]);
    assert_eq!(recovered.assuming_recovery(&cluster), None, "no further unit may come up");
}

//! What may be moved for an order to rebalance.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::{
    ActiveState, BalanceTerms, Epoch, Generation, LoadState, Machine, Moving, Rebalancing,
    Snapshot, SystemdState, TargetState, UnitState,
};
use fleet_scheduler::{Index, Policy, Rebalance};
use fleet_unitfile::UnitName;

use crate::language::unit;

/// Two machines, one of them with three units, of which two must be together.
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

fn order(at_once: u32, most: Option<u32>) -> Rebalancing {
    Rebalancing::new(BalanceTerms { at_once, most, ..BalanceTerms::default() })
}

fn moved(cluster: &Snapshot, asked: &Rebalance) -> Vec<String> {
    let plan = Index::load(Policy::default(), cluster).rebalance(asked);
    plan.steps.iter().map(|step| step.unit.to_string()).collect()
}

#[test]
fn without_an_order_nothing_is_wanted() {
    let cluster = lopsided(None);
    assert_eq!((Rebalance::wanted(&cluster), Rebalance::in_all(&cluster)), (None, None));
}

#[test]
fn who_must_be_together_moves_where_as_many_may_be_under_way() {
    for (at_once, expected) in [(1, &["g.service"] as &[_]), (2, &["e.service", "f.service"])] {
        let cluster = lopsided(Some(order(at_once, None)));
        let all = Rebalance::in_all(&cluster).unwrap();
        assert_eq!((all.budget, all.together), (u32::MAX, Some(at_once)));
        assert_eq!(moved(&cluster, &all), expected, "{at_once}");
        assert_eq!(moved(&cluster, &Rebalance::wanted(&cluster).unwrap()), expected, "{at_once}");
    }
}

#[test]
fn who_is_under_way_takes_up_room() {
    let [from, to] = ["m1", "m2"].map(|id| id.parse().unwrap());
    let unit: UnitName = "e.service".parse().unwrap();
    let moving = BTreeMap::from([(unit.clone(), Moving { from, to, was_up: true })]);
    let mut cluster = lopsided(Some(Rebalancing { moved: 1, moving, ..order(3, Some(9)) }));
    assert_eq!(Rebalance::wanted(&cluster).unwrap().budget, 3, "it has not left yet");
    cluster.place(unit, "m2".parse().unwrap(), Epoch(2));
    assert_eq!(Rebalance::wanted(&cluster).unwrap().budget, 2);
    assert_eq!(Rebalance::in_all(&cluster).unwrap().budget, 8);
}

#[test]
fn who_is_down_is_hoped_for_unless_it_has_no_reason_to_come_up() {
    let terms = BalanceTerms { keep_up: 2, ..BalanceTerms::default() };
    let mut cluster = lopsided(Some(Rebalancing::new(terms)));
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
            asked: TargetState::Launched,
            epoch: Epoch(1),
            generation: Generation(0),
            systemd,
            problem: None,
        });
    }
    let asked = Rebalance::wanted(&cluster).unwrap();
    assert_eq!(asked.down.len(), 6, "nothing else is known to be up");
    let hope = asked.once_up(&cluster).unwrap();
    assert_eq!(hope.down.iter().map(UnitName::as_str).collect::<Vec<_>>(), [done, stopped]);
    assert_eq!(hope.once_up(&cluster), None, "nobody else is hoped for");
}

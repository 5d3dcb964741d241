//! Large and hostile clusters: reasons stay short, and no unit is lost.

use std::sync::Arc;

use fleet_core::refusal::Rule;
use fleet_core::{Epoch, Machine, Reason, Requirements, Revision, Snapshot, TargetState, Unit};
use fleet_scheduler::{Cluster, Demand, Drain, Plan, Policy, Rebalance, check, plan};
use fleet_unitfile::{UnitFile, UnitName};

/// Returns a cluster of one machine and the units `u0` to `u{count - 1}`. Each unit follows the
/// unit with the number that `peer` returns for it.
fn cluster(count: usize, peer: impl Fn(usize) -> Option<usize>) -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    for index in 0..count {
        let machine_of = peer(index).map(|i| name(i).into()).into_iter().collect();
        let wants = Requirements::default().with_machine_of(machine_of);
        put(&mut cluster, name(index), wants);
    }
    cluster
}

fn name(index: usize) -> UnitName {
    format!("u{index}.service").parse().unwrap()
}

fn put(cluster: &mut Snapshot, name: UnitName, wants: Requirements) {
    let file = UnitFile::parse("").unwrap();
    cluster.put_unit(Unit::new(name, file, wants, TargetState::Launched));
}

fn ring(count: usize) -> Snapshot {
    cluster(count, |index| Some((index + 1) % count))
}

#[test]
fn cycle_of_up_to_64_units_is_listed() {
    let plan = plan(&ring(64));
    let Reason::Cycle { units } = &*plan.unplaced[&name(5)] else { panic!("{plan}") };
    assert_eq!((units.len(), &units[0], &units[63]), (64, &name(5), &name(4)));
}

#[test]
fn longer_cycle_reports_only_the_next_unit() {
    let plan = plan(&ring(65));
    assert_eq!(plan.unplaced.len(), 65);
    let Reason::NoMachineFits { machines: 1, tallies, .. } = &*plan.unplaced[&name(5)] else {
        panic!("{plan}");
    };
    assert_eq!(tallies[0].refusal, fleet_core::Refusal::MachineOf { peer: name(6).into() });
}

#[test]
fn long_chain_is_placed_in_one_plan() {
    let cluster = cluster(2000, |index| index.checked_sub(1));
    let plan = plan(&cluster);
    assert_eq!((plan.steps.len(), plan.unplaced.len()), (2000, 0));
    assert_eq!(check(&cluster, &plan), []);
}

#[test]
fn long_chain_waits_with_its_unplaceable_head() {
    let mut cluster = cluster(2000, |index| index.checked_sub(1));
    let nowhere = Some("m9".parse().unwrap());
    put(&mut cluster, name(0), Requirements::default().with_machine_id(nowhere));
    let plan = plan(&cluster);
    assert_eq!((plan.steps.len(), plan.unplaced.len()), (0, 2000));
    for unit in [0, 63, 1999] {
        // A list of two thousand names would not help; the first refused unit does.
        let Reason::NoMachineFits { tallies, .. } = &*plan.unplaced[&name(unit)] else {
            panic!("{plan}");
        };
        assert_eq!(tallies[0].unit, Some(name(0)));
        assert_eq!(tallies[0].refusal.rule(), Rule::MachineId);
    }
}

/// More units than a test can handle if a unit of a group costs time in proportion to the group.
const MANY: usize = 20_000;

/// Returns an index of two machines, and of units that all follow the first.
fn star() -> Cluster {
    let mut cluster = cluster(0, |_| None);
    cluster.put_machine(Machine::new("m2".parse().unwrap()).with_metadata("disk", "ssd"));
    let mut index = Cluster::load(Policy::default(), &cluster);
    let machine_of = vec![name(0).into()];
    let follower = Arc::new(Requirements::default().with_machine_of(machine_of));
    for at in 0..MANY {
        let requirements = if at == 0 { Arc::default() } else { follower.clone() };
        index.add(Demand::with_requirements(name(at), requirements));
    }
    index
}

fn carry_out(index: &mut Cluster) -> Plan {
    let plan = index.plan();
    index.apply(&plan);
    plan
}

#[test]
fn large_group_costs_each_of_its_changes_little() {
    let mut index = star();
    assert_eq!(carry_out(&mut index).steps.len(), MANY);
    index.remove_machine("m1");
    assert_eq!(carry_out(&mut index).steps.len(), MANY);
    index.remove(name(0).as_str());
    assert_eq!(index.plan().steps.len(), MANY);
}

#[test]
fn long_chain_loses_its_head_in_one_plan() {
    let mut index = Cluster::load(Policy::default(), &cluster(MANY, |at| at.checked_sub(1)));
    assert_eq!(carry_out(&mut index).steps.len(), MANY);
    index.remove(name(0).as_str());
    let plan = index.plan();
    assert_eq!((plan.steps.len(), plan.unplaced.len()), (MANY, MANY - 1));
}

#[test]
fn large_immovable_group_is_decided_once_per_pass() {
    let mut index = star();
    let wants = Requirements::default()
        .with_machine_of(vec![name(0).into()])
        .with_metadata([("disk".to_owned(), ["ssd".to_owned()].into())].into());
    index.add(Demand::with_requirements(name(MANY), wants));
    assert_eq!(carry_out(&mut index).steps.len(), MANY + 1);
    let drained = index.drain(&Drain::new(["m2".parse().unwrap()]));
    assert_eq!((drained.plan.steps.len(), drained.held.len()), (0, MANY + 1));
    assert!(index.rebalance(&Rebalance::with_budget(u32::MAX)).is_empty());
}

#[test]
fn unmatched_pattern_is_compared_with_all_names_once() {
    let mut cluster = cluster(0, |_| None);
    let machine_of = vec!["u*x.service".parse().unwrap()];
    let wants = Requirements::default().with_machine_of(machine_of);
    (0..MANY).for_each(|at| put(&mut cluster, name(at), wants.clone()));
    let plan = plan(&cluster);
    let unknown = Reason::PeerUnknown { peer: wants.machine_of[0].clone() };
    assert!(plan.unplaced.values().all(|reason| **reason == unknown));
    assert_eq!(plan.unplaced.len(), MANY);
}

#[test]
fn pattern_with_many_followers_is_placed_in_one_plan() {
    let mut index = Cluster::load(Policy::default(), &cluster(0, |_| None));
    let machine_of = vec!["lead@*.service".parse().unwrap()];
    let follower = Arc::new(Requirements::default().with_machine_of(machine_of));
    for at in 0..MANY {
        index.add(Demand::with_requirements(name(at), follower.clone()));
        let name = format!("lead@{at}.service").parse().unwrap();
        index.add(Demand::with_requirements(name, Arc::default()));
    }
    assert_eq!(index.plan().steps.len(), 2 * MANY);
}

#[test]
fn conflict_with_all_blocks_only_its_own_machine() {
    let mut cluster = cluster(300, |_| None);
    let conflicts = vec!["*".parse().unwrap()];
    put(&mut cluster, name(0), Requirements::default().with_conflicts(conflicts));
    assert_eq!(plan(&cluster).steps.len(), 1);
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    assert_eq!(plan(&cluster).steps.len(), 300);
}

#[test]
fn unit_replacing_its_own_peer_is_placed_nowhere() {
    let mut cluster = cluster(1, |_| None);
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    cluster.place(name(0), "m1".parse().unwrap(), Epoch(1));
    let wants = Requirements::default()
        .with_machine_of(vec![name(0).into()])
        .with_replaces(vec![name(0).as_str().parse().unwrap()]);
    put(&mut cluster, name(1), wants);
    let plan = plan(&cluster);
    assert_eq!((plan.steps.len(), plan.unplaced.len()), (0, 1), "{plan}");
}

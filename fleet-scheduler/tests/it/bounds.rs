//! Large and hostile clusters: reasons stay short, and no unit is lost.

use fleet_core::{
    Epoch, Machine, Reason, Requirements, Revision, Rule, Snapshot, TargetState, Unit,
};
use fleet_scheduler::{check, plan};
use fleet_unitfile::{UnitFile, UnitName};

/// Returns a cluster of one machine and the units `u0` to `u{count - 1}`. Each unit follows the
/// unit with the number that `peer` returns for it.
fn cluster(count: usize, peer: impl Fn(usize) -> Option<usize>) -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    cluster.put_machine(Machine::new("m1".parse().unwrap()));
    for index in 0..count {
        let machine_of = peer(index).map(|i| name(i).into()).into_iter().collect();
        let wants = Requirements { machine_of, ..Requirements::default() };
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
    put(&mut cluster, name(0), Requirements { machine_id: nowhere, ..Requirements::default() });
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

#[test]
fn conflict_with_all_blocks_only_its_own_machine() {
    let mut cluster = cluster(300, |_| None);
    let conflicts = vec!["*".parse().unwrap()];
    put(&mut cluster, name(0), Requirements { conflicts, ..Requirements::default() });
    assert_eq!(plan(&cluster).steps.len(), 1);
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    assert_eq!(plan(&cluster).steps.len(), 300);
}

#[test]
fn unit_replacing_its_own_peer_is_placed_nowhere() {
    let mut cluster = cluster(1, |_| None);
    cluster.put_machine(Machine::new("m2".parse().unwrap()));
    cluster.place(name(0), "m1".parse().unwrap(), Epoch(1));
    let wants = Requirements {
        machine_of: vec![name(0).into()],
        replaces: vec![name(0).as_str().parse().unwrap()],
        ..Requirements::default()
    };
    put(&mut cluster, name(1), wants);
    let plan = plan(&cluster);
    assert_eq!((plan.steps.len(), plan.unplaced.len()), (0, 1), "{plan}");
}

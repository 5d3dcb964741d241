//! Queries of a snapshot, above all the current state of a unit.

use fleet_core::TargetState::{self, Inactive, Launched, Loaded};
use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Generation, Requirements, Snapshot, SystemdState, Unit, UnitState};
use fleet_unitfile::{UnitFile, UnitName};

/// The machines that report a unit, with the requested state of each.
type Reports = &'static [(&'static str, TargetState)];

fn unit(name: &str, global: bool) -> Unit {
    let file = UnitFile::parse("").unwrap();
    let requirements = Requirements::default().with_global(global);
    Unit::new(name.parse().unwrap(), file, requirements, Launched)
}

fn state(name: &str, machine: &str, requested: TargetState) -> UnitState {
    UnitState {
        unit: name.parse().unwrap(),
        machine: machine.parse().unwrap(),
        hash: UnitFile::parse("").unwrap().hash(),
        requested,
        epoch: Epoch(1),
        generation: Generation::ZERO,
        systemd: SystemdState::loaded(),
        problem: None,
        health: None,
        output: Vec::new(),
    }
}

#[test]
fn current_state_is_that_of_the_placement() {
    // The placement, and the reported states.
    let table: [(Option<&str>, Reports, TargetState); 6] = [
        (None, &[], Inactive),
        (None, &[("m1", Launched)], Inactive),
        (Some("m1"), &[], Inactive),
        (Some("m1"), &[("m2", Launched)], Inactive),
        (Some("m1"), &[("m1", Loaded), ("m2", Launched)], Loaded),
        (Some("m2"), &[("m1", Loaded), ("m2", Launched)], Launched),
    ];
    for (placed, reports, expected) in table {
        let mut snapshot = Snapshot::default();
        if let Some(machine) = placed {
            snapshot.place("a.service".parse().unwrap(), machine.parse().unwrap(), Epoch(1));
        }
        for (machine, requested) in reports {
            snapshot.put_state(state("a.service", machine, *requested));
        }
        let found = snapshot.current(&unit("a.service", false));
        assert_eq!(found, expected, "placed {placed:?}, reports {reports:?}");
    }
}

#[test]
fn global_current_state_is_the_least_of_all_machines() {
    let table: [(Reports, TargetState); 4] = [
        (&[], Inactive),
        (&[("m1", Launched)], Launched),
        (&[("m1", Launched), ("m2", Loaded)], Loaded),
        (&[("m1", Launched), ("m2", Launched)], Launched),
    ];
    for (reports, expected) in table {
        let mut snapshot = Snapshot::default();
        for (machine, requested) in reports {
            snapshot.put_state(state("a.service", machine, *requested));
        }
        assert_eq!(snapshot.current(&unit("a.service", true)), expected, "{reports:?}");
    }
}

#[test]
fn fault_and_unit_replace_each_other() {
    let name: UnitName = "a.service".parse().unwrap();
    let mut snapshot = Snapshot::default();
    snapshot.put_unit(unit("a.service", false));
    snapshot.put_fault(name.clone(), Fault { message: "unreadable".into() });
    assert!(snapshot.unit("a.service").is_none());
    assert_eq!(snapshot.fault("a.service").unwrap().message, "unreadable");
    snapshot.put_unit(unit("a.service", false));
    assert!(snapshot.fault("a.service").is_none());
    snapshot.put_fault(name, Fault { message: "unreadable".into() });
    snapshot.remove_unit("a.service");
    assert_eq!((snapshot.units().len(), snapshot.faults().len()), (0, 0));
}

#[test]
fn empty_states_and_metadata_are_removed() {
    let mut snapshot = Snapshot::default();
    snapshot.put_state(state("a.service", "m1", Loaded));
    snapshot.put_state(state("a.service", "m2", Launched));
    snapshot.remove_state("a.service", "m1");
    let left: Vec<&str> = snapshot.states().map(|state| state.machine.as_str()).collect();
    assert_eq!(left, ["m2"]);
    snapshot.remove_state("a.service", "m2");
    assert_eq!(snapshot.states_of("a.service").count(), 0);

    let machine = || "m1".parse().unwrap();
    snapshot.put_dynamic_metadata(machine(), "region".into(), "eu".into());
    snapshot.put_dynamic_metadata(machine(), "region".into(), "us".into());
    assert_eq!(snapshot.dynamic_metadata("m1").unwrap()["region"], "us");
    snapshot.remove_dynamic_metadata("m1", "region");
    assert!(snapshot.dynamic_metadata("m1").is_none());
}

#[test]
fn placements_on_a_machine_follow_moves() {
    let mut snapshot = Snapshot::default();
    let places = [("a.service", "m1", 1), ("b.service", "m2", 1), ("c.service", "m1", 2)];
    for (unit, machine, epoch) in places {
        snapshot.place(unit.parse().unwrap(), machine.parse().unwrap(), Epoch(epoch));
    }
    // m10 sorts right after m1 and must not be included.
    snapshot.place("d.service".parse().unwrap(), "m10".parse().unwrap(), Epoch(1));
    let old = snapshot.clone();
    snapshot.place("a.service".parse().unwrap(), "m2".parse().unwrap(), Epoch(3));
    snapshot.place("c.service".parse().unwrap(), "m1".parse().unwrap(), Epoch(4));
    snapshot.unplace("b.service");
    snapshot.unplace("never.service");
    assert_eq!(on(&snapshot, "m1"), [("c.service".to_owned(), 4)]);
    assert_eq!(on(&snapshot, "m2"), [("a.service".to_owned(), 3)]);
    assert_eq!(on(&snapshot, "m3"), []);
    assert_eq!(on(&old, "m1"), [("a.service".to_owned(), 1), ("c.service".to_owned(), 2)]);
}

fn on(snapshot: &Snapshot, machine: &str) -> Vec<(String, u64)> {
    let machine = machine.parse().unwrap();
    let placed = snapshot.placements_on(&machine);
    placed.map(|(unit, epoch)| (unit.to_string(), epoch.0)).collect()
}

#[test]
fn global_units_follow_replacements() {
    let mut snapshot = Snapshot::default();
    for name in ["a.service", "b.service", "c.service", "d.service"] {
        snapshot.put_unit(unit(name, true));
    }
    snapshot.put_unit(unit("b.service", false));
    snapshot.remove_unit("c.service");
    snapshot.put_fault("d.service".parse().unwrap(), Fault { message: "damaged".to_owned() });
    let globals: Vec<&str> = snapshot.global_units().map(|unit| unit.name.as_str()).collect();
    assert_eq!(globals, ["a.service"]);
}

#[test]
fn unit_has_one_state_per_machine() {
    let mut snapshot = Snapshot::default();
    let machines = |snapshot: &Snapshot| -> Vec<(String, TargetState)> {
        let states = snapshot.states_of("a.service");
        states.map(|state| (state.machine.to_string(), state.requested)).collect()
    };
    let one = |machine: &str, requested| (machine.to_owned(), requested);
    for (machine, requested) in [("m2", Loaded), ("m2", Launched), ("m1", Loaded), ("m1", Launched)]
    {
        snapshot.put_state(state("a.service", machine, requested));
    }
    assert_eq!(machines(&snapshot), [one("m1", Launched), one("m2", Launched)]);
    snapshot.remove_state("a.service", "m3");
    snapshot.remove_state("a.service", "m1");
    assert_eq!(machines(&snapshot), [one("m2", Launched)]);
    assert!(snapshot.state("a.service", "m1").is_none());
    snapshot.remove_state("a.service", "m2");
    snapshot.put_state(state("a.service", "m1", Loaded));
    snapshot.remove_state("a.service", "m2");
    assert_eq!(machines(&snapshot), [one("m1", Loaded)]);
    snapshot.remove_state("a.service", "m1");
    assert_eq!(snapshot.states().count(), 0);
}

/// Bulk insertion is equivalent to single insertions in any order.
#[test]
fn bulk_insertion_equals_single_insertions() {
    let orders: [&[(&str, &str)]; 6] = [
        &[],
        &[("a.service", "m1"), ("b.service", "m1"), ("c.service", "m2")],
        &[("b.service", "m3"), ("c.service", "m2")],
        &[("b.service", "m2"), ("d.service", "m3"), ("d.service", "m1")],
        &[("c.service", "m1"), ("b.service", "m1"), ("c.service", "m2"), ("b.service", "m1")],
        &[("a.service", "m3"), ("z.service", "m1"), ("a.service", "m3"), ("a.service", "m4")],
    ];
    let (mut one_by_one, mut together) = (Snapshot::default(), Snapshot::default());
    for (number, order) in orders.into_iter().enumerate() {
        let requested = TargetState::ALL[number % TargetState::ALL.len()];
        for snapshot in [&mut one_by_one, &mut together] {
            let message = number.to_string();
            snapshot.put_fault("b.service".parse().unwrap(), Fault { message });
        }
        // A global unit may become a placed one.
        let unit = |(name, machine): &(&str, &str)| {
            std::sync::Arc::new(unit(name, (*machine == "m1") == number.is_multiple_of(2)))
        };
        let state = |(name, machine): &(&str, &str)| state(name, machine, requested);
        order.iter().for_each(|it| one_by_one.put_unit(unit(it)));
        order.iter().for_each(|it| one_by_one.put_state(state(it)));
        together.put_units(order.iter().map(unit));
        together.put_states(order.iter().map(state));
        assert_eq!(format!("{one_by_one:#?}"), format!("{together:#?}"), "{order:?}");
    }
}

#[test]
fn iteration_from_a_key_is_a_suffix() {
    let mut snapshot = Snapshot::default();
    let pairs = [("a", "m1"), ("b", "m1"), ("b", "m3"), ("b", "m4"), ("d", "m2")];
    for (unit, machine) in pairs {
        snapshot.put_state(state(&format!("{unit}.service"), machine, Loaded));
    }
    for unit in ["a", "b", "c", "d", "e"] {
        for machine in ["m1", "m2", "m3", "m5"] {
            let first = (format!("{unit}.service").parse().unwrap(), machine.parse().unwrap());
            let whole = snapshot.states().map(|state| (state.unit.clone(), state.machine.clone()));
            let rest: Vec<_> = whole.filter(|it| *it >= first).collect();
            let found = snapshot.states_from(first.0, &first.1);
            let found: Vec<_> = found.map(|it| (it.unit.clone(), it.machine.clone())).collect();
            assert_eq!(found, rest, "from {unit} on {machine} on");
        }
    }
    for id in ["m1", "m3"] {
        snapshot.put_machine(fleet_core::Machine::new(id.parse().unwrap()));
    }
    for (first, expected) in [("m0", 2), ("m1", 2), ("m2", 1), ("m3", 1), ("m4", 0)] {
        assert_eq!(snapshot.machines_from(first.parse().unwrap()).count(), expected, "{first}");
    }
}

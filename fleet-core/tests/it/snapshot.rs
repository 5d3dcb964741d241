//! What a snapshot answers: the current state of a unit above all.

use fleet_core::TargetState::{self, Inactive, Launched, Loaded};
use fleet_core::{Epoch, Fault, Generation, Requirements, Snapshot, SystemdState, Unit, UnitState};
use fleet_unitfile::{UnitFile, UnitName};

/// Which machines report a unit, and what each was asked.
type Reports = &'static [(&'static str, TargetState)];

fn unit(name: &str, global: bool) -> Unit {
    let file = UnitFile::parse("").unwrap();
    let requirements = Requirements { global, ..Requirements::default() };
    Unit::new(name.parse().unwrap(), file, requirements, Launched)
}

fn state(name: &str, machine: &str, asked: TargetState) -> UnitState {
    UnitState {
        unit: name.parse().unwrap(),
        machine: machine.parse().unwrap(),
        hash: UnitFile::parse("").unwrap().hash(),
        asked,
        epoch: Epoch(1),
        generation: Generation::ZERO,
        systemd: SystemdState::loaded(),
        problem: None,
    }
}

#[test]
fn the_current_state_is_what_the_machine_of_the_placement_was_asked() {
    // Where the unit is placed, and who reports what of it.
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
        for (machine, asked) in reports {
            snapshot.put_state(state("a.service", machine, *asked));
        }
        let found = snapshot.current(&unit("a.service", false));
        assert_eq!(found, expected, "placed {placed:?}, reports {reports:?}");
    }
}

#[test]
fn the_current_state_of_a_global_unit_is_the_least_of_its_machines() {
    let table: [(Reports, TargetState); 4] = [
        (&[], Inactive),
        (&[("m1", Launched)], Launched),
        (&[("m1", Launched), ("m2", Loaded)], Loaded),
        (&[("m1", Launched), ("m2", Launched)], Launched),
    ];
    for (reports, expected) in table {
        let mut snapshot = Snapshot::default();
        for (machine, asked) in reports {
            snapshot.put_state(state("a.service", machine, *asked));
        }
        assert_eq!(snapshot.current(&unit("a.service", true)), expected, "{reports:?}");
    }
}

#[test]
fn a_fault_and_a_unit_of_one_name_exclude_each_other() {
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
fn states_and_run_time_metadata_vanish_with_their_last_entry() {
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

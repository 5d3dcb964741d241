//! Clusters of all sorts, small enough that a person can follow what went wrong in one.
//!
//! Names, keys, values and patterns come from small sets, so that units often meet: they match each
//! other's patterns, follow each other, ask for metadata that some machine has. Placements are made
//! at random, so many break a rule, and machines that units are placed on may be gone.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{
    Epoch, Fault, Machine, MachineId, Pattern, Requirements, Revision, Snapshot, TargetState, Unit,
};
use fleet_unitfile::{UnitFile, UnitName};
use proptest::bool;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What the units of a cluster may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    pub(crate) conflicts: bool,
    pub(crate) globals: bool,
    pub(crate) groups: bool,
    pub(crate) replaces: bool,
    pub(crate) faults: bool,
}

impl Features {
    pub(crate) const ALL: Self =
        Self { conflicts: true, globals: true, groups: true, replaces: true, faults: true };

    pub(crate) const NONE: Self =
        Self { conflicts: false, globals: false, groups: false, replaces: false, faults: false };
}

/// The most units of a cluster; a template is among them.
const UNITS: [&str; 11] = [
    "a1.service",
    "a2.service",
    "a3.service",
    "b1.service",
    "b2.service",
    "b3.service",
    "c1.service",
    "c2.socket",
    "d@.service",
    "d@1.service",
    "d@2.service",
];

/// Machines that may be present; units may be placed on the last one, which never is.
const MACHINES: [&str; 5] = ["m1", "m2", "m3", "m4", "m5"];

const PATTERNS: [&str; 9] = [
    "a1.service",
    "b2.service",
    "a*",
    "?2.s*",
    "d@*.service",
    "*",
    "[ab]1.service",
    "c[!1]*",
    "nobody",
];

/// One unit as generated.
#[derive(Debug, Clone)]
struct Draft {
    state: TargetState,
    global: bool,
    pin: Option<usize>,
    metadata: BTreeMap<&'static str, BTreeSet<&'static str>>,
    conflicts: Vec<&'static str>,
    replaces: Vec<&'static str>,
    peers: Vec<usize>,
    placed: Option<(usize, u64)>,
    unreadable: bool,
}

/// Clusters whose units have some of the features.
pub(crate) fn clusters(features: Features) -> impl Strategy<Value = Snapshot> {
    let machine = btree_map(select(vec!["disk", "zone"]), select(vec!["x", "y"]), 0..=2);
    let machines = vec(option::weighted(0.8, machine), MACHINES.len() - 1);
    let units = vec(option::weighted(0.7, draft(features)), UNITS.len());
    (machines, units).prop_map(|(machines, units)| build(&machines, &units))
}

/// A cluster with a unit of it that is wanted.
pub(crate) fn with_unit(features: Features) -> impl Strategy<Value = (Snapshot, UnitName)> {
    (clusters(features), any::<Index>()).prop_filter_map("no unit is wanted", |(cluster, index)| {
        let names: Vec<UnitName> =
            cluster.units().filter(|unit| unit.is_wanted()).map(|unit| unit.name.clone()).collect();
        (!names.is_empty()).then(|| (cluster, names[index.index(names.len())].clone()))
    })
}

fn draft(features: Features) -> impl Strategy<Value = Draft> {
    let state = prop_oneof![
        1 => Just(TargetState::Inactive),
        1 => Just(TargetState::Loaded),
        5 => Just(TargetState::Launched),
    ];
    let values = btree_set(select(vec!["x", "y"]), 1..=2);
    let metadata = btree_map(select(vec!["disk", "zone"]), values, 0..=2);
    let patterns = || vec(select(PATTERNS.to_vec()), 1..=2);
    let sometimes = (bool::weighted(0.15), bool::weighted(0.1));
    let places = (option::weighted(0.1, 0..MACHINES.len()), option::weighted(0.3, metadata));
    let others = (
        option::weighted(0.3, patterns()),
        option::weighted(0.3, patterns()),
        option::weighted(0.4, vec(0..UNITS.len(), 1..=2)),
    );
    let placed = option::weighted(0.5, (0..MACHINES.len(), 0..5_u64));
    (state, sometimes, places, others, placed).prop_map(
        move |(
            state,
            (global, unreadable),
            (pin, metadata),
            (conflicts, replaces, peers),
            placed,
        )| {
            Draft {
                state,
                global: global && features.globals,
                pin,
                metadata: metadata.unwrap_or_default(),
                conflicts: conflicts.filter(|_| features.conflicts).unwrap_or_default(),
                replaces: replaces.filter(|_| features.replaces).unwrap_or_default(),
                peers: peers.filter(|_| features.groups).unwrap_or_default(),
                placed,
                unreadable: unreadable && features.faults,
            }
        },
    )
}

fn build(
    machines: &[Option<BTreeMap<&'static str, &'static str>>],
    units: &[Option<Draft>],
) -> Snapshot {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    for (id, metadata) in MACHINES.iter().zip(machines) {
        let Some(metadata) = metadata else { continue };
        let machine = Machine::new(machine_id(id));
        let pairs = metadata.iter();
        cluster.put_machine(pairs.fold(machine, |machine, (k, v)| machine.with_metadata(k, v)));
    }
    for (name, draft) in UNITS.iter().zip(units) {
        let Some(draft) = draft else { continue };
        let name: UnitName = name.parse().unwrap();
        if let Some((machine, epoch)) = draft.placed {
            cluster.place(name.clone(), machine_id(MACHINES[machine]), Epoch(epoch));
        }
        if draft.unreadable {
            cluster.put_fault(name, Fault { message: String::from("garbled") });
        } else {
            cluster.put_unit(unit(name, draft));
        }
    }
    // A placement whose unit is not known.
    cluster.place("gone.service".parse().unwrap(), machine_id("m1"), Epoch(1));
    cluster
}

fn unit(name: UnitName, draft: &Draft) -> Unit {
    let patterns = |texts: &[&str]| -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let owned = |values: &BTreeSet<&str>| values.iter().map(|v| String::from(*v)).collect();
    let single = !draft.global;
    let requirements = Requirements {
        global: draft.global,
        machine_id: draft.pin.filter(|_| single).map(|machine| machine_id(MACHINES[machine])),
        machine_of: draft
            .peers
            .iter()
            .filter(|_| single)
            .map(|at| UNITS[*at].parse().unwrap())
            .collect(),
        metadata: draft.metadata.iter().map(|(k, v)| (String::from(*k), owned(v))).collect(),
        conflicts: patterns(&draft.conflicts),
        replaces: if single { patterns(&draft.replaces) } else { Vec::new() },
        ..Requirements::default()
    };
    let file = UnitFile::parse("").unwrap();
    Unit::new(name, file, requirements, draft.state)
}

fn machine_id(text: &str) -> MachineId {
    text.parse().unwrap()
}

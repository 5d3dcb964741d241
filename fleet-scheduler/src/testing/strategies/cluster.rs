//! Generated clusters.

use std::fmt;
use std::ops::Deref;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, Revision, Snapshot};
use fleet_unitfile::UnitName;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::draft::{MachineDraft, UnitDraft, machine_draft, machine_id, name, unit_draft};
use super::features::Features;
use super::text;
use super::vocabulary::{MACHINES, UNITS};

/// A generated cluster. Its debug output consists of scenario commands.
#[derive(Clone, Default)]
pub struct GeneratedCluster(pub Snapshot);

impl Deref for GeneratedCluster {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.0
    }
}

impl fmt::Debug for GeneratedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", text::cluster(&self.0))
    }
}

/// A generated unit, its placement, and whether it is unreadable.
type Place = (UnitDraft, Option<(usize, u64)>, bool);

/// Generates clusters of up to five machines and thirteen units. Clusters with the feature `faults`
/// also have a placement of an unknown unit.
pub fn clusters(features: Features) -> impl Strategy<Value = GeneratedCluster> {
    let machines = vec(option::weighted(0.7, machine_draft()), MACHINES.len());
    let placed = option::weighted(0.5, (0..MACHINES.len(), 0..5_u64));
    let unit = (unit_draft(), placed, proptest::bool::weighted(0.1));
    let units = vec(option::weighted(0.6, unit), UNITS.len());
    (any::<u16>(), machines, units).prop_map(move |(chosen, machines, units)| {
        build(features.and(Features::from_bits(chosen)), &machines, &units)
    })
}

/// Generates a cluster and the name of one of its wanted units that are not global.
pub fn clusters_with_unit(
    features: Features,
) -> impl Strategy<Value = (GeneratedCluster, UnitName)> {
    (clusters(features), any::<Index>()).prop_filter_map("no unit is wanted", |(cluster, index)| {
        let wanted = cluster.units().filter(|unit| unit.is_wanted() && !unit.is_global());
        let names: Vec<UnitName> = wanted.map(|unit| unit.name.clone()).collect();
        let name = (!names.is_empty()).then(|| names[index.index(names.len())].clone())?;
        Some((cluster, name))
    })
}

fn build(
    features: Features,
    machines: &[Option<MachineDraft>],
    units: &[Option<Place>],
) -> GeneratedCluster {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    for (id, draft) in MACHINES.iter().zip(machines) {
        if let Some(draft) = draft {
            cluster.put_machine(draft.build(id, features));
        }
    }
    for (unit, draft) in UNITS.iter().zip(units) {
        let Some((draft, placed, unreadable)) = draft else { continue };
        if let Some((machine, epoch)) = placed {
            cluster.place(name(unit), machine_id(MACHINES[*machine]), Epoch(*epoch));
        }
        if *unreadable && features.faults {
            cluster.put_fault(name(unit), Fault { message: "garbled".into() });
        } else {
            cluster.put_unit(draft.build(name(unit), features));
        }
    }
    if features.faults {
        cluster.place(name("gone.service"), machine_id("m1"), Epoch(1));
    }
    GeneratedCluster(cluster)
}

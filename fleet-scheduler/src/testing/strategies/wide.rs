//! Generated clusters of many machines, most of them alike.

use fleet_core::{Epoch, Revision, Snapshot};
use fleet_unitfile::UnitName;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::cluster::GeneratedCluster;
use super::draft::{MachineDraft, UnitDraft, machine_draft, machine_id, name, unit_draft};
use super::features::Features;
use super::vocabulary::UNITS;

/// Number of instances of the large template.
const INSTANCES: usize = 9;

/// A generated unit with the index of its machine and the epoch.
type Place = (UnitDraft, Option<(usize, u64)>);

/// The generated parts: the machine kinds, the kind of each machine, a few different units, and
/// several units with equal requirements.
type Parts = (Vec<MachineDraft>, Vec<usize>, Vec<Option<Place>>, Vec<Place>);

/// Generates clusters of 34 to 44 machines, sometimes 70, of one to three kinds. They have up to 22
/// units, and nine of these are instances of one template with equal requirements.
///
/// The planner tries a number of machines one by one before it ranks all of them at once. Only
/// clusters of many machines test both.
pub fn wide_clusters(features: Features) -> impl Strategy<Value = GeneratedCluster> {
    let kinds = vec(machine_draft(), 1..=3);
    let machines = prop_oneof![
        9 => vec(0..3_usize, 34..=44),
        1 => vec(0..3_usize, 70),
    ];
    let placed = || option::weighted(0.4, (0..45_usize, 0..5_u64));
    let units = vec(option::weighted(0.5, (unit_draft(), placed())), UNITS.len());
    let alike = vec((unit_draft(), placed()), INSTANCES);
    let parts = (kinds, machines, units, alike);
    (any::<u16>(), parts)
        .prop_map(move |(chosen, parts)| build(features.and(Features::from_bits(chosen)), &parts))
}

fn build(features: Features, (kinds, machines, units, alike): &Parts) -> GeneratedCluster {
    let mut cluster = Snapshot::default();
    cluster.revision = Revision(10);
    for (at, kind) in machines.iter().enumerate() {
        let kind = &kinds[kind % kinds.len()];
        cluster.put_machine(kind.build(&format!("m{at}"), features));
    }
    for (unit, place) in UNITS.iter().zip(units) {
        if let Some((draft, placed)) = place {
            put(&mut cluster, name(unit), draft, *placed, features);
        }
    }
    for (at, (_, placed)) in alike.iter().enumerate() {
        let unit = name(&format!("f@{at}.service"));
        put(&mut cluster, unit, &alike[0].0, *placed, features);
    }
    GeneratedCluster(cluster)
}

fn put(
    cluster: &mut Snapshot,
    unit: UnitName,
    draft: &UnitDraft,
    placed: Option<(usize, u64)>,
    features: Features,
) {
    if let Some((machine, epoch)) = placed {
        cluster.place(unit.clone(), machine_id(&format!("m{machine}")), Epoch(epoch));
    }
    cluster.put_unit(draft.build(unit, features));
}

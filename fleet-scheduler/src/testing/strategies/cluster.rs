//! Generated clusters, small ones and ones of many machines, and the features they may have.

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
use super::{MACHINES, UNITS, text};

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

/// The options and conditions that generated clusters may have. A feature that is `false` occurs in
/// no cluster. Each of the other features occurs in some of the clusters.
///
/// ```
/// use fleet_scheduler::testing::strategies::Features;
///
/// let without_groups = Features { groups: false, ..Features::ALL };
/// assert!(without_groups.conflicts);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is written out with `..Features::ALL`")]
#[expect(clippy::struct_excessive_bools, reason = "each is a feature of its own")]
pub struct Features {
    /// `MachineID=`.
    pub pins: bool,
    /// `MachineMetadata=`.
    pub metadata: bool,
    /// `MachineMetadataExpr=`.
    pub expressions: bool,
    /// `MachineOf=` with names.
    pub groups: bool,
    /// `MachineOf=` with patterns.
    pub peer_patterns: bool,
    /// `Conflicts=`.
    pub conflicts: bool,
    /// `Replaces=`.
    pub replaces: bool,
    /// `MaxPerMachine=`.
    pub limits: bool,
    /// `Reserve…=`, and the capacity of machines.
    pub reservations: bool,
    /// `Prefer=` and `Spread=`.
    pub preferences: bool,
    /// `Reschedule=never`.
    pub never: bool,
    /// `RunOnce=true`, rarely with `Schedule=`.
    pub jobs: bool,
    /// Machines on which units have failed.
    pub failures: bool,
    /// `Global=`.
    pub globals: bool,
    /// Machines that are cordoned.
    pub cordons: bool,
    /// Units with unreadable records.
    pub faults: bool,
}

impl Features {
    /// All features.
    pub const ALL: Self = Self::from_bits(u16::MAX);

    /// Units that may be wanted and placed, without requirements.
    pub const NONE: Self = Self::from_bits(0);

    /// Creates features from a number, one bit each.
    pub(super) const fn from_bits(bits: u16) -> Self {
        const fn has(bits: u16, at: u16) -> bool {
            bits & (1 << at) != 0
        }
        Self {
            pins: has(bits, 0),
            metadata: has(bits, 1),
            groups: has(bits, 2),
            peer_patterns: has(bits, 3),
            conflicts: has(bits, 4),
            replaces: has(bits, 5),
            limits: has(bits, 6),
            reservations: has(bits, 7),
            preferences: has(bits, 8),
            never: has(bits, 9),
            globals: has(bits, 10),
            cordons: has(bits, 11),
            faults: has(bits, 12),
            expressions: has(bits, 13),
            jobs: has(bits, 14),
            failures: has(bits, 15),
        }
    }

    /// Returns the features that both have.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            pins: self.pins && other.pins,
            metadata: self.metadata && other.metadata,
            expressions: self.expressions && other.expressions,
            groups: self.groups && other.groups,
            peer_patterns: self.peer_patterns && other.peer_patterns,
            conflicts: self.conflicts && other.conflicts,
            replaces: self.replaces && other.replaces,
            limits: self.limits && other.limits,
            reservations: self.reservations && other.reservations,
            preferences: self.preferences && other.preferences,
            never: self.never && other.never,
            jobs: self.jobs && other.jobs,
            failures: self.failures && other.failures,
            globals: self.globals && other.globals,
            cordons: self.cordons && other.cordons,
            faults: self.faults && other.faults,
        }
    }
}

/// Number of instances of the large template.
const INSTANCES: usize = 9;

/// A generated unit with the index of its machine and the epoch.
type WidePlace = (UnitDraft, Option<(usize, u64)>);

/// The generated parts: the machine kinds, the kind of each machine, a few different units, and
/// several units with equal requirements.
type Parts = (Vec<MachineDraft>, Vec<usize>, Vec<Option<WidePlace>>, Vec<WidePlace>);

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
    (any::<u16>(), parts).prop_map(move |(chosen, parts)| {
        build_wide(features.and(Features::from_bits(chosen)), &parts)
    })
}

fn build_wide(features: Features, (kinds, machines, units, alike): &Parts) -> GeneratedCluster {
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

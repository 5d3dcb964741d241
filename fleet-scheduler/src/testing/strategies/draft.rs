//! Generated units and machines, in parts that shrink separately.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::job::{JobDefinition, JobSettings};
use fleet_core::pattern::Peer;
use fleet_core::requirements::{Preference, Reschedule, Spread};
use fleet_core::schedule::ScheduleSettings;
use fleet_core::{
    Expression, Machine, MachineId, Metadata, Pattern, Requirements, Resources, TargetState, Unit,
};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::{bool, option};

use super::cluster::Features;
use super::{MACHINES, UNITS, text};
use crate::testing::strategies;

const MEGABYTE: u64 = 1 << 20;

/// The requirements of a unit that do not involve other units.
#[derive(Debug, Clone)]
struct UnitParams {
    global: bool,
    pin: Option<usize>,
    metadata: Vec<(&'static str, &'static str)>,
    expression: Option<&'static str>,
    limit: Option<u32>,
    reserve: (u64, u64),
    never: bool,
    job: Option<JobDefinition>,
    prefer: Vec<(i32, &'static str)>,
    spread: Vec<(i32, &'static str)>,
    failed_on: Vec<(usize, u32)>,
}

/// The requirements of a unit that involve other units.
#[derive(Debug, Clone)]
struct PeerParams {
    peers: Vec<usize>,
    peer_pattern: Option<&'static str>,
    conflicts: Vec<&'static str>,
    replaces: Vec<&'static str>,
}

/// A generated unit.
#[derive(Debug, Clone)]
pub(super) struct UnitDraft {
    state: TargetState,
    wants: UnitParams,
    others: PeerParams,
}

/// A generated machine.
#[derive(Debug, Clone)]
pub(super) struct MachineDraft {
    metadata: Vec<(&'static str, &'static str)>,
    offers: (u64, u64),
    cordoned: bool,
}

pub(super) fn unit_draft() -> impl Strategy<Value = UnitDraft> {
    let state = prop_oneof![
        6 => Just(TargetState::Launched),
        1 => Just(TargetState::Loaded),
        1 => Just(TargetState::Inactive),
    ];
    let parts = (state, wants(), others());
    parts.prop_map(|(state, wants, others)| UnitDraft { state, wants, others })
}

fn wants() -> impl Strategy<Value = UnitParams> {
    let flags = (bool::weighted(0.15), bool::weighted(0.3), option::weighted(0.1, job()));
    let place = (
        option::weighted(0.15, 0..MACHINES.len()),
        some(0.3, strategies::pair()),
        option::weighted(0.2, strategies::expression()),
    );
    let room = (option::weighted(0.4, 1..=2_u32), option::weighted(0.6, (0..=3_u64, 0..=2_u64)));
    let keys = select(vec!["zone", "disk"]);
    let soft = (
        some(0.4, (select(vec![1, 3, -2]), strategies::expression())),
        some(0.4, (select(vec![1, 2]), keys)),
        some(0.3, (0..MACHINES.len(), 1..=3_u32)),
    );
    (flags, place, room, soft).prop_map(|(flags, place, room, soft)| UnitParams {
        global: flags.0,
        never: flags.1,
        job: flags.2,
        pin: place.0,
        metadata: place.1,
        expression: place.2,
        limit: room.0,
        reserve: room.1.unwrap_or_default(),
        prefer: soft.0,
        spread: soft.1,
        failed_on: soft.2,
    })
}

/// Generates jobs, and few schedules.
fn job() -> impl Strategy<Value = JobDefinition> {
    let daily = || "daily".parse().expect("it is a calendar event");
    let schedule = option::weighted(0.2, Just(()));
    schedule.prop_map(move |schedule| JobDefinition {
        settings: JobSettings::default(),
        schedule: schedule.map(|()| ScheduleSettings::new(daily())),
    })
}

fn others() -> impl Strategy<Value = PeerParams> {
    let peers = (some(0.35, 0..UNITS.len()), option::weighted(0.2, strategies::peer_pattern()));
    let patterns = (some(0.3, strategies::pattern()), some(0.3, strategies::pattern()));
    (peers, patterns).prop_map(|((peers, peer_pattern), (conflicts, replaces))| PeerParams {
        peers,
        peer_pattern,
        conflicts,
        replaces,
    })
}

/// Generates one or two values with this probability, else none.
fn some<S>(probability: f64, of: S) -> impl Strategy<Value = Vec<S::Value>>
where
    S: Strategy,
    S::Value: Clone,
{
    option::weighted(probability, vec(of, 1..=2)).prop_map(Option::unwrap_or_default)
}

pub(super) fn machine_draft() -> impl Strategy<Value = MachineDraft> {
    let cordoned = bool::weighted(0.25);
    let parts = (vec(strategies::pair(), 0..=3), (0..=5_u64, 0..=4_u64), cordoned);
    parts.prop_map(|(metadata, offers, cordoned)| MachineDraft { metadata, offers, cordoned })
}

impl MachineDraft {
    pub(super) fn build(&self, id: &str, features: Features) -> Machine {
        let mut machine = Machine::new(machine_id(id));
        if features.metadata || features.expressions || features.preferences {
            let pairs = self.metadata.iter();
            machine.metadata =
                pairs.map(|(key, value)| ((*key).into(), (*value).into())).collect::<Metadata>();
        }
        if features.reservations {
            machine.offers = resources(self.offers);
        }
        machine.cordoned = self.cordoned && features.cordons;
        machine
    }
}

impl UnitDraft {
    pub(super) fn build(&self, name: UnitName, features: Features) -> Unit {
        let mut requirements = self.requirements(features);
        if name.unit_type() != UnitType::Service {
            requirements.job = None; // only services run to completion
        }
        let file = UnitFile::parse(text::section(&requirements));
        let file = file.expect("the section is written as it is read");
        Unit::new(name, file, requirements, self.state)
    }

    fn requirements(&self, features: Features) -> Requirements {
        let mut all = anyone().with_global(self.wants.global && features.globals);
        self.wants.write(&mut all, features);
        self.others.write(&mut all, features);
        if all.global {
            // The other options are invalid for global units and are refused on parsing.
            let Requirements { metadata, metadata_expr, conflicts, .. } = all;
            return Requirements::default()
                .with_global(true)
                .with_metadata(metadata)
                .with_metadata_expr(metadata_expr)
                .with_conflicts(conflicts);
        }
        all
    }
}

fn anyone() -> Requirements {
    Requirements::default()
}

impl UnitParams {
    fn write(&self, all: &mut Requirements, features: Features) {
        if features.pins {
            all.machine_id = self.pin.map(|at| machine_id(MACHINES[at]));
        }
        if features.metadata {
            let mut metadata: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (key, value) in &self.metadata {
                metadata.entry((*key).into()).or_default().insert((*value).into());
            }
            all.metadata = metadata;
        }
        if features.expressions {
            all.metadata_expr = self.expression.map(expression);
        }
        if features.limits {
            all.max_per_machine = self.limit;
        }
        if features.reservations {
            all.reserve = resources(self.reserve);
        }
        if features.preferences {
            self.write_soft(all);
        }
        if self.never && features.never {
            all.reschedule = Reschedule::Never;
        }
        if features.failures {
            let failed_on = self.failed_on.iter();
            all.failed_on =
                failed_on.map(|(at, count)| (machine_id(MACHINES[*at]), *count)).collect();
        }
        if features.jobs {
            all.job = self.job.clone();
        }
    }

    fn write_soft(&self, all: &mut Requirements) {
        let prefer = self.prefer.iter();
        all.prefer = prefer
            .map(|(weight, wants)| Preference { weight: *weight, expression: expression(wants) })
            .collect();
        let keys: BTreeMap<&str, i32> = self.spread.iter().map(|(w, key)| (*key, *w)).collect();
        let spread = keys.into_iter();
        all.spread = spread.map(|(key, weight)| Spread { weight, key: key.into() }).collect();
    }
}

impl PeerParams {
    fn write(&self, all: &mut Requirements, features: Features) {
        if features.groups {
            all.machine_of = self.peers.iter().map(|at| Peer::Named(name(UNITS[*at]))).collect();
        }
        if features.peer_patterns {
            all.machine_of.extend(self.peer_pattern.map(|text| Peer::Matching(pattern(text))));
        }
        if features.conflicts {
            all.conflicts = self.conflicts.iter().map(|text| pattern(text)).collect();
        }
        if features.replaces {
            all.replaces = self.replaces.iter().map(|text| pattern(text)).collect();
        }
    }
}

fn resources((cores, memory): (u64, u64)) -> Resources {
    Resources { cpu: cores * 1000, memory: memory * MEGABYTE, disk: 0 }
}

pub(super) fn name(text: &str) -> UnitName {
    text.parse().expect("the vocabulary has valid names")
}

pub(super) fn machine_id(text: &str) -> MachineId {
    text.parse().expect("the vocabulary has valid machine IDs")
}

fn pattern(text: &str) -> Pattern {
    text.parse().expect("the vocabulary has valid patterns")
}

fn expression(text: &str) -> Expression {
    text.parse().expect("the vocabulary has valid expressions")
}

//! Reasons and explanations are true: what they say is found again by looking.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::{Machine, Peer, Reason, Rule, Snapshot, Tally, Unit};
use fleet_scheduler::{Verdict, apply, explain, plan};
use fleet_unitfile::UnitName;
use proptest::prelude::*;

use crate::clusters::{Features, clusters};
use crate::naive::{self, Places};

const WITHOUT_REPLACES: Features = Features { replaces: false, ..Features::ALL };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn every_reason_is_true(cluster in clusters(WITHOUT_REPLACES)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for (name, reason) in &plan.unplaced {
            let unit = after.unit(name.as_str()).unwrap();
            prop_assert!(is_true(&after, unit, reason), "{name}: {reason}, in {plan}");
        }
    }

    #[test]
    fn a_unit_that_could_have_a_machine_has_one(cluster in clusters(WITHOUT_REPLACES)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for name in plan.unplaced.keys() {
            for machine in after.machines() {
                prop_assert!(!could_be_on(&after, name, machine), "{name} on {}", machine.id);
            }
        }
    }

    #[test]
    fn an_explanation_says_what_the_plan_says(cluster in clusters(Features::ALL)) {
        let plan = plan(&cluster);
        let after = apply(&cluster, &plan);
        for unit in naive::singles(&after) {
            let told = explain(&after, &unit.name).unwrap();
            prop_assert_eq!(told.reason.as_ref(), plan.unplaced.get(&unit.name).map(AsRef::as_ref));
            let here: Vec<_> = told
                .machines
                .iter()
                .filter(|(_, verdict)| *verdict == Verdict::Here)
                .map(|(machine, _)| machine)
                .collect();
            let placed = after.placement(unit.name.as_str()).map(|placement| &placement.machine);
            prop_assert_eq!(here, placed.into_iter().collect::<Vec<_>>());
        }
    }
}

fn is_true(cluster: &Snapshot, unit: &Unit, reason: &Reason) -> bool {
    let places = naive::places(cluster);
    let peers = &unit.requirements.machine_of;
    let machines = u32::try_from(cluster.machines().len()).unwrap();
    match reason {
        Reason::NoMachines => machines == 0,
        Reason::NoMachineFits { machines: told, tallies, .. } => {
            *told == machines && counts(tallies) == refusals(cluster, &places, unit)
        }
        Reason::NoMachineFitsGroup { group, machines: told, tallies, .. } => {
            let company: Vec<_> = company(cluster, &unit.name).into_iter().collect();
            let counted: u32 = tallies.iter().map(|tally| tally.machines).sum();
            *told == machines && counted == machines && *group == company && company.len() > 1
        }
        Reason::PeerUnknown { peer } => {
            peers.contains(peer) && cluster.unit(peer.as_str()).is_none()
        }
        Reason::PeerInactive { peer } => {
            peers.contains(peer)
                && cluster.unit(peer.as_str()).is_some_and(|peer| !peer.is_wanted())
        }
        Reason::PeersApart { one, other } => {
            let is_there = |peer: &(UnitName, _)| {
                peers.contains(&Peer::Named(peer.0.clone())) && places.get(&peer.0) == Some(&peer.1)
            };
            is_there(one) && is_there(other) && one.1 != other.1
        }
        Reason::Cycle { units } => {
            let follows = |from: &UnitName, to: &UnitName| {
                let peers = &cluster.unit(from.as_str()).unwrap().requirements.machine_of;
                peers.iter().any(|peer| peer.covers(to))
            };
            let next = units.iter().cycle().skip(1);
            units.first() == Some(&unit.name) && units.iter().zip(next).all(|(a, b)| follows(a, b))
        }
        other => panic!("a reason that nobody gives: {other}"),
    }
}

fn counts(tallies: &[Tally]) -> BTreeMap<Rule, u32> {
    tallies.iter().map(|tally| (tally.refusal.rule(), tally.machines)).collect()
}

/// How many machines each rule is the first to refuse.
fn refusals(cluster: &Snapshot, places: &Places, unit: &Unit) -> BTreeMap<Rule, u32> {
    let mut counts = BTreeMap::new();
    for machine in cluster.machines() {
        if let Some(rule) = naive::refusing_rule(cluster, places, unit, machine) {
            *counts.entry(rule).or_default() += 1;
        }
    }
    counts
}

/// A unit with all that it must be beside and that have no machine either, however far that leads.
fn company(cluster: &Snapshot, unit: &UnitName) -> BTreeSet<UnitName> {
    let mut all = BTreeSet::from([unit.clone()]);
    loop {
        let named = all.iter().filter_map(|name| cluster.unit(name.as_str()));
        let named = named.flat_map(|unit| unit.requirements.machine_of.iter());
        let named = named.filter_map(Peer::name).cloned();
        let waiting = |name: &UnitName| {
            let single = naive::singles(cluster).any(|unit| unit.name == *name);
            single && cluster.placement(name.as_str()).is_none()
        };
        let more: BTreeSet<UnitName> = named.filter(waiting).chain(all.clone()).collect();
        if more == all {
            return all;
        }
        all = more;
    }
}

/// Whether a unit could be on a machine with all its company and with all who are there already. A
/// circle could not: none of its units can be the first to come.
fn could_be_on(cluster: &Snapshot, name: &UnitName, machine: &Machine) -> bool {
    let mut places = naive::places(cluster);
    let mut left = company(cluster, name);
    while !left.is_empty() {
        let fits = |name: &&UnitName| {
            let unit = cluster.unit(name.as_str()).unwrap();
            naive::refusing_rule(cluster, &places, unit, machine).is_none()
        };
        let Some(next) = left.iter().find(fits).cloned() else {
            return false;
        };
        left.remove(&next);
        places.insert(next, machine.id.clone());
    }
    true
}

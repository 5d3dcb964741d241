//! Generated policies with all kinds of custom rules and scores.

use std::sync::Arc;

use fleet_core::{Machine, Requirements};
use fleet_unitfile::UnitName;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::policy::{Candidate, HardRule, Policy, Ranking, RetryOn, Score, View};

/// Generates policies of any ranking. Half of them have one or two custom rules, and half have one
/// or two custom scores. These rules and scores depend on names, metadata, reservations, the units
/// on the machine, or the units elsewhere.
///
/// ```
/// use fleet_scheduler::testing::strategies::{Features, clusters, policies};
/// use fleet_scheduler::testing::naive;
/// use fleet_scheduler::{Cluster, apply};
/// use proptest::prelude::*;
///
/// proptest!(|(cluster in clusters(Features::ALL), policy in policies())| {
///     let plan = Cluster::load(policy.clone(), &cluster).plan();
///     for (unit, machine) in naive::plan(&cluster, &policy) {
///         let after = apply(&cluster, &plan);
///         prop_assert_eq!(&after.placement(unit.as_str()).unwrap().machine, &machine);
///     }
/// });
/// ```
pub fn policies() -> impl Strategy<Value = Policy> {
    let rankings = prop_oneof![
        2 => Just(Ranking::LeastLoaded),
        1 => Just(Ranking::BinPacking),
        1 => Just(Ranking::Spread),
    ];
    let rules = prop_oneof![1 => Just(Vec::new()), 1 => vec(rule(), 1..=2)];
    let scores = prop_oneof![1 => Just(Vec::new()), 1 => vec(score(), 1..=2)];
    let parts = (rankings, rules, scores);
    parts.prop_map(|(ranking, mut rules, scores)| {
        // A reason cannot distinguish two rules of the same name.
        rules.dedup_by(|one, other| one.name() == other.name());
        Policy { ranking, rules, scores }
    })
}

fn rule() -> impl Strategy<Value = Arc<dyn HardRule>> {
    fn shared(rule: impl HardRule + 'static) -> Arc<dyn HardRule> {
        Arc::new(rule)
    }
    prop_oneof![
        (2..4_usize).prop_map(|most| shared(AtMost(most))),
        select(vec!["disk", "zone"]).prop_map(|key| shared(Needs(key))),
        (0..3_u32).prop_map(|rest| shared(RefusesThird(rest))),
        (0..4_u64).prop_map(|cores| shared(CpuCap(cores * 1000))),
        Just(()).prop_map(|()| shared(WithKin)),
    ]
}

fn score() -> impl Strategy<Value = Arc<dyn Score>> {
    fn shared(score: impl Score + 'static) -> Arc<dyn Score> {
        Arc::new(score)
    }
    prop_oneof![
        (0..3_u32).prop_map(|rest| shared(PrefersThird(rest))),
        Just(()).prop_map(|()| shared(FewestKin)),
        Just(()).prop_map(|()| shared(LeastReserved)),
        Just(()).prop_map(|()| shared(Beside)),
    ]
}

/// Returns a number that depends on a unit and a machine.
fn number(unit: Candidate<'_>, machine: &Machine) -> u32 {
    let bytes = unit.name.as_str().bytes().chain(machine.id.as_str().bytes());
    bytes.map(u32::from).sum()
}

/// Returns the first letter of a name, which defines kinship.
fn letter(unit: &UnitName) -> Option<u8> {
    unit.as_str().bytes().next()
}

fn is_placed(requirements: &Requirements) -> bool {
    !requirements.global
}

/// Limits the number of placed units on a machine.
#[derive(Debug)]
struct AtMost(usize);

impl HardRule for AtMost {
    fn name(&self) -> &str {
        "AtMost"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::Departure
    }

    fn refuse(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> Option<String> {
        let placed = view.units_on(&machine.id).filter(|unit| is_placed(unit.requirements));
        let there = placed.count();
        (there >= self.0).then(|| format!("{there} are there"))
    }
}

/// Requires a metadata key of the machine for each unit with a name that begins with `a` or `e`.
#[derive(Debug)]
struct Needs(&'static str);

impl HardRule for Needs {
    fn name(&self) -> &str {
        "Needs"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::MachineChange
    }

    fn refuse(&self, _: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String> {
        let needs = matches!(letter(unit.name), Some(b'a' | b'e'));
        (needs && !machine.metadata.contains_key(self.0)).then(|| format!("no {}", self.0))
    }
}

/// Refuses a third of all machines, chosen by name and ID.
#[derive(Debug)]
struct RefusesThird(u32);

impl HardRule for RefusesThird {
    fn name(&self) -> &str {
        "RefusesThird"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::Nothing
    }

    fn refuse(&self, _: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String> {
        (number(unit, machine) % 3 == self.0).then(|| "it just does not".to_owned())
    }
}

/// Limits the CPU reservations on a machine, regardless of its offer.
#[derive(Debug)]
struct CpuCap(u64);

impl HardRule for CpuCap {
    fn name(&self) -> &str {
        "CpuCap"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::Departure
    }

    fn refuse(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String> {
        let all = view.used(&machine.id).cpu.saturating_add(unit.requirements.reserve.cpu);
        (all > self.0).then(|| format!("{all} would be reserved"))
    }
}

/// Keeps placed units with the same first letter together. As soon as one of them is on some
/// machine, every machine without such a unit refuses the others.
#[derive(Debug)]
struct WithKin;

impl HardRule for WithKin {
    fn name(&self) -> &str {
        "WithKin"
    }

    fn retry_on(&self) -> RetryOn {
        RetryOn::AnyChange
    }

    fn refuse(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> Option<String> {
        let is_kin = |other: &Candidate<'_>| {
            is_placed(other.requirements) && letter(other.name) == letter(unit.name)
        };
        let has_kin = |machine: &Machine| view.units_on(&machine.id).any(|other| is_kin(&other));
        let elsewhere = !has_kin(machine) && view.machines().any(has_kin);
        elsewhere.then(|| "its kin is elsewhere".to_owned())
    }
}

/// Prefers machines chosen by name and ID.
#[derive(Debug)]
struct PrefersThird(u32);

impl Score for PrefersThird {
    fn name(&self) -> &str {
        "PrefersThird"
    }

    fn score(&self, _: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> i64 {
        i64::from((number(unit, machine) + self.0) % 3)
    }
}

/// Prefers machines with fewer units of the same first letter, global units included.
#[derive(Debug)]
struct FewestKin;

impl Score for FewestKin {
    fn name(&self) -> &str {
        "FewestKin"
    }

    fn score(&self, view: &View<'_>, unit: Candidate<'_>, machine: &Machine) -> i64 {
        let there = view.units_on(&machine.id);
        there.filter(|other| letter(other.name) == letter(unit.name)).fold(0, |sum, _| sum - 1)
    }
}

/// Prefers machines with lower reservations.
#[derive(Debug)]
struct LeastReserved;

impl Score for LeastReserved {
    fn name(&self) -> &str {
        "LeastReserved"
    }

    fn score(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> i64 {
        0_i64.saturating_sub_unsigned(view.used(&machine.id).cpu)
    }
}

/// Prefers the machine of a certain unit.
#[derive(Debug)]
struct Beside;

impl Score for Beside {
    fn name(&self) -> &str {
        "Beside"
    }

    fn score(&self, view: &View<'_>, _: Candidate<'_>, machine: &Machine) -> i64 {
        let units = view.machines().flat_map(|machine| view.units_on(&machine.id));
        let certain = units.map(|unit| unit.name).find(|name| name.as_str().starts_with("b2."));
        let at = certain.and_then(|unit| view.machine_of(unit));
        i64::from(at.is_some_and(|at| at.id == machine.id))
    }
}

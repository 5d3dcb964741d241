//! "Which machine" of the rule_set: in which order the machines are tried.

use std::cmp::Reverse;

use fleet_core::{Machine, Spread, Unit};

use super::custom;
use super::state::PlacementState;
use crate::Ranking;

/// All machines, the one that is tried first foremost.
pub(super) fn order<'a>(state: &PlacementState<'a>, unit: &Unit) -> Vec<&'a Machine> {
    let mut machines: Vec<&Machine> = state.cluster.machines().map(AsRef::as_ref).collect();
    machines.sort_by_key(|machine| {
        (Reverse(score(state, unit, machine)), ranking(state, unit, machine), machine.id.clone())
    });
    machines
}

/// The weights of all preferences that are true of the machine, less what speaks against it for
/// the sake of spreading; plus what the embedder's scores say.
pub(super) fn score(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let prefer = unit.requirements.prefer.iter();
    let liked = prefer.filter(|preference| preference.expression.eval(&machine.metadata));
    let likes: i64 = liked.map(|preference| i64::from(preference.weight)).sum();
    let spread = unit.requirements.spread.iter();
    let spread_penalty: i64 =
        spread.map(|spread| spread_penalty(state, unit, machine, spread)).sum();
    likes - spread_penalty + custom::score(state, unit, machine)
}

/// The weight times the number of instances of the unit's template that are on machines with the
/// same value of the key.
fn spread_penalty(
    state: &PlacementState<'_>,
    unit: &Unit,
    machine: &Machine,
    spread: &Spread,
) -> i64 {
    let value = |machine: &Machine| machine.metadata.get(&spread.key).cloned();
    let alike = state.cluster.machines().filter(|other| value(other) == value(machine));
    i64::from(spread.weight) * alike.map(|other| instances(state, unit, other)).sum::<i64>()
}

/// How many instances of the unit's template are on a machine.
pub(super) fn instances(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let Some(template) = unit.name.template() else { return 0 };
    let there = state.units_on(machine).into_iter();
    count(there.filter(|name| name.template().as_ref() == Some(&template)))
}

/// Two numbers, lower ones first.
fn ranking(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> (i64, i64) {
    let load = count(state.units_on(machine).into_iter());
    match state.policy.ranking {
        Ranking::LeastLoaded => (load, 0),
        Ranking::BinPacking => (-load, 0),
        Ranking::Spread => (instances(state, unit, machine), load),
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> i64 {
    all.fold(0, |sum, _| sum + 1)
}

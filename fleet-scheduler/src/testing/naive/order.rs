//! "Choice of the machine": the order in which machines are tried.

use std::cmp::Reverse;

use fleet_core::requirements::Spread;
use fleet_core::{Machine, Unit};

use super::custom;
use super::state::PlacementState;
use crate::policy::Ranking;

/// Returns all machines in the order in which they are tried.
pub(super) fn order<'a>(state: &PlacementState<'a>, unit: &Unit) -> Vec<&'a Machine> {
    let mut machines: Vec<&Machine> = state.cluster.machines().map(AsRef::as_ref).collect();
    machines.sort_by_key(|machine| {
        (Reverse(score(state, unit, machine)), ranking(state, unit, machine), machine.id.clone())
    });
    machines
}

/// Returns the score of a machine for a unit. It adds the weights of all preferences that the
/// machine satisfies and the custom scores, and subtracts the spread penalty.
pub(super) fn score(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let prefer = unit.requirements.prefer.iter();
    let liked = prefer.filter(|preference| preference.expression.eval(&machine.metadata));
    let likes: i64 = liked.map(|preference| i64::from(preference.weight)).sum();
    let spread = unit.requirements.spread.iter();
    let spread_penalty: i64 =
        spread.map(|spread| spread_penalty(state, unit, machine, spread)).sum();
    likes - spread_penalty + custom::score(state, unit, machine)
}

/// Returns the penalty of a machine for one spread key. It is the weight times the number of
/// instances of the unit's template on machines with the same value of the key.
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

/// Counts the instances of the unit's template on a machine.
pub(super) fn instances(state: &PlacementState<'_>, unit: &Unit, machine: &Machine) -> i64 {
    let Some(template) = unit.name.template() else { return 0 };
    let present = state.units_on(machine).into_iter();
    count(present.filter(|name| name.template().as_ref() == Some(&template)))
}

/// Returns the rank of a machine, lower first.
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

//! Placement of units that only few machines can accept, because of `MachineID=` or the required
//! metadata. Only these machines are checked, because the reason why the others refuse is already
//! known.

use std::cmp::Reverse;

use fleet_core::refusal::Rule;

use crate::index::refusal_counts::{PLACEHOLDER_RULE, RefusalSummary};
use crate::index::{Cluster, refusal_counts};
use crate::policy::Ranking;
use crate::ranking::{preference_score, rank};
use crate::rules::{Rank, denial};
use crate::state::{ClassNo, MachineNo, PatternNo, State, UnitNo};

/// Some machines that refuse by the same rule.
#[derive(Debug)]
struct RefusalGroup {
    rank: Rank,
    count: usize,
    /// The machine with the lowest ID.
    first: MachineNo,
    /// The least loaded machine, then the one with the lowest ID.
    nearest: MachineNo,
}

/// Finds the best machine for a unit with a filter that only few machines can pass. The unit must
/// not be tied to others and must not replace others. The search needs no machine order, because it
/// checks all of these machines.
///
/// Returns `None` if many machines can pass the filter or if the unit has a `Spread=`. Returns
/// `Some(None)` if none of the few machines accepts the unit.
pub(super) fn find_among_few(cluster: &mut Cluster, unit: UnitNo) -> Option<Option<MachineNo>> {
    let number = cluster.state.units[unit].class;
    let class = &cluster.state.classes[number];
    if !class.requirements.spread.is_empty() {
        return None; // The spread of the other instances would have to be counted.
    }
    let few = cluster.state.filters.few_candidates(class.filter, &cluster.state.machines)?;
    let ranks = cluster.state.policy.ranking == Ranking::Spread;
    let ranked = if ranks { class.template } else { PatternNo::NONE };
    let state = &cluster.state;
    let order = |machine: &MachineNo| {
        let facts = cluster.state.machines[*machine].machine();
        (
            Reverse(preference_score(&class.requirements.prefer, facts)),
            rank(state, ranked, *machine),
        )
    };
    let taking =
        few.iter().copied().filter(|machine| denial(&cluster.state, unit, *machine).is_none());
    let found = taking.min_by_key(order);
    if found.is_none() {
        let none_takes = !few.iter().any(|machine| state.takes(class.filter, *machine));
        let class = &mut cluster.state.classes[number];
        class.refused = Some(cluster.orders.loosened_machines.end());
        class.filtered_out = none_takes.then_some(cluster.orders.facts_version);
    }
    Some(found)
}

/// Summarizes the refusals of a unit that only few machines can accept. The unit must not be tied
/// to others. Returns `None` if many machines can accept the unit or if it replaces other units.
pub(super) fn count_refusals_of_few(
    cluster: &mut Cluster,
    unit: UnitNo,
) -> Option<RefusalSummary<Rank>> {
    let class = cluster.state.units[unit].class;
    let few = few_candidates_of(&cluster.state, class)?;
    let mut groups = groups_outside(cluster, class, &few);
    for machine in few {
        if cluster.state.machines[machine].machine().cordoned {
            continue; // Cordoned machines are counted already.
        }
        if let Some(denial) = denial(&cluster.state, unit, machine) {
            let (first, nearest) = (machine, machine);
            groups.push(RefusalGroup { rank: denial.rank(), count: 1, first, nearest });
        }
    }
    Some(merge_groups(&cluster.state, groups))
}

/// Returns the present machines that `MachineID=` or the filter of a class admits. Returns `None`
/// if these are many, or if the units of the class replace other units.
fn few_candidates_of(state: &State, class: ClassNo) -> Option<Vec<MachineNo>> {
    let class = &state.classes[class];
    match class.pin.some() {
        _ if !class.replaces.is_empty() => None,
        Some(pin) => Some(Vec::from_iter(state.machines[pin].is_present().then_some(pin))),
        None => state.filters.few_candidates(class.filter, &state.machines),
    }
}

/// Returns a sort key by which the nearest of several refusing machines is chosen: the load, then
/// the position in the order of machine IDs. The lowest key wins.
fn nearness(state: &State, machine: MachineNo) -> (u32, u32) {
    let slot = &state.machines[machine];
    (slot.occupancy.load(), slot.label)
}

/// Returns the refusals of two sets of machines: those that are cordoned, and those that are not
/// cordoned and not in `few`. Machines outside `few` can never accept the units of the class.
fn groups_outside(cluster: &mut Cluster, class: ClassNo, few: &[MachineNo]) -> Vec<RefusalGroup> {
    let cordoned = |machine: &&MachineNo| cluster.state.machines[**machine].machine().cordoned;
    let checked = few.len() - few.iter().filter(cordoned).count();
    let pinned = cluster.state.classes[class].pin.some().is_some();
    let rule = if pinned { Rule::MachineId } else { Rule::MachineMetadata };
    let counts = refusal_counts::filter_refusal_counts(cluster);
    let part = |answer: Rule, rule: Rule, few: &[MachineNo], checked: usize| {
        let (first, nearest) = counts.first_and_nearest(answer, few)?;
        Some(RefusalGroup {
            rank: (rule, 0),
            count: counts.count(answer) - checked,
            first,
            nearest,
        })
    };
    let cordoned = part(Rule::Cordon, Rule::Cordon, &[], 0);
    cordoned.into_iter().chain(part(PLACEHOLDER_RULE, rule, few, checked)).collect()
}

/// Merges groups of refusing machines into a summary.
fn merge_groups(state: &State, mut groups: Vec<RefusalGroup>) -> RefusalSummary<Rank> {
    let mut summary = RefusalSummary::new();
    groups.sort_by_key(|part| state.machines[part.first].label);
    for part in &groups {
        let count = u32::try_from(part.count).unwrap_or(u32::MAX);
        summary.tallies.entry(part.rank).or_insert((0, part.first)).0 += count;
    }
    let nearest = groups.iter().max_by_key(|p| (p.rank, Reverse(nearness(state, p.nearest))));
    summary.nearest = nearest.map(|part| {
        let (load, _) = nearness(state, part.nearest);
        (part.rank, load, part.nearest)
    });
    summary
}

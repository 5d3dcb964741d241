//! The search for the first machine that accepts a unit, in the unit's order of machines.
//!
//! Only few machines can accept some units, because of `MachineID=` or the required metadata. For
//! such a unit only these machines are checked, because the reason why the others refuse is known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fleet_core::refusal::Rule;

use super::decide::MAX_PROBES;
use crate::index::refusal_counts::{PLACEHOLDER_RULE, RefusalSummary};
use crate::index::{Cluster, refusal_counts};
use crate::policy::{Candidate, Ranking, View};
use crate::ranking::{preference_score, rank};
use crate::rules::{Rank, denial};
use crate::state::{ClassNo, MachineNo, OrderNo, PatternNo, State, StateView, UnitNo};

/// Returns the first machine that accepts a unit. The unit must not be tied to others and must not
/// replace others.
pub(super) fn find_machine(cluster: &mut Cluster, unit: UnitNo) -> Option<MachineNo> {
    if let Some(pin) = cluster.state.class(unit).pin.some() {
        let present = cluster.state.machines[pin].is_present();
        return (present && denial(&cluster.state, unit, pin).is_none()).then_some(pin);
    }
    if !cluster.state.policy.scores.is_empty() {
        let all = ranked_machines(cluster, unit);
        return all.into_iter().find(|machine| denial(&cluster.state, unit, *machine).is_none());
    }
    if !cluster.state.policy.rules.is_empty() {
        return search(cluster, unit, |cluster, machine| {
            denial(&cluster.state, unit, machine).is_none()
        });
    }
    if let Some(found) = find_among_few(cluster, unit) {
        return found;
    }
    if let Some(found) = find_among_loosened(cluster, unit) {
        return found;
    }
    search_for_class(cluster, unit)
}

/// Searches only the machines that may accept a unit's class although they refused it at the last
/// search. Returns `Some(None)` if none of them accepts the unit.
///
/// Returns `None` if this shortcut is not possible:
///
/// - No search for the class has failed yet.
/// - More than `MAX_PROBES` machines have changed since the last failed search.
/// - The change log no longer reaches back to that search.
fn find_among_loosened(cluster: &mut Cluster, unit: UnitNo) -> Option<Option<MachineNo>> {
    let number = cluster.state.units[unit].class;
    let loosened =
        cluster.orders.loosened_machines.since(cluster.state.classes[number].refused?)?;
    if loosened.len() > MAX_PROBES {
        return None;
    }
    let is_present = |m: &MachineNo| cluster.state.machines[*m].is_present();
    let takes = |machine: &MachineNo| denial(&cluster.state, unit, *machine).is_none();
    let taking = loosened.iter().copied().filter(is_present).filter(takes);
    let taking: Vec<MachineNo> = taking.collect();
    if taking.is_empty() {
        let (filter, state) = (cluster.state.classes[number].filter, &cluster.state);
        let still_hopeless = loosened.iter().all(|machine| !state.takes(filter, *machine));
        let class = &mut cluster.state.classes[number];
        class.refused = Some(cluster.orders.loosened_machines.end());
        class.filtered_out =
            class.filtered_out.filter(|_| still_hopeless).map(|_| cluster.orders.facts_version);
        return Some(None);
    }
    let (order, template) = refreshed_order(cluster, unit);
    let (order, state) = (&cluster.orders[order], &cluster.state);
    Some(taking.into_iter().min_by_key(|machine| order.sort_key(*machine, template, state)))
}

/// Returns the first machine, in the machine order of a unit's class, that accepts the unit. If all
/// machines refuse the unit, records for the class that they do, and returns `None`.
fn search_for_class(cluster: &mut Cluster, unit: UnitNo) -> Option<MachineNo> {
    let number = cluster.state.units[unit].class;
    let own = cluster.state.classes[number].private_order;
    let shared = order(cluster, unit);
    let order = own.some().unwrap_or(shared);
    let mut skipped = Vec::new();
    let template = cluster.state.classes[number].template;
    let takes = |cluster: &mut Cluster, machine| denial(&cluster.state, unit, machine).is_none();
    let is_spared = is_spared(cluster, unit, order);
    let reserves = !cluster.state.class(unit).requirements.reserve.is_zero();
    let found = if is_spared {
        scan(cluster, order, &mut skipped, takes)
    } else if reserves && cluster.orders[order].rooms_mut().is_some() {
        first_with_room(cluster, unit, (order, template), &mut skipped)
    } else {
        first_accepting(cluster, (order, template), &mut skipped, takes)
    };
    let class = &mut cluster.state.classes[number];
    if found.is_none() {
        class.refused = Some(cluster.orders.loosened_machines.end());
        // A private order omits refusals that only a change of the machine can lift.
        let order = &cluster.orders[order];
        let none_takes = skipped.is_empty() && order.len() == 0 && !order.is_private();
        class.filtered_out = none_takes.then_some(cluster.orders.facts_version);
    } else if own == OrderNo::NONE && !is_spared {
        class.skips += skipped.len();
        if class.skips > cluster.orders[shared].len() + 2 * MAX_PROBES {
            class.private_order = cluster.orders.acquire_private(shared).unwrap_or_default();
        }
    }
    if !cluster.orders[order].is_private() && !is_spared {
        put_back(cluster, order, &skipped);
        let Cluster { orders, state, .. } = cluster;
        let order = &mut orders[order];
        if reserves && skipped.len() >= MAX_PROBES && order.rooms_mut().is_none() {
            order.index_rooms(state);
        }
    }
    found
}

/// Returns the first machine, in a machine order with an index of rooms, that accepts a unit. Adds
/// each machine that refuses to `skipped`, and leaves it in the order.
fn first_with_room(
    cluster: &mut Cluster,
    unit: UnitNo,
    (order, template): (OrderNo, PatternNo),
    skipped: &mut Vec<MachineNo>,
) -> Option<MachineNo> {
    refresh(cluster, order, template);
    let mut rooms = cluster.orders[order].rooms_mut().take()?;
    let machines = &cluster.orders[order];
    let wants = (template, cluster.state.class(unit).requirements.reserve);
    let takes = |machine| {
        let takes = denial(&cluster.state, unit, machine).is_none();
        skipped.extend(Some(machine).filter(|_| !takes));
        takes
    };
    let found = machines.first_with_room(&mut rooms, wants, &cluster.state, takes);
    *cluster.orders[order].rooms_mut() = Some(rooms);
    found
}

/// Returns whether the order serves a single unit and is not built.
fn is_spared(cluster: &Cluster, unit: UnitNo, order: OrderNo) -> bool {
    cluster.state.class(unit).users == 1 && cluster.orders[order].is_spared()
}

/// Returns the first machine for which `takes` returns true, like
/// [`first_accepting`](first_accepting), but without building the order.
fn scan(
    cluster: &mut Cluster,
    order: OrderNo,
    skipped: &mut Vec<MachineNo>,
    mut takes: impl FnMut(&mut Cluster, MachineNo) -> bool,
) -> Option<MachineNo> {
    let (order, state) = (&cluster.orders[order], &cluster.state);
    let few = cluster.state.filters.few_candidates(order.filter(), &cluster.state.machines);
    let all = few.unwrap_or_else(|| cluster.state.machines.present().collect()).into_iter();
    let passing = all.filter(|machine| state.takes(order.filter(), *machine));
    let ranked =
        passing.map(|machine| Reverse((order.sort_key(machine, PatternNo::NONE, state), machine)));
    let mut ranked: BinaryHeap<_> = ranked.collect::<Vec<_>>().into();
    while let Some(Reverse((_, machine))) = ranked.pop() {
        if takes(cluster, machine) {
            return Some(machine);
        }
        skipped.push(machine);
    }
    None
}

/// Returns the first machine for which `takes` returns true. The machines come in the machine order
/// that the unit's class shares with other classes.
pub(super) fn search(
    cluster: &mut Cluster,
    unit: UnitNo,
    takes: impl FnMut(&mut Cluster, MachineNo) -> bool,
) -> Option<MachineNo> {
    let order = order(cluster, unit);
    let mut skipped = Vec::new();
    if is_spared(cluster, unit, order) {
        return scan(cluster, order, &mut skipped, takes);
    }
    let template = cluster.state.class(unit).template;
    let found = first_accepting(cluster, (order, template), &mut skipped, takes);
    put_back(cluster, order, &skipped);
    found
}

/// Returns the first machine in a machine order for which `takes` returns true, or `None` if there
/// is none. `Spread=` counts the instances of `template`.
///
/// Each machine that refuses is removed from the machine order and added to `skipped`; the caller
/// may insert it again. If several classes share the machine order, at most `MAX_PROBES` machines
/// are removed. The remaining machines are then tried without being removed.
fn first_accepting(
    cluster: &mut Cluster,
    (order, template): (OrderNo, PatternNo),
    skipped: &mut Vec<MachineNo>,
    mut takes: impl FnMut(&mut Cluster, MachineNo) -> bool,
) -> Option<MachineNo> {
    refresh(cluster, order, template);
    loop {
        let Cluster { orders, state, .. } = cluster;
        let machine = orders[order].first(template, state)?;
        if skipped.len() >= MAX_PROBES && !orders[order].is_private() {
            let rest = orders[order].all(template, state);
            return rest.into_iter().find(|machine| takes(cluster, *machine));
        }
        if takes(cluster, machine) {
            return Some(machine);
        }
        cluster.orders[order].remove(machine);
        skipped.push(machine);
    }
}

fn put_back(cluster: &mut Cluster, order: OrderNo, skipped: &[MachineNo]) {
    let Cluster { orders, state, .. } = cluster;
    skipped.iter().for_each(|machine| orders[order].insert(*machine, state));
}

/// Returns the first of the [ranked machines](ranked_machines) of a unit, or `None` if custom
/// scores require ranking all of them.
pub(super) fn top_machine(cluster: &mut Cluster, unit: UnitNo) -> Option<MachineNo> {
    if !cluster.state.policy.scores.is_empty() {
        return None;
    }
    let (order, template) = refreshed_order(cluster, unit);
    let Cluster { orders, state, .. } = cluster;
    orders[order].first(template, state)
}

/// Returns all machines that pass the filter of a unit, in the order in which the unit tries them.
pub(super) fn ranked_machines(cluster: &mut Cluster, unit: UnitNo) -> Vec<MachineNo> {
    let (order, template) = refreshed_order(cluster, unit);
    let (order, state) = (&cluster.orders[order], &cluster.state);
    let all = order.all(template, state);
    if cluster.state.policy.scores.is_empty() {
        return all;
    }
    let mut all: Vec<_> = all
        .into_iter()
        .map(|machine| {
            let (score, rank) = order.sort_key(machine, template, state);
            (
                Reverse(custom_score(&cluster.state, unit, machine).saturating_sub(score)),
                rank,
                machine,
            )
        })
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(_, _, machine)| machine).collect()
}

/// Returns the sum of the custom scores of a machine.
pub(super) fn custom_score(state: &State, unit: UnitNo, machine: MachineNo) -> i64 {
    let requirements = &state.class(unit).requirements;
    let candidate = Candidate { name: state.units.name(unit), requirements };
    let machine = state.machines[machine].machine();
    let source = StateView { state, leaving: &[] };
    let view = View::new(&source);
    let scores = state.policy.scores.iter();
    scores.map(|score| score.score(&view, candidate, machine)).fold(0, i64::saturating_add)
}

/// Returns the shared machine order of a unit's class.
fn order(cluster: &mut Cluster, unit: UnitNo) -> OrderNo {
    let number = cluster.state.units[unit].class;
    let class = &cluster.state.classes[number];
    if let Some(order) = class.order.some() {
        return order;
    }
    let wants = class.requirements.clone();
    let template = class.template;
    let spread = if template == PatternNo::NONE { &[] } else { &wants.spread[..] };
    let ranks = cluster.state.policy.ranking == Ranking::Spread;
    let ranked = if ranks { template } else { PatternNo::NONE };
    let order = cluster.orders.acquire(class.filter, &wants, spread, ranked);
    cluster.state.classes[number].order = order;
    order
}

/// Brings the machine order of a unit's class up to date. Returns the machine order and the unit's
/// template.
pub(super) fn refreshed_order(cluster: &mut Cluster, unit: UnitNo) -> (OrderNo, PatternNo) {
    let (order, template) = (order(cluster, unit), cluster.state.class(unit).template);
    refresh(cluster, order, template);
    (order, template)
}

fn refresh(cluster: &mut Cluster, order: OrderNo, template: PatternNo) {
    let filter = cluster.orders[order].filter();
    cluster.state.filters.cache_verdicts(filter, &cluster.state.machines);
    let Cluster { orders, state, .. } = cluster;
    orders.refresh(order, template, state);
    if orders[order].spreads() {
        let users = &mut cluster.state.patterns[template].orders;
        if !users.contains(&order) {
            users.push(order);
        }
    }
}

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
    let (state, wants) = (&cluster.state, &class.requirements);
    let order = |machine: &MachineNo| {
        let facts = cluster.state.machines[*machine].machine();
        (
            Reverse(preference_score(&wants.prefer, &wants.failed_on, facts)),
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

//! Updates of units: moves a unit with a changed definition to another class, and updates its ties
//! to the units that it names in `MachineOf=`.

use std::sync::Arc;

use fleet_core::pattern::Peer;
use fleet_core::{Pattern, Requirements};
use fleet_unitfile::UnitName;

use super::{Cluster, placements, retry_queue, undo_log};
use crate::policy::Ranking;
use crate::state::{
    ClassKey, ClassNo, Classes, EquivalenceClass, MachineNo, NOTHING, OrderNo, PatternNo, PeerRef,
    State, UnitKind, UnitNo, WaitState,
};

/// Changes the kind or the requirements of a name.
pub(crate) fn upsert(
    cluster: &mut Cluster,
    unit: UnitNo,
    kind: UnitKind,
    wants: Option<Arc<Requirements>>,
    wanted: bool,
) {
    let slot = &mut cluster.state.units[unit];
    slot.wanted = wanted;
    if slot.kind == kind && slot.requirements == wants {
        cluster.state.units.forget_if_idle(unit);
        return;
    }
    cluster.touched = true;
    retry_queue::requeue_tied(cluster, unit);
    remove_definition(cluster, unit);
    let slot = &mut cluster.state.units[unit];
    slot.kind = kind;
    slot.requirements = wants;
    insert_definition(cluster, unit);
    retry_queue::requeue_tied(cluster, unit);
    cluster.state.units.forget_if_idle(unit);
}

/// Removes a unit from everything but its name and its placement.
fn remove_definition(cluster: &mut Cluster, unit: UnitNo) {
    placements::withdraw(cluster, unit);
    retry_queue::forget_waiting(cluster, unit);
    let name = cluster.state.units.name(unit).clone();
    if cluster.globals.remove(&name).is_some() {
        let machines: Vec<MachineNo> = cluster.state.machines.present().collect();
        for machine in machines {
            if cluster.state.is_on(unit, machine) {
                undo_log::detach(cluster, unit, machine);
            }
            placements::mark_dirty(cluster, machine);
        }
    }
    remove_peers(cluster, unit);
    remove_as_member(cluster, unit);
    let class = std::mem::take(&mut cluster.state.units[unit].class);
    if class != ClassNo::NONE {
        release(cluster, class);
    }
}

/// Adds a unit according to its kind.
pub(crate) fn insert_definition(cluster: &mut Cluster, unit: UnitNo) {
    match cluster.state.units[unit].kind {
        UnitKind::Single => {
            add_peers(cluster, unit);
            classify(cluster, unit);
        }
        UnitKind::Global => {
            classify(cluster, unit);
            cluster.globals.insert(cluster.state.units.name(unit).clone(), unit);
            let machines: Vec<MachineNo> = cluster.state.machines.present().collect();
            machines.into_iter().for_each(|machine| placements::mark_dirty(cluster, machine));
        }
        UnitKind::Unreadable => classify(cluster, unit),
        UnitKind::Unknown | UnitKind::Inactive => {}
    }
    placements::apply_placement(cluster, unit);
}

fn add_peers(cluster: &mut Cluster, unit: UnitNo) {
    let Some(wants) = cluster.state.units[unit].requirements.clone() else { return };
    for peer in &wants.machine_of {
        let peer = match peer {
            Peer::Named(name) => {
                let other = cluster.state.units.intern(name);
                cluster.state.units.affinity_mut(other).followers.push(unit);
                PeerRef::Named(other)
            }
            Peer::Matching(pattern) => {
                let pattern = acquire(cluster, pattern);
                add_follower(cluster, pattern, unit);
                PeerRef::Matching(pattern)
            }
        };
        cluster.state.units.affinity_mut(unit).peers.push(peer);
    }
}

/// Records that a unit has a pattern in its `MachineOf=`.
///
/// If this is the first unit with the pattern, the matching units become tied. Those that are
/// parked with their class are then queued again, because tied units must not be parked with a
/// class.
fn add_follower(cluster: &mut Cluster, pattern: PatternNo, unit: UnitNo) {
    let slot = &cluster.state.patterns[pattern];
    if slot.members.is_none() {
        let takes_part = |unit: &UnitNo| cluster.state.units[*unit].class != ClassNo::NONE;
        let members = cluster.state.matching(pattern).filter(takes_part);
        let members = members.map(|unit| (cluster.state.units.name(unit).clone(), unit)).collect();
        cluster.state.patterns[pattern].members = Some(members);
    }
    let slot = &mut cluster.state.patterns[pattern];
    slot.unplaced_followers.insert(unit);
    let followers = &mut slot.followers;
    followers.push(unit);
    if followers.len() > 1 {
        return;
    }
    let is_parked = |unit: &UnitNo| cluster.state.units[*unit].wait == WaitState::Parked;
    let parked: Vec<UnitNo> = cluster.state.members(pattern).filter(is_parked).collect();
    parked.into_iter().for_each(|unit| retry_queue::requeue(cluster, unit));
}

/// Adds a unit to the members of its matching patterns.
fn add_as_member(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &cluster.state.units[unit];
    for pattern in &cluster.state.classes[slot.class].matched {
        if let Some(members) = &mut cluster.state.patterns[*pattern].members {
            members.insert(slot.name().clone(), unit);
        }
    }
}

/// Undoes [`add_as_member`](add_as_member).
fn remove_as_member(cluster: &mut Cluster, unit: UnitNo) {
    let slot = &cluster.state.units[unit];
    let Some(class) = slot.class.some() else { return };
    for pattern in &cluster.state.classes[class].matched {
        if let Some(members) = &mut cluster.state.patterns[*pattern].members {
            members.remove(slot.name());
        }
    }
}

fn remove_peers(cluster: &mut Cluster, unit: UnitNo) {
    let Some(affinity) = &mut cluster.state.units[unit].affinity else { return };
    for peer in std::mem::take(&mut affinity.peers) {
        let remove = |from: &mut Vec<UnitNo>| {
            if let Some(at) = from.iter().position(|other| *other == unit) {
                from.swap_remove(at);
            }
        };
        match peer {
            PeerRef::Named(other) => {
                remove(&mut cluster.state.units.affinity_mut(other).followers);
                if other != unit {
                    cluster.state.units.forget_if_idle(other);
                }
            }
            PeerRef::Matching(pattern) => {
                let slot = &mut cluster.state.patterns[pattern];
                remove(&mut slot.followers);
                slot.unplaced_followers.remove(&unit);
                cluster.state.patterns.release(pattern);
            }
        }
    }
}

/// Increments the user count of a pattern, adding the pattern if it is unknown, and returns its
/// number. If the pattern is new, also moves the units that it matches to other classes.
fn acquire(cluster: &mut Cluster, pattern: &Pattern) -> PatternNo {
    let (number, is_new) = cluster.state.patterns.acquire(pattern);
    if is_new {
        let slot = &cluster.state.patterns[number];
        let alike = cluster.state.units.with_prefix(slot.literal());
        let matched = alike.filter(|(name, _)| slot.matches(name)).map(|(_, unit)| unit);
        let matched: Vec<UnitNo> = matched.collect();
        matched.into_iter().for_each(|unit| reclassify(cluster, unit));
    }
    number
}

/// Moves a unit to another class, because a new pattern matches the unit's name.
fn reclassify(cluster: &mut Cluster, unit: UnitNo) {
    let old = cluster.state.units[unit].class;
    if old == ClassNo::NONE {
        return;
    }
    retry_queue::requeue(cluster, unit);
    remove_as_member(cluster, unit);
    let machines = machines_of(cluster, unit);
    machines.iter().for_each(|machine| undo_log::detach(cluster, unit, *machine));
    classify(cluster, unit);
    machines.iter().for_each(|machine| undo_log::attach(cluster, unit, *machine));
    release(cluster, old);
}

/// Returns the machines that a unit is on.
fn machines_of(cluster: &Cluster, unit: UnitNo) -> Vec<MachineNo> {
    let slot = &cluster.state.units[unit];
    if slot.kind == UnitKind::Global {
        return cluster
            .state
            .machines
            .present()
            .filter(|machine| cluster.state.is_on(unit, *machine))
            .collect();
    }
    slot.machine.some().into_iter().collect()
}

/// Finds or creates the class of a unit.
pub(crate) fn classify(cluster: &mut Cluster, unit: UnitNo) {
    let name = cluster.state.units.name(unit).clone();
    let wants = class_requirements(&cluster.state, unit);
    let single = cluster.state.units[unit].kind == UnitKind::Single;
    let template = acquire_template(cluster, &name, &wants, single);
    let owner = (single && cluster.state.policy.is_custom()).then(|| name.clone());
    let found = {
        let matched = cluster.state.covering(&name);
        cluster.state.classes.find(ClassKey {
            wants: &wants,
            owner: owner.as_ref(),
            matched: &matched,
        })
    };
    let class = match found {
        Some(class) => {
            template.into_iter().for_each(|pattern| cluster.state.patterns.release(pattern));
            class
        }
        None => make_class(cluster, &name, wants, owner, template),
    };
    cluster.state.classes[class].users += 1;
    cluster.state.units[unit].class = class;
    add_as_member(cluster, unit);
}

/// Returns the requirements that count for the class of a unit.
fn class_requirements(state: &State, unit: UnitNo) -> Arc<Requirements> {
    let slot = &state.units[unit];
    match (&slot.requirements, slot.kind) {
        (Some(wants), UnitKind::Single) => wants.clone(),
        (Some(wants), UnitKind::Global) => Arc::new(
            Requirements::default()
                .with_global(true)
                .with_metadata(wants.metadata.clone())
                .with_metadata_expr(wants.metadata_expr.clone())
                .with_conflicts(wants.conflicts.clone()),
        ),
        _ => NOTHING.clone(),
    }
}

/// Increments the user count of the pattern that stands for a unit's template, and returns its
/// number. Returns `None` if the instances of the template need not be counted.
fn acquire_template(
    cluster: &mut Cluster,
    name: &UnitName,
    wants: &Requirements,
    single: bool,
) -> Option<PatternNo> {
    let limited = wants.max_per_machine.is_some() || !wants.spread.is_empty();
    let counts = limited || cluster.state.policy.ranking == Ranking::Spread;
    if !single || !counts || !name.is_instance() {
        return None;
    }
    let text = template_text(name);
    if let Some(known) = cluster.state.patterns.acquire_known(&text) {
        return Some(known);
    }
    let pattern: Pattern = text.parse().ok()?;
    Some(acquire(cluster, &pattern))
}

fn make_class(
    cluster: &mut Cluster,
    name: &UnitName,
    requirements: Arc<Requirements>,
    owner: Option<UnitName>,
    template: Option<PatternNo>,
) -> ClassNo {
    let patterns = |cluster: &mut Cluster, all: &[Pattern]| -> Vec<PatternNo> {
        all.iter().map(|pattern| acquire(cluster, pattern)).collect()
    };
    let conflicts = patterns(cluster, &requirements.conflicts);
    let replaces = patterns(cluster, &requirements.replaces);
    let matched = cluster.state.covering(name);
    cluster.state.patterns.add_class(&matched);
    let counted = match template {
        None if matched.is_empty() || !name.is_instance() => None,
        None => cluster.state.patterns.find(&template_text(name)),
        Some(template) => Some(template),
    };
    let counted = counted.filter(|pattern| matched.binary_search(pattern).is_ok());
    let filter = cluster.state.filters.acquire(&requirements, &cluster.state.machines);
    let pin = requirements.machine_id.as_ref().map(|id| {
        let machine = placements::intern_machine(cluster, id);
        cluster.state.machines[machine].named += 1;
        machine
    });
    cluster.state.classes.insert(EquivalenceClass {
        requirements,
        owner,
        conflicts,
        replaces,
        matched,
        template: counted.unwrap_or_default(),
        counts_template: template.is_some(),
        filter,
        pin: pin.unwrap_or_default(),
        ..EquivalenceClass::default()
    })
}

/// Removes a user of a class.
fn release(cluster: &mut Cluster, number: ClassNo) {
    let class = &mut cluster.state.classes[number];
    class.users -= 1;
    if class.users > 0 || number == Classes::PLAIN {
        return;
    }
    let class = cluster.state.classes.remove(number);
    cluster.refusal_cache.forget(number);
    for order in [class.order, class.private_order] {
        release_order(cluster, order, class.template);
    }
    cluster.state.filters.release(class.filter);
    let template = Some(class.template).filter(|_| class.counts_template);
    let used = class.conflicts.iter().chain(&class.replaces).chain(&template);
    used.for_each(|pattern| cluster.state.patterns.release(*pattern));
    cluster.state.patterns.remove_class(&class.matched);
    if let Some(pin) = class.pin.some() {
        cluster.state.machines[pin].named -= 1;
        cluster.state.machines.forget_if_idle(pin);
    }
}

/// Removes a class from the users of a machine order. If the class has a `template`, the order also
/// forgets the instance counts of that template.
fn release_order(cluster: &mut Cluster, order: OrderNo, template: PatternNo) {
    let Some(order) = order.some() else { return };
    if let Some(template) = template.some() {
        // Another class of the template would count the instances again.
        cluster.orders[order].forget(template);
        cluster.state.patterns[template].orders.retain(|other| *other != order);
    }
    cluster.orders.release(order);
}

/// Returns a pattern that matches exactly the instances of a unit's template.
fn template_text(name: &UnitName) -> String {
    format!("{}@?*.{}", name.prefix(), name.unit_type())
}

//! Pure: what would start for a goal, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::graph::{EdgeKind, Graph, Name, Target, Unit};

/// A unit that the goal needs.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// Which wave it starts in, counted from 1; none if it never does.
    pub(crate) wave: Option<usize>,
    /// The unit.
    pub(crate) unit: Arc<Unit>,
    /// What it comes after, or has to do without.
    pub(crate) after: Vec<(EdgeKind, Name)>,
    /// For whom it is there.
    pub(crate) needed_by: Vec<(EdgeKind, Name)>,
    /// Why it never starts.
    pub(crate) never: Option<Never>,
}

/// Why a unit never starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Never {
    /// It is masked.
    Masked,
    /// This unit, which it cannot do without, never starts.
    Without(Name),
}

/// All units that a goal needs, wave by wave and by name, those last that never start.
pub(crate) fn waves(graph: &Graph, goal: &Target, mask: &BTreeSet<Target>) -> Vec<Start> {
    let needed = needed(graph, goal, mask);
    let mut known: BTreeMap<&Name, Start> = BTreeMap::new();
    for name in in_order(graph, &needed) {
        let Some(unit) = graph.unit(name) else { continue };
        let start = start(graph, unit, &needed, &known, mask);
        known.insert(name, start);
    }
    let mut starts: Vec<Start> = known.into_values().collect();
    // The names are in order already.
    starts.sort_by_key(|start| start.wave.unwrap_or(usize::MAX));
    starts
}

fn start(
    graph: &Graph,
    unit: &Arc<Unit>,
    needed: &BTreeSet<&Name>,
    known: &BTreeMap<&Name, Start>,
    mask: &BTreeSet<Target>,
) -> Start {
    let after = neighbours(graph.dependencies(&unit.name), needed, EdgeKind::orders);
    let mut dependents = graph.dependents(&unit.name);
    dependents.retain(|(_, unit)| !is_masked(unit, mask));
    let needed_by = neighbours(dependents, needed, EdgeKind::requires);
    let lost = |(kind, name): &&(EdgeKind, Name)| {
        let is_hard = matches!(kind, EdgeKind::DependsOn | EdgeKind::DependsMs);
        is_hard && known.get(name).is_some_and(|it| it.never.is_some())
    };
    let never = if is_masked(unit, mask) {
        Some(Never::Masked)
    } else {
        after.iter().find(lost).map(|(_, name)| Never::Without(name.clone()))
    };
    let before = after.iter().filter_map(|(_, name)| known.get(name)?.wave).max();
    let wave = never.is_none().then(|| before.unwrap_or(0) + 1);
    Start { wave, unit: Arc::clone(unit), after, needed_by, never }
}

fn neighbours(
    all: Vec<(EdgeKind, &Arc<Unit>)>,
    needed: &BTreeSet<&Name>,
    counts: fn(EdgeKind) -> bool,
) -> Vec<(EdgeKind, Name)> {
    let those = all.into_iter().filter(|(kind, unit)| counts(*kind) && needed.contains(&unit.name));
    those.map(|(kind, unit)| (kind, unit.name.clone())).collect()
}

fn is_masked(unit: &Unit, mask: &BTreeSet<Target>) -> bool {
    unit.provides.iter().any(|target| mask.contains(target))
}

/// The units that a goal asks for. A masked one is among them, and asks for nothing itself.
fn needed<'g>(graph: &'g Graph, goal: &Target, mask: &BTreeSet<Target>) -> BTreeSet<&'g Name> {
    let mut needed = BTreeSet::new();
    let mut open: Vec<&Name> = graph.provider(goal).map(|unit| &unit.name).into_iter().collect();
    while let Some(name) = open.pop() {
        let is_masked = graph.unit(name).is_some_and(|unit| is_masked(unit, mask));
        if needed.insert(name) && !is_masked {
            let all = graph.dependencies(name).into_iter();
            open.extend(all.filter(|(kind, _)| kind.requires()).map(|(_, unit)| &unit.name));
        }
    }
    needed
}

/// Each unit after those that it waits for. Dependencies that order are in no circle.
fn in_order<'g>(graph: &'g Graph, needed: &BTreeSet<&'g Name>) -> Vec<&'g Name> {
    let waits = |name: &Name| {
        let on = graph.dependencies(name).into_iter();
        on.filter(|(kind, unit)| kind.orders() && needed.contains(&unit.name)).count()
    };
    let mut open: BTreeMap<&Name, usize> = needed.iter().map(|name| (*name, waits(name))).collect();
    let mut ready: Vec<&Name> =
        open.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    let mut order = Vec::new();
    while let Some(name) = ready.pop() {
        order.push(name);
        for (kind, unit) in graph.dependents(name) {
            if !kind.orders() {
                continue;
            }
            let Some(count) = open.get_mut(&unit.name) else { continue };
            *count -= 1;
            if *count == 0 {
                ready.push(&unit.name);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use fleet_core::Timestamp;
    use fleet_core::graph::text::{File, Role, Sources};
    use fleet_core::graph::{Event, Exit, Happening, Kind, Order, Settings, System};

    use super::*;

    fn home() -> Graph {
        let source = include_bytes!("../../../fleet-core/tests/golden/home.unit").to_vec();
        let file = File { name: "home.unit".to_owned(), role: Role::Units, source };
        Sources::read(vec![file]).graph().unwrap()
    }

    #[test]
    fn nothing_starts_for_a_masked_unit_alone() {
        let stanza = |name, more| format!("unit: {name}\ntype: virtual\nprovides: {name}\n{more}");
        let source = stanza("web", "waits-for: db\ndepends-on: net\n")
            + &stanza("db", "depends-on: disk, net\n")
            + &stanza("disk", "")
            + &stanza("net", "");
        let file =
            File { name: "a.unit".to_owned(), role: Role::Units, source: source.into_bytes() };
        let graph = Sources::read(vec![file]).graph().unwrap();
        let mask = BTreeSet::from([Target::new("db").unwrap()]);
        let starts = waves(&graph, &Target::new("web").unwrap(), &mask);
        let told = starts.iter().map(|start| {
            let needed_by: Vec<_> = start.needed_by.iter().map(|(_, name)| name.as_str()).collect();
            format!("{} {:?} {}", start.unit.name, start.wave, needed_by.join(" "))
        });
        let expected = ["net Some(1) web", "web Some(2) ", "db None web"];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    /// What the model starts for a goal, in its order, where everything goes well.
    fn started(graph: &Graph, settings: &Settings) -> Vec<Name> {
        let mut system = System::new(graph.clone(), settings).unwrap();
        let now = Timestamp::from_millis(0);
        let mut started = Vec::new();
        loop {
            let actions = system.next_actions(now);
            if actions.is_empty() {
                return started;
            }
            for action in actions {
                assert_eq!(action.what, Order::Start);
                let what = match action.definition.kind {
                    Kind::Oneshot { .. } => Happening::MainExited(Exit::Status(0)),
                    _ => Happening::Ready,
                };
                let (unit, incarnation) = (action.unit, action.incarnation);
                started.push(unit.clone());
                system.on_event(&Event { unit, incarnation, what }, now);
            }
        }
    }

    #[test]
    fn the_model_starts_what_the_waves_say_and_in_their_order() {
        let graph = home();
        let masks = ["", "dns", "ircd", "netif", "irc-bot"];
        let targets = graph.units().flat_map(|unit| unit.provides.clone());
        for goal in targets.collect::<Vec<_>>() {
            for mask in masks.into_iter().filter(|mask| *mask != goal.as_str()) {
                let mask: BTreeSet<Target> = mask.parse().into_iter().collect();
                let (goal, masked) = (Some(goal.clone()), mask.clone());
                let settings = Settings { goal: goal.clone(), mask, ..Settings::default() };
                let waves = waves(&graph, &goal.unwrap(), &masked);
                let started = started(&graph, &settings);
                let place = |name: &Name| started.iter().position(|it| it == name);
                for start in &waves {
                    let here = place(&start.unit.name);
                    let starts = start.wave.is_some() && !start.unit.is_virtual();
                    assert_eq!(here.is_some(), starts, "{start:?}\n{started:?}");
                    let before = start.after.iter().filter_map(|(_, name)| place(name));
                    assert!(here.is_none_or(|here| before.max() < Some(here)), "{start:?}");
                }
                assert!(started.iter().all(|it| waves.iter().any(|wave| wave.unit.name == *it)));
            }
        }
    }
}

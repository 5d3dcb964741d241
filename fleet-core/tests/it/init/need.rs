//! Needed units of a goal.

use std::collections::BTreeSet;
use std::sync::Arc;

use fleet_core::graph::strategies::{Units, units};
use fleet_core::graph::{EdgeKind, Graph, InitState, InitUnit, Name, Settings, Target};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::config::cases;
use super::twin::{Edge, is_acyclic};

fn system(units: &Units, goal: &Target) -> InitState {
    let settings = Settings { goal: Some(goal.clone()), ..Settings::default() };
    InitState::new(Graph::strict(units.0.clone(), &settings).unwrap(), &settings).unwrap()
}

fn needed(system: &InitState) -> BTreeSet<Name> {
    let needed = system.units().filter(|name| system.status(name).unwrap().needed);
    needed.cloned().collect()
}

/// Adds one dependency of this kind. It is reversed where it would close a cycle; a dependency of a
/// unit on itself gets no order.
fn with_one_more(units: &Units, graph: &Graph, kind: EdgeKind, from: usize, to: usize) -> Units {
    let of = |unit: &Arc<InitUnit>| -> Vec<Edge> {
        let all = graph.dependencies(&unit.name).into_iter();
        all.map(|(kind, on)| (unit.name.clone(), kind, on.name.clone())).collect()
    };
    let edges: Vec<Edge> = graph.units().flat_map(of).collect();
    let name = |at: usize| units.0[at].name.clone();
    let fits = |(from, kind, to): &(usize, EdgeKind, usize)| {
        let one = (name(*from), *kind, name(*to));
        is_acyclic(&edges.iter().cloned().chain([one]).collect::<Vec<_>>())
    };
    let ways = [(from, kind, to), (to, kind, from), (from, EdgeKind::Pulls, to)];
    let (from, kind, to) = ways.into_iter().find(fits).expect("an edge without order always fits");
    let mut more = units.clone();
    more.0[from].edges.push((kind, units.0[to].provides[0].clone()));
    more
}

proptest! {
    #![proptest_config(cases(10))]

    /// The needed units contain the goal's unit and its requirements, and no smaller set does.
    // Holds: G-13
    #[test]
    fn needed_units_are_the_smallest_closed_set(units in units(8), goal in any::<Index>()) {
        let goal = goal.get(&units.0).provides[0].clone();
        let system = system(&units, &goal);
        let graph = system.graph();
        let needed = needed(&system);
        let first = &graph.provider(&goal).unwrap().name;
        prop_assert!(needed.contains(first));
        let required = |name: &Name| -> Vec<Name> {
            let all = graph.dependencies(name).into_iter();
            all.filter(|(kind, _)| kind.requires()).map(|(_, unit)| unit.name.clone()).collect()
        };
        prop_assert!(needed.iter().all(|name| required(name).iter().all(|it| needed.contains(it))));
        for without in needed.iter().filter(|name| *name != first) {
            let mut reached = BTreeSet::from([first.clone()]);
            let mut next = vec![first.clone()];
            while let Some(name) = next.pop() {
                let more = required(&name).into_iter().filter(|it| it != without);
                next.extend(more.filter(|it| reached.insert(it.clone())));
            }
            let closed = !reached.iter().any(|name| required(name).contains(without));
            prop_assert!(!closed, "{without} could be left out");
        }
    }

    /// An additional dependency of any kind makes no unit unneeded.
    // Holds: G-13
    #[test]
    fn added_dependency_makes_no_unit_unneeded(
        units in units(8),
        goal in any::<Index>(),
        (from, to) in (any::<Index>(), any::<Index>()),
        kind in select(EdgeKind::ALL.to_vec()),
    ) {
        let goal = goal.get(&units.0).provides[0].clone();
        let before = system(&units, &goal);
        let count = units.0.len();
        let more =
            with_one_more(&units, before.graph(), kind, from.index(count), to.index(count));
        prop_assert!(needed(&system(&more, &goal)).is_superset(&needed(&before)));
    }

    /// A target is coincidental if no unit needs it and its unit is needed for another target.
    #[test]
    fn coincidental_target_is_not_needed_itself(
        units in units(8),
        goal in any::<Index>(),
    ) {
        let goal = goal.get(&units.0).provides[0].clone();
        let system = system(&units, &goal);
        let needed = needed(&system);
        let of_needed = || units.0.iter().filter(|unit| needed.contains(&unit.name));
        let asked: BTreeSet<&Target> = of_needed()
            .flat_map(|unit| unit.edges.iter().filter(|(kind, _)| kind.requires()))
            .map(|(_, target)| target)
            .chain([&goal])
            .collect();
        for unit in &units.0 {
            for target in &unit.provides {
                let expected = needed.contains(&unit.name) && !asked.contains(target);
                // A unit does not require itself.
                let own = unit.edges.iter().any(|(_, it)| unit.provides.contains(it));
                prop_assert!(own || system.is_coincidental(target) == expected, "{target}");
            }
        }
    }
}

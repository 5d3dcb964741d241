//! Valid graphs, and the errors of invalid ones.

use fleet_core::graph::strategies::{cyclic_units, units};
use fleet_core::graph::{
    EdgeKind, EventKind, Graph, GraphError, InitState, InitUnit, Name, Settings,
};
use proptest::prelude::*;

use super::config::{cases, name, target};
use super::twin::is_acyclic;

fn settings(goal: &str) -> Settings {
    Settings { goal: Some(target(goal)), ..Settings::default() }
}

fn errors(units: &[InitUnit], settings: &Settings) -> String {
    let errors = Graph::strict(units.to_vec(), settings).err().unwrap_or_default();
    errors.iter().map(|error| format!("{error}\n")).collect()
}

#[test]
fn all_graph_errors_are_reported_at_once() {
    let mut bad = super::config::units(
        "a notified on:b wf:bb also:x
         f oneshot
         b virtual on:d also:x
         c supervised ms:a
         d virtual wf:b pulls:d
         e virtual after:missing after:e
         a oneshot",
    );
    bad[0].provides.push(target("a"));
    bad[1].provides.clear();
    bad[2].run.start = bad[0].run.start.clone();
    bad[3].run.start.clear();
    bad[3].restart.max_delay = std::time::Duration::ZERO;
    let mut settings = settings("gaol");
    settings.alternatives = [(target("x"), name("c"))].into();
    insta::assert_snapshot!(errors(&bad, &settings), @"
    2 units are named a; give each a unique name
    f provides nothing; name at least one target that it provides
    a provides a twice; name it once
    x is provided by a, b; choose one of them in `alternatives`
    `alternatives` chooses c for x, which c does not provide
    a has `waits-for: bb`, which no unit provides
    dependency cycle: b -depends-on-> d -waits-for-> b; remove one of these dependencies
    dependency cycle: e -after-> e; remove one of these dependencies
    b: a virtual unit runs nothing; give it another type, or remove its commands
    c: the unit has nothing to start; write a start command, or make the unit virtual
    c: the maximum restart delay is shorter than the initial restart delay
    no unit provides the goal gaol
    ");
}

#[test]
fn shortest_cycle_starts_at_its_smallest_name() {
    for (text, expected) in [
        (
            "c virtual on:b\nb virtual ms:a\na virtual wf:c",
            "a -waits-for-> c -depends-on-> b -depends-ms-> a",
        ),
        ("a virtual on:b\nb virtual on:c\nc virtual on:a wf:b", "b -depends-on-> c -waits-for-> b"),
        ("a virtual after:a also:b", "a -after-> a"),
        ("b virtual on:a\na virtual pulls:b", ""),
        ("a virtual on:b2\nb virtual wf:a also:b2", "a -depends-on-> b -waits-for-> a"),
    ] {
        let units = super::config::units(text);
        let found = Graph::strict(units, &Settings::default()).err().unwrap_or_default();
        let circles = found.iter().filter_map(|error| match error {
            GraphError::Cycle(cycle) => Some(cycle.to_string()),
            _ => None,
        });
        assert_eq!(circles.collect::<Vec<_>>().join(", "), expected, "{text}");
    }
}

#[test]
fn alternative_selects_the_provider() {
    let units = super::config::units("a virtual also:mail\nb virtual also:mail\nc virtual on:mail");
    let mut settings = settings("c");
    insta::assert_snapshot!(
        errors(&units, &settings),
        @"mail is provided by a, b; choose one of them in `alternatives`"
    );
    settings.alternatives = [(target("mail"), name("b"))].into();
    let graph = Graph::strict(units, &settings).unwrap();
    assert_eq!(graph.provider(&target("mail")).unwrap().name, name("b"));
}

#[test]
fn invalid_unit_affects_only_its_hard_dependents() {
    let mut units = super::config::units(
        "bad oneshot
         hard virtual on:bad
         soft virtual wf:bad
         goal virtual wf:hard wf:soft wf:other
         other virtual
         x virtual on:y
         y virtual on:x",
    );
    units[0].run.start.clear();
    let (graph, errors) = Graph::lenient(units, &settings("goal"));
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(told.join("\n"), @"
    hard has `depends-on: bad`, which no unit provides
    soft has `waits-for: bad`, which no unit provides
    dependency cycle: x -depends-on-> y -depends-on-> x; remove one of these dependencies
    bad: the unit has nothing to start; write a start command, or make the unit virtual
    ");
    let names: Vec<&str> = graph.units().map(|unit| unit.name.as_str()).collect();
    assert_eq!(names, ["goal", "hard", "other", "soft"]);
    let mut system = InitState::new(graph, &settings("goal")).unwrap();
    system.next_actions(Default::default());
    let shown = |unit| format!("{:?}", system.status(&name(unit)).unwrap().state);
    assert_eq!(shown("hard"), "Waiting(Blocked([(Target(\"bad\"), Missing)]))");
    assert_eq!((shown("soft"), shown("goal")), (shown("other"), shown("other")));
}

/// Nothing recurses: the chain is longer than a stack is deep.
// Holds: X-24
#[test]
fn chain_of_100000_units_starts_and_stops() {
    const COUNT: usize = 100_000;
    let called = |at: usize| format!("unit-{at:06}");
    let chain = |at: usize| {
        let unit = InitUnit::new_virtual(name(&called(at)), [target(&called(at))]);
        let on = at.checked_sub(1).map(|on| (EdgeKind::DependsOn, target(&called(on))));
        InitUnit { edges: on.into_iter().collect(), ..unit }
    };
    let mut units: Vec<InitUnit> = (0..COUNT).map(chain).collect();
    let settings = settings(&called(COUNT - 1));
    let now = fleet_core::Timestamp::default();
    units[0] = super::config::unit("unit-000000 notified");
    let graph = Graph::strict(units.clone(), &settings).unwrap();
    let mut system = InitState::new(graph, &settings).unwrap();
    let start = system.next_actions(now).remove(0);
    let event = |what| fleet_core::graph::UnitEvent {
        unit: start.unit.clone(),
        incarnation: start.incarnation,
        kind: what,
    };
    system.on_event(&event(EventKind::Ready), now);
    assert_eq!(system.next_actions(now), []);
    let last = name(&called(COUNT - 1));
    assert_eq!(system.status(&last).unwrap().incarnation, None);
    assert!(system.is_settled());
    system.on_event(&event(EventKind::AllGone), now);
    assert_eq!(system.next_actions(now), []);
    let blocked = format!("{:?}", system.status(&last).unwrap().state);
    assert_eq!(blocked, "Waiting(Blocked([(Target(\"unit-099998\"), Blocked)]))");
    units[0].edges = vec![(EdgeKind::WaitsFor, target(&called(COUNT - 1)))];
    let errors = Graph::strict(units, &settings).unwrap_err();
    assert!(matches!(&errors[..], [GraphError::Cycle(cycle)] if cycle.steps.len() == COUNT));
}

/// Returns the length of the shortest cycle through the dependencies and dependents of a unit.
fn shortest_cycle_through(units: &[InitUnit], first: usize) -> Option<usize> {
    let all = 0..units.len();
    let leads = |from: usize, to: usize| {
        let mut edges = units[from].edges.iter();
        edges.any(|(kind, target)| kind.orders() && units[to].provides.contains(target))
    };
    let row = |from| all.clone().map(|to| leads(from, to).then_some(1)).collect();
    let mut ways: Vec<Vec<Option<usize>>> = all.clone().map(row).collect();
    for by in all.clone() {
        for from in all.clone() {
            for to in all.clone() {
                let around = ways[from][by].zip(ways[by][to]).map(|(one, other)| one + other);
                ways[from][to] = ways[from][to].into_iter().chain(around).min();
            }
        }
    }
    let component = all.filter(|&it| ways[first][it].is_some() && ways[it][first].is_some());
    component.filter_map(|it| ways[it][it]).min()
}

proptest! {
    #![proptest_config(cases(10))]

    /// A graph accepted in strict mode has no error that an independent check finds, and lenient
    /// mode gives the same graph.
    #[test]
    fn valid_units_form_the_same_graph_in_both_modes(units in cyclic_units(6)) {
        let settings = Settings::default();
        let strict = Graph::strict(units.0.clone(), &settings);
        let (lenient, errors) = Graph::lenient(units.0.clone(), &settings);
        let provider = |it| units.0.iter().filter(move |unit| unit.provides.contains(it));
        let edges = || units.0.iter().flat_map(|unit| unit.edges.iter().map(move |it| (unit, it)));
        let mut provided = units.0.iter().flat_map(|it| &it.provides);
        let one_each = provided.all(|it| provider(it).count() == 1);
        let all_there = edges().all(|(_, (kind, it))| {
            !kind.requires() || provider(it).next().is_some()
        });
        let named: Vec<(Name, EdgeKind, Name)> = edges()
            .flat_map(|(unit, (kind, it))| {
                provider(it).map(move |on| (unit.name.clone(), *kind, on.name.clone()))
            })
            .collect();
        // With several providers the dependencies are ambiguous.
        let sound = one_each && all_there && is_acyclic(&named);
        prop_assert_eq!(strict.is_ok(), sound, "{:?}", strict.err());
        prop_assert_eq!(errors.is_empty(), sound);
        if let Ok(strict) = strict {
            prop_assert!(strict.units().eq(lenient.units()));
        }
    }

    /// Lenient mode builds a graph from any units, independent of their order.
    // Holds: G-9
    #[test]
    fn lenient_graph_does_not_depend_on_unit_order(units in cyclic_units(6)) {
        let settings = Settings::default();
        let (graph, errors) = Graph::lenient(units.0.clone(), &settings);
        let (turned, same) = Graph::lenient(units.0.into_iter().rev(), &settings);
        prop_assert!(graph.units().eq(turned.units()));
        prop_assert_eq!(errors, same);
        let kept = graph.units().map(|unit| InitUnit::clone(unit));
        let again = Graph::lenient(kept, &settings).0;
        prop_assert!(again.units().eq(graph.units()));
    }

    /// The reported cycle exists, and no cycle is shorter.
    #[test]
    fn reported_cycle_exists_and_is_shortest(units in units(6), extra in prop::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..3,
    )) {
        let mut units = units.0;
        for (from, to) in extra {
            let to = to.get(&units).provides[0].clone();
            let from = from.index(units.len());
            units[from].edges.push((EdgeKind::WaitsFor, to));
        }
        let errors = Graph::strict(units.clone(), &Settings::default()).err().unwrap_or_default();
        for error in &errors {
            let GraphError::Cycle(cycle) = error else { panic!("{error}") };
            let steps = &cycle.steps;
            let nexts = steps.iter().cycle().skip(1);
            for ((from, kind), (to, _)) in steps.iter().zip(nexts) {
                let unit = units.iter().find(|unit| unit.name == *from).unwrap();
                let on = units.iter().find(|unit| unit.name == *to).unwrap();
                let by = |it: &&(EdgeKind, _)| on.provides.contains(&it.1);
                // A requiring and an ordering edge are two in a file and one in the graph.
                let one_of_two = matches!(kind, EdgeKind::DependsMs | EdgeKind::WaitsFor);
                let named = |found: &EdgeKind| found <= kind || (one_of_two && found.requires());
                prop_assert!(kind.orders());
                prop_assert!(unit.edges.iter().filter(by).any(|(found, _)| named(found)));
            }
            prop_assert_eq!(steps.iter().map(|(name, _)| name).min(), Some(&steps[0].0));
            let first = units.iter().position(|unit| unit.name == steps[0].0).unwrap();
            prop_assert_eq!(Some(steps.len()), shortest_cycle_through(&units, first));
        }
    }
}

//! Previews match what happens if every operation succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::strategies::units;
use fleet_core::graph::{
    Activity, DerivedState, EventKind, Exit, FailureCause, Graph, InitState, InitUnit, Name,
    ObservedUnit, Phase, PlannedAction, Preview, Restart, ServiceType, Settings, StopOutcome,
    StopReason, UnitEvent,
};
use proptest::prelude::*;
use proptest::sample::Index;

use super::config::{cases, target, unit, units as read};
use super::script::moves;
use super::world::World;

const NOW: Timestamp = Timestamp::from_millis(5000);

/// Creates a state of these units with the first as goal and all needed units active.
fn up(text: &str) -> InitState {
    up_of(read(text))
}

fn up_of(units: Vec<InitUnit>) -> InitState {
    let settings = Settings { goal: Some(units[0].provides[0].clone()), ..Settings::default() };
    let system = InitState::new(Graph::strict(units, &settings).unwrap(), &settings).unwrap();
    system.preview(NOW).after
}

fn preview_reload(system: &InitState, change: impl Fn(&mut Vec<InitUnit>)) -> Preview {
    let mut units: Vec<InitUnit> = system.graph().units().map(|it| InitUnit::clone(it)).collect();
    change(&mut units);
    let graph = Graph::strict(units, &Settings::default()).unwrap();
    let mut after = system.clone();
    after.reload(graph, NOW).unwrap();
    after.preview(NOW)
}

fn describe(preview: &Preview) -> String {
    let one = |it: &fleet_core::graph::UnitPreview| match &it.action {
        PlannedAction::Unchanged => format!("{} stays\n", it.unit),
        PlannedAction::Start(step) => format!("{} starts in {step}\n", it.unit),
        PlannedAction::Stop(step, why) => format!("{} stops in {step}: {why}\n", it.unit),
        PlannedAction::Restart(stop, start, why) => {
            format!("{} stops in {stop} and starts in {start}: {why}\n", it.unit)
        }
    };
    preview.units.iter().map(one).collect()
}

const WEB: &str = "goal wf:web wf:mail\n\
    web supervised on:net ms:db\n\
    db supervised on:net\n\
    mail notified wf:net\n\
    net on:link\n\
    link oneshot\n\
    old supervised\n";

#[test]
fn preview_orders_dependents_around_a_restart() {
    let system = up(WEB);
    let preview = preview_reload(&system, |units| {
        let link = units.iter_mut().find(|unit| unit.name.as_str() == "link").unwrap();
        link.run.watchdog = Some(Duration::from_secs(1));
        let db = units.iter_mut().find(|unit| unit.name.as_str() == "db").unwrap();
        db.description = "another description".to_owned();
    });
    insta::assert_snapshot!(describe(&preview), @"
    db stops in 2 and starts in 7: its dependency net is no longer active
    goal stays
    link stops in 4 and starts in 5: its definition has changed
    mail stays
    net stops in 3 and starts in 6: its dependency link is no longer active
    old stays
    web stops in 1 and starts in 8: its dependency net is no longer active
    ");
}

#[test]
fn preview_stops_unneeded_and_starts_needed_units() {
    let mut system = up(WEB);
    system.set_goal(Some(target("old")), BTreeSet::from([target("mail")]), NOW).unwrap();
    insta::assert_snapshot!(describe(&system.preview(NOW)), @"
    db stops in 3: nothing needs it
    goal stops in 1: nothing needs it
    link stays
    mail stays
    net stays
    old starts in 1
    web stops in 2: nothing needs it
    ");
}

#[test]
fn preview_stops_removed_and_starts_added_units() {
    let system = up(WEB);
    let preview = preview_reload(&system, |units| {
        units.retain(|unit| unit.name.as_str() != "mail");
        units.push(unit("post scripted also:mail on:web"));
    });
    insta::assert_snapshot!(describe(&preview), @"
    db stays
    goal stays
    link stays
    mail stops in 1: nothing needs it
    net stays
    old stays
    post starts in 1
    web stays
    ");
    assert_eq!(preview.after.status(&"mail".parse().unwrap()), None);
}

/// The stop of a dependent comes before the start that would make the stop unnecessary.
#[test]
fn preview_stops_a_unit_despite_a_later_start() {
    let mut units = read("web supervised on:net\nnet on:link\nlink notified\n");
    let link = units.iter_mut().find(|unit| unit.name.as_str() == "link").unwrap();
    (link.restart.delay, link.restart.max_delay) = (Duration::ZERO, Duration::ZERO);
    let mut system = up_of(units);
    let link: Name = "link".parse().unwrap();
    for what in [EventKind::MainExited(Exit::Status(1)), EventKind::AllGone] {
        let incarnation = system.observation().units[&link].incarnation.unwrap();
        system.on_event(&UnitEvent { unit: link.clone(), incarnation, kind: what }, NOW);
        drop(system.next_actions(NOW));
    }
    insta::assert_snapshot!(describe(&system.preview(NOW)), @"
    link stays
    net stops in 1 and starts in 2: its dependency link is no longer active
    web starts in 3
    ");
}

/// Simulates successful starts and stops in random order, rarely all at once.
struct RandomOrder {
    system: InitState,
    now: Timestamp,
    order: u64,
    done: BTreeMap<Name, (bool, bool)>,
}

impl RandomOrder {
    fn run(mut self) -> Self {
        for _ in 0..2_000 {
            let before = self.phases();
            let actions = self.system.next_actions(self.now);
            let after = self.phases();
            let is_on = |phase: Option<&Phase>| {
                phase.is_some_and(|it| it.is_active() || *it == Phase::Starting)
            };
            for name in before.keys().chain(after.keys()).cloned().collect::<BTreeSet<_>>() {
                let (was, is) = (before.get(&name), after.get(&name));
                let begun = actions.iter().any(|it| it.unit == name && it.is_start());
                let done = self.done.entry(name).or_default();
                let asked = !matches!(is, Some(Phase::Completed | Phase::Failed));
                done.0 |= is_on(was) && (begun || (!is_on(is) && asked));
                done.1 |= is_on(is) && (begun || !is_on(was));
            }
            let pending: Vec<(Name, Phase)> = after.into_iter().collect();
            let busy = |it: &&(Name, Phase)| {
                use Phase::{Active, Starting, Stopping};
                matches!(it.1, Starting | Stopping | Active(Activity::Reloading))
            };
            let mut pending: Vec<&(Name, Phase)> = pending.iter().filter(busy).collect();
            // Otherwise a unit that has to stop could finish its start first.
            if pending.iter().any(|it| it.1 == Phase::Stopping) {
                pending.retain(|it| it.1 == Phase::Stopping);
            }
            if pending.is_empty() && actions.is_empty() {
                return self;
            }
            let mut pending: Vec<(Name, Phase)> = pending.into_iter().cloned().collect();
            while !pending.is_empty() {
                let which = self.roll() % pending.len();
                let (unit, phase) = pending.swap_remove(which);
                self.succeed(unit, phase);
                // Several events may arrive between two plans.
                if self.roll().is_multiple_of(2) {
                    break;
                }
            }
        }
        panic!("a system does not come to rest");
    }

    fn roll(&mut self) -> usize {
        self.order = self.order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.order >> 33).unwrap()
    }

    fn phases(&self) -> BTreeMap<Name, Phase> {
        let seen = self.system.observation().units.into_iter();
        seen.map(|(name, seen)| (name, seen.phase)).collect()
    }

    fn succeed(&mut self, unit: Name, phase: Phase) {
        let seen = self.system.observation().units.remove(&unit).unwrap();
        let oneshot = matches!(seen.definition.unwrap().kind, ServiceType::Oneshot { .. });
        let what = match phase {
            Phase::Stopping => EventKind::AllGone,
            Phase::Starting if oneshot => EventKind::MainExited(Exit::Status(0)),
            _ => EventKind::Ready,
        };
        let incarnation = seen.incarnation.unwrap();
        self.system.on_event(&UnitEvent { unit, incarnation, kind: what }, self.now);
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn preview_matches_a_successful_run(
        units in units(7),
        moves in moves(14),
        (which, what, order) in (any::<Index>(), 0..4, any::<u64>()),
    ) {
        let world = World::after(&units, &moves);
        let (mut system, now) = (world.system, world.now);
        let mut all: Vec<InitUnit> = system.graph().units().map(|it| InitUnit::clone(it)).collect();
        let mut goal = system.goal().cloned();
        if !all.is_empty() {
            let which = which.index(all.len());
            match what {
                0 => all[which].run.watchdog = Some(Duration::from_secs(77)),
                1 => { all.remove(which); }
                2 => goal = Some(all[which].provides[0].clone()).or(goal),
                _ => goal = None,
            }
        }
        all.iter_mut().filter(|it| it.is_virtual()).for_each(|it| it.run = Default::default());
        let (graph, _) = Graph::lenient(all, &Settings::default());
        let settings = Settings { goal, ..Settings::default() };
        if system.reload_with(graph, &settings, now).is_err() {
            return Ok(());
        }
        let preview = system.clone().preview(now);
        let wrong = |order| {
            let (system, done) = (system.clone(), BTreeMap::new());
            let in_random_order = RandomOrder { system, now, order, done };
            difference_from_preview(&preview, &in_random_order.run())
        };
        let Some(otherwise) = wrong(order) else { return Ok(()) };
        // Any of the stopping units may be first. A unit that ends by itself and restarts counts as
        // completed or failed for a waiting unit at that time.
        let stopping = system.observation().units.into_values();
        let stopping: Vec<_> = stopping.filter(|seen| seen.phase == Phase::Stopping).collect();
        let by_itself =
            |seen: &ObservedUnit| !matches!(seen.outcome, Some(StopOutcome::Inactive(_)));
        let may_differ = stopping.len() > 1 && stopping.iter().any(by_itself);
        let by_another_order = || (1..=200).any(|it| wrong(order.wrapping_add(it)).is_none());
        prop_assert!(may_differ && by_another_order(), "{}", otherwise);
    }
}

/// Returns the first unit whose state differs from the preview.
fn difference_from_preview(preview: &Preview, real: &RandomOrder) -> Option<String> {
    let what = |system: &InitState, name| system.status(name).map(|report| report.state);
    preview.units.iter().find_map(|it| {
        let previewed = match &it.action {
            PlannedAction::Unchanged => (false, false),
            PlannedAction::Start(_) => (false, true),
            PlannedAction::Stop(..) => (true, false),
            PlannedAction::Restart(stop, start, _) => {
                assert!(stop < start);
                (true, true)
            }
        };
        let done = real.done.get(&it.unit).copied().unwrap_or_default();
        // A virtual unit that restarts may be active again within the plan. Whether it is seen
        // inactive depends on the order of other exits.
        let is_virtual = real.system.graph().unit(&it.unit).is_some_and(|it| it.is_virtual());
        let renewed = |both: (bool, bool)| is_virtual && both == (true, true);
        let seen = |both| if renewed(both) { (false, false) } else { both };
        let (previewed, done) = (seen(previewed), seen(done));
        let (before, after) = (what(&preview.after, &it.unit), what(&real.system, &it.unit));
        let same = previewed == done && before == after;
        (!same).then(|| format!("{}: {:?}, {before:?}; {done:?}, {after:?}", it.unit, it.action))
    })
}

/// A oneshot that is about to restart satisfies a waiting unit if its exit comes first. Either
/// order may be in the preview.
#[test]
fn preview_allows_either_of_two_pending_exits_first() {
    let mut units = read("g notified\nb oneshot on:g\nc ms:b wf:g\n");
    units.iter_mut().for_each(|unit| unit.restart = Restart::never());
    units[1].kind = ServiceType::Oneshot { remain: false };
    let graph = |units| Graph::strict(units, &Settings::default()).unwrap();
    let mut system = InitState::new(graph(units.clone()), &Settings::default()).unwrap();
    system.set_goal(None, BTreeSet::from([target("c")]), NOW).unwrap();
    drop(system.next_actions(NOW));
    let (done, broken) =
        (EventKind::MainExited(Exit::Status(0)), EventKind::Failed(FailureCause::Spawn));
    for (unit, what) in [("g", EventKind::Ready), ("b", done), ("g", broken)] {
        let unit: Name = unit.parse().unwrap();
        let incarnation = system.observation().units[&unit].incarnation.unwrap();
        assert!(system.on_event(&UnitEvent { unit, incarnation, kind: what }, NOW));
        drop(system.next_actions(NOW));
    }
    units[1].run.watchdog = Some(Duration::from_secs(77));
    system.reload(graph(units), NOW).unwrap();
    let c: Name = "c".parse().unwrap();
    let what = |system: &InitState| system.status(&c).unwrap().state;
    let in_random_order =
        |order| RandomOrder { system: system.clone(), now: NOW, order, done: BTreeMap::new() };
    let ways: Vec<DerivedState> =
        (1..=50).map(|order| what(&in_random_order(order).run().system)).collect();
    let previewed = what(&system.clone().preview(NOW).after);
    assert_eq!(previewed, DerivedState::Active(Activity::Running));
    assert!(ways.contains(&previewed) && ways.iter().any(|it| *it != previewed), "{ways:?}");
}

/// The preview is not limited by the depth of the graph.
#[test]
fn preview_handles_a_long_chain() {
    let chain = (0..10_000).map(|at| match at {
        0 => unit("u0 supervised"),
        _ => unit(&format!("u{at} supervised on:u{}", at - 1)),
    });
    let settings = Settings { goal: Some(target("u9999")), ..Settings::default() };
    let graph = Graph::strict(chain, &settings).unwrap();
    let mut system = InitState::new(graph, &settings).unwrap().preview(NOW).after;
    system.set_goal(None, BTreeSet::new(), NOW).unwrap();
    let preview = system.preview(NOW);
    let first = preview.units.iter().find(|it| it.unit.as_str() == "u0").unwrap();
    assert_eq!(first.action, PlannedAction::Stop(10_000, StopReason::Unneeded));
}

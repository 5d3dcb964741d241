//! Effects of a reload of the units.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::strategies::units;
use fleet_core::graph::{
    Amount, DerivedState, EdgeKind, EventKind, Exit, FailureCause, Graph, InitState, InitUnit,
    Name, ObservedUnit, OnCleanExit, Phase, Restart, Retry, Settings, Target, Timeouts, UnitEvent,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::config::{cases, name, target, units as units_of};
use super::script::moves;
use super::twin::is_acyclic;
use super::world::World;

fn read_again(world: &mut World, change: impl Fn(usize, &mut InitUnit)) {
    let mut units: Vec<InitUnit> =
        world.system.graph().units().map(|it| InitUnit::clone(it)).collect();
    units.iter_mut().enumerate().for_each(|(at, unit)| change(at, unit));
    let settings = Settings::default();
    let (graph, _) = Graph::lenient(units, &settings);
    world.system.reload(graph, world.now).expect("the goal is still there");
}

/// Returns the states of the units that are in the graph.
fn known(world: &World) -> Vec<(Name, ObservedUnit)> {
    let seen = world.system.observation().units.into_iter();
    seen.filter(|(name, _)| world.system.status(name).is_some()).collect()
}

// Holds: G-22
#[test]
fn rejected_settings_change_nothing() {
    let all = units_of("a wf:b wf:c\nb supervised\nc supervised");
    let (goal, now) = (Some(target("a")), Timestamp::from_millis(0));
    let settings = Settings { goal: goal.clone(), ..Settings::default() };
    let graph = Graph::strict(all, &settings).unwrap();
    let mut system = InitState::new(graph.clone(), &settings).unwrap();
    let (mask, max_starting) = ([target("b")].into(), NonZeroU32::new(1));
    let refused = Settings { goal: Some(target("missing")), mask, max_starting, ..settings };
    system.reload_with(graph, &refused, now).unwrap_err();
    system.set_goal(goal, [target("c")].into(), now).unwrap();
    let actions = system.next_actions(now);
    let started: Vec<&str> = actions.iter().map(|it| it.unit.as_str()).collect();
    assert_eq!(started, ["b", "c"], "neither is masked, and there is room for both");
}

/// The new provider could be active at once and would restore the lost dependency.
#[test]
fn dependents_of_a_moved_target_restart() {
    let settings = Settings { goal: Some(target("goal")), ..Settings::default() };
    let graph = |text| Graph::strict(units_of(text), &settings).unwrap();
    let before = graph("goal wf:x\np supervised also:t\nx supervised on:t");
    let now = Timestamp::from_millis(0);
    let mut system = InitState::new(before, &settings).unwrap().preview(now).after;
    system.reload(graph("goal wf:x\nv virtual also:t\nx supervised on:t"), now).unwrap();
    let actions = system.next_actions(now);
    assert_eq!(
        actions[0].to_string(),
        "stop x: its dependency t is no longer active",
        "{actions:?}"
    );
}

/// A running unit shares the definition that it was started from.
#[test]
fn unchanged_unit_is_shared_after_a_reload() {
    let settings = Settings { goal: Some(target("a")), ..Settings::default() };
    let graph = |text| Graph::strict(units_of(text), &settings).unwrap();
    let mut system = InitState::new(graph("a wf:b\nb supervised"), &settings).unwrap();
    let unit =
        |system: &InitState, name| Arc::clone(system.graph().provider(&target(name)).unwrap());
    let before = ["a", "b"].map(|name| unit(&system, name));
    system.reload(graph("a wf:b also:c\nb supervised"), Timestamp::from_millis(0)).unwrap();
    let after = ["a", "b"].map(|name| unit(&system, name));
    assert_ne!(after[0], before[0]);
    assert!(Arc::ptr_eq(&after[1], &before[1]), "it is there twice");
}

/// Regression: each of these changes restarted a running unit.
#[test]
fn only_changes_to_the_running_process_restart_a_unit() {
    use fleet_core::graph::{Command, KillMode, NotifyAccess, Readiness, ServiceType, Signal};
    type Change = fn(&mut InitUnit);
    let live: &[Change] = &[
        |unit| unit.run.reload.push(Command::new("/bin/true", [])),
        |unit| unit.run.stop.push(Command::new("/bin/true", [])),
        |unit| unit.run.stop_post.push(Command::new("/bin/true", [])),
        |unit| unit.run.start_pre.push(Command::new("/bin/true", [])),
        |unit| unit.run.start_post.push(Command::new("/bin/true", [])),
        |unit| unit.run.exec_condition.push(Command::new("/bin/true", [])),
        |unit| unit.run.kill.signal = Signal::ABRT,
        |unit| unit.run.kill.mode = KillMode::Mixed,
        |unit| unit.run.success.codes = [7].into(),
        |unit| unit.run.on_clean_exit = OnCleanExit::Complete,
        |unit| unit.run.runtime_max = Some(HOUR),
        |unit| unit.run.notify_access = NotifyAccess::All,
        |unit| {
            unit.kind = ServiceType::ForegroundSupervised(Readiness::Alive(Duration::from_secs(1)));
        },
        |unit| unit.timeouts.stop = None,
        |unit| unit.restart = Restart::never(),
    ];
    let restarting: &[Change] = &[
        |unit| unit.run.start = vec![Command::new("/bin/other", [])],
        |unit| unit.run.exec_environment.umask = Some(0),
        |unit| unit.run.resources.tasks_max = Some(Amount::Absolute(7)),
        |unit| unit.run.watchdog = Some(HOUR),
        |unit| unit.kind = ServiceType::ForegroundNotified,
    ];
    let settings = Settings { goal: Some(target("a")), ..Settings::default() };
    let now = Timestamp::from_millis(0);
    let changes = live.iter().map(|it| (it, true)).chain(restarting.iter().map(|it| (it, false)));
    for (number, (change, is_live)) in changes.enumerate() {
        let mut all = units_of("a supervised");
        let graph = Graph::strict(all.clone(), &settings).unwrap();
        let mut system = InitState::new(graph, &settings).unwrap().preview(now).after;
        change(&mut all[0]);
        system.reload(Graph::strict(all.clone(), &settings).unwrap(), now).unwrap();
        let actions = system.next_actions(now);
        assert_eq!(actions.is_empty(), is_live, "change {number}: {actions:?}");
        let runs = system.running(&name("a")).unwrap();
        assert_eq!(**runs == all[0], is_live, "change {number}");
    }
}

#[test]
fn starting_unit_starts_again_for_another_readiness() {
    use fleet_core::graph::{Command, Readiness, ServiceType};
    let settings = Settings { goal: Some(target("a")), ..Settings::default() };
    let now = Timestamp::from_millis(0);
    let mut all = units_of("a supervised");
    let graph = |all: &[InitUnit]| Graph::strict(all.to_vec(), &settings).unwrap();
    let mut system = InitState::new(graph(&all), &settings).unwrap();
    system.next_actions(now);
    all[0].run.stop.push(Command::new("/bin/true", []));
    system.reload(graph(&all), now).unwrap();
    assert_eq!(system.next_actions(now), []);
    all[0].kind = ServiceType::ForegroundSupervised(Readiness::Alive(HOUR));
    system.reload(graph(&all), now).unwrap();
    let actions = system.next_actions(now);
    assert_eq!(actions[0].to_string(), "stop a: its definition has changed");
}

/// A unit that is active and has no restart policy.
struct ActiveUnit {
    system: InitState,
    now: Timestamp,
}

impl ActiveUnit {
    fn up() -> Self {
        let settings = Settings { goal: Some(target("a")), ..Settings::default() };
        let system = InitState::new(Self::graph(None), &settings).unwrap();
        let mut active_unit = Self { system, now: Timestamp::from_millis(0) };
        assert_eq!(active_unit.pass(0), "start a");
        assert_eq!(active_unit.send(EventKind::Ready), "");
        active_unit
    }

    fn graph(watchdog: Option<Duration>) -> Graph {
        let mut all = units_of("a notified");
        all[0].restart = Restart::never();
        all[0].run.on_clean_exit = OnCleanExit::Complete;
        all[0].run.watchdog = watchdog;
        Graph::strict(all, &Settings::default()).unwrap()
    }

    fn reload_changed(&mut self) -> String {
        self.system.reload(Self::graph(Some(HOUR)), self.now).unwrap();
        self.pass(0)
    }

    fn pass(&mut self, seconds: u64) -> String {
        self.now = self.now.after(Duration::from_secs(seconds));
        let actions = self.system.next_actions(self.now);
        actions.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn send(&mut self, kind: EventKind) -> String {
        let (unit, incarnation) = (name("a"), self.system.last_incarnation());
        assert!(self.system.on_event(&UnitEvent { unit, incarnation, kind }, self.now), "{kind:?}");
        self.pass(0)
    }
}

/// Regression: the unit stayed failed or completed, because the new definition was dropped with its
/// run.
#[test]
fn failed_unit_starts_with_its_new_definition() {
    for (status, ending) in [
        (1, "stop a: its main process ended with status 1"),
        (0, "stop a: its main process exited successfully"),
    ] {
        let mut active_unit = ActiveUnit::up();
        assert_eq!(active_unit.send(EventKind::MainExited(Exit::Status(status))), ending);
        assert_eq!(active_unit.reload_changed(), "");
        assert_eq!(active_unit.send(EventKind::AllGone), "start a");
    }
    let mut active_unit = ActiveUnit::up();
    active_unit.system.reload(ActiveUnit::graph(Some(HOUR)), active_unit.now).unwrap();
    let (unit, incarnation) = (name("a"), active_unit.system.last_incarnation());
    for what in [EventKind::Stopping, EventKind::AllGone] {
        active_unit
            .system
            .on_event(&UnitEvent { unit: unit.clone(), incarnation, kind: what }, active_unit.now);
    }
    assert_eq!(active_unit.pass(0), "start a", "it exited before the stop request");
}

/// The reload had planned a restart.
#[test]
fn killed_unit_starts_with_its_new_definition() {
    let mut active_unit = ActiveUnit::up();
    assert_eq!(active_unit.reload_changed(), "stop a: its definition has changed");
    assert_eq!(active_unit.pass(90), "kill a");
    assert_eq!(active_unit.send(EventKind::AllGone), "start a");
    let mut active_unit = ActiveUnit::up();
    assert_eq!(active_unit.reload_changed(), "stop a: its definition has changed");
    assert_eq!((active_unit.pass(90).as_str(), active_unit.pass(10)), ("kill a", String::new()));
    assert_eq!(active_unit.send(EventKind::AllGone), "start a");
}

#[test]
fn unkillable_unit_starts_with_its_new_definition_once_gone() {
    let mut active_unit = ActiveUnit::up();
    active_unit.send(EventKind::Failed(FailureCause::Watchdog));
    assert_eq!((active_unit.pass(90).as_str(), active_unit.pass(10)), ("kill a", String::new()));
    assert_eq!(active_unit.reload_changed(), "");
    assert_eq!(active_unit.send(EventKind::AllGone), "start a");
}

/// Regression: the unit stayed inactive.
#[test]
fn unit_killed_during_a_restart_starts_again() {
    let mut active_unit = ActiveUnit::up();
    assert!(active_unit.system.restart(&target("a")));
    assert_eq!(active_unit.pass(0), "stop a: a restart was requested");
    assert_eq!(active_unit.pass(90), "kill a");
    assert_eq!(active_unit.send(EventKind::AllGone), "start a");
}

/// Regression: an immediate restart stayed scheduled forever, because no event reports the exit of
/// the processes.
#[test]
fn lost_unit_schedules_no_restart() {
    let up = ActiveUnit::up();
    let mut seen = up.system.observation();
    let of_unit = seen.units.get_mut(&name("a")).unwrap();
    (of_unit.phase, of_unit.cause) = (Phase::Failed, Some(FailureCause::Lost));
    let goal = Some(target("a"));
    let settings = Settings { goal: goal.clone(), ..Settings::default() };
    let system = InitState::restore(ActiveUnit::graph(None), &settings, seen).unwrap();
    let mut active_unit = ActiveUnit { system, ..up };
    let lost = DerivedState::Failed { cause: FailureCause::Lost, retry: Retry::Never, stuck: true };
    assert_eq!(active_unit.reload_changed(), "");
    assert_eq!(active_unit.system.status(&name("a")).unwrap().state, lost);
    for goal in [None, goal] {
        active_unit.system.set_goal(goal, BTreeSet::new(), active_unit.now).unwrap();
        assert_eq!(active_unit.pass(1), "");
        assert_eq!(active_unit.system.status(&name("a")).unwrap().state, lost);
    }
    assert_eq!(active_unit.send(EventKind::AllGone), "", "its exit is reported");
    assert!(active_unit.system.reset_failed(&target("a"), active_unit.now));
    assert_eq!(active_unit.pass(0), "start a");
}

const HOUR: Duration = Duration::from_secs(3600);

/// Replaces the edges between two units by one of this kind, where the dependency is active and
/// stays so. Returns the units unchanged if the edge would close a cycle or make the dependency
/// unneeded.
/// other one were not needed by it any more.
fn with_a_satisfied_edge(
    world: &World,
    which: usize,
    on: &Index,
    kind: EdgeKind,
) -> Vec<(EdgeKind, Target)> {
    let graph = world.system.graph();
    let Some(unit) = graph.units().nth(which) else { return Vec::new() };
    let mut twin = world.twin();
    let stays = |it: &&Arc<InitUnit>| {
        it.name != unit.name && twin.active(&it.name) && !twin.must_stop(&it.name)
    };
    let all: Vec<_> = graph.units().filter(stays).collect();
    let Some(on) = (!all.is_empty()).then(|| on.get(&all)) else { return unit.edges.clone() };
    twin.edges.push((unit.name.clone(), kind, on.name.clone()));
    let (same, others): (Vec<_>, Vec<_>) =
        unit.edges.iter().cloned().partition(|(_, it)| on.provides.contains(it));
    let needs_no_more = same.iter().any(|(kind, _)| kind.requires()) && !kind.requires();
    if needs_no_more || !is_acyclic(&twin.edges) {
        return unit.edges.clone();
    }
    others.into_iter().chain([(kind, on.provides[0].clone())]).collect()
}

proptest! {
    #![proptest_config(cases(10))]

    // Holds: G-21
    #[test]
    fn reload_of_equal_units_changes_nothing(units in units(7), moves in moves(14)) {
        let mut world = World::after(&units, &moves);
        let before = known(&world);
        read_again(&mut world, |_, _| {});
        prop_assert_eq!(known(&world), before);
        let actions = world.system.next_actions(world.now);
        prop_assert_eq!(actions, []);
    }

    /// Settings other than commands, new targets, and new, weaker or stronger dependencies on
    /// active units restart nothing.
    // Holds: G-21
    #[test]
    fn reload_without_command_changes_restarts_nothing(
        units in units(7),
        moves in moves(14),
        (which, on, kind) in (any::<Index>(), any::<Index>(), select(EdgeKind::ALL.to_vec())),
        what in 0..9,
    ) {
        let mut world = World::after(&units, &moves);
        let count = world.system.graph().units().count();
        let which = which.index(count.max(1));
        let edges = with_a_satisfied_edge(&world, which, &on, kind);
        read_again(&mut world, |at, unit| {
            if at != which {
                return;
            }
            match what {
                0 => unit.description += "?",
                1 => unit.provides.push("another".parse().unwrap()),
                2 => unit.timeouts = Timeouts { start: None, stop: None, reload: None },
                3 => unit.restart = Restart::never(),
                4 => unit.restart = Restart { delay: HOUR, max_delay: HOUR, ..Restart::default() },
                5 => {
                    let on = unit.provides[0].clone();
                    unit.edges.push((EdgeKind::Pulls, on));
                }
                _ => unit.edges.clone_from(&edges),
            }
        });
        let actions = world.system.next_actions(world.now);
        prop_assert_eq!(actions, []);
    }
}

//! Final states, once only the units themselves cause events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::graph::strategies::{Units, units};
use fleet_core::graph::{
    DerivedState, EdgeKind, EventKind, FailureCause, Name, ObservedUnit, OnCleanExit, Phase,
    RestartLimit, RestartWhen, ServiceType, StatusReport,
};
use proptest::prelude::*;

use super::config::{cases, name, units as units_of};
use super::script::{Move, moves};
use super::twin::Edge;
use super::world::World;

/// Number of failed starts of each unit before it succeeds. No unit is active long enough to clear
/// its failures.
type Failures = Vec<u8>;

fn failures() -> impl Strategy<Value = Failures> {
    prop::collection::vec(prop_oneof![3 => Just(0), 1 => 0..4u8], 7)
}

/// Generates units that all become active or reach their limits.
fn patient(most: usize) -> impl Strategy<Value = Units> {
    units(most).prop_map(|mut units| {
        for unit in &mut units.0 {
            // A requisite that nothing else needs would block the unit forever.
            for (kind, _) in &mut unit.edges {
                *kind = if *kind == EdgeKind::Requisite { EdgeKind::DependsMs } else { *kind };
            }
            unit.restart.reset = Some(Duration::from_secs(36_000));
            if matches!(unit.restart.limit, RestartLimit::Starts { .. }) {
                unit.restart.limit = RestartLimit::None;
            }
        }
        units
    })
}

/// Generates such units that are restarted after every failure.
fn persistent(most: usize) -> impl Strategy<Value = Units> {
    patient(most).prop_map(|mut units| {
        for unit in &mut units.0 {
            unit.restart.limit = RestartLimit::None;
            unit.restart.when = RestartWhen::OnFailure;
        }
        units
    })
}

/// Generates such units that stay active once they have started or completed.
fn lasting(most: usize) -> impl Strategy<Value = Units> {
    persistent(most).prop_map(|mut units| {
        for unit in &mut units.0 {
            if let ServiceType::Oneshot { remain } = &mut unit.kind {
                *remain = true;
            }
            if unit.run.on_clean_exit == OnCleanExit::Complete {
                unit.run.on_clean_exit = OnCleanExit::Remain;
            }
        }
        units
    })
}

/// Generates moves that keep the units as they are, with none masked.
fn harmless(most: usize) -> impl Strategy<Value = Vec<Move>> {
    moves(most).prop_map(|mut moves| {
        moves.retain(|it| !matches!(it, Move::Reload(_) | Move::Mask(_) | Move::MaskOne(..)));
        moves
    })
}

/// Generates such moves without skipped starts, after which a unit would be inactive without a
/// failure.
fn unskipped(most: usize) -> impl Strategy<Value = Vec<Move>> {
    harmless(most).prop_map(|mut moves| {
        moves.retain(|it| !matches!(it, Move::Event { kind: EventKind::Skipped, .. }));
        moves
    })
}

/// Runs a world until nothing is in progress. `order` decides which of the pending units reports
/// first.
struct Drain {
    world: World,
    failures: BTreeMap<Name, u8>,
    order: u64,
}

impl Drain {
    fn new(world: &World, failures: &Failures, order: u64) -> Self {
        let mut world = world.clone();
        world.compared = false;
        let names: Vec<Name> = world.system.units().cloned().collect();
        let failures = names.into_iter().zip(failures.iter().copied()).collect();
        Self { world, failures, order }
    }

    fn run(self) -> World {
        self.run_by(|world| drop(world.plan()))
    }

    /// Runs the world with this planning function.
    fn run_by(mut self, plan: impl Fn(&mut World)) -> World {
        // The number of events is bounded by units and failures; this limit is far higher.
        for _ in 0..2_000 {
            plan(&mut self.world);
            let pending = self.world.pending();
            if pending.is_empty() {
                let Some(due) = self.world.system.next_deadline() else { return self.world };
                self.world.now = due.max(self.world.now);
            } else {
                let name = &pending[self.draw(pending.len())];
                self.answer(name);
            }
        }
        panic!("a system does not come to rest");
    }

    /// Returns a pseudorandom number derived from the seed.
    fn draw(&mut self, most: usize) -> usize {
        self.order = self.order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.order >> 33).unwrap() % most
    }

    fn answer(&mut self, name: &Name) {
        if self.world.seen(name).phase != Phase::Starting {
            self.world.all_gone(name);
            return;
        }
        let left = self.failures.entry(name.clone()).or_default();
        let well = *left == 0;
        *left = left.saturating_sub(1);
        self.world.answer_for(name, well);
    }
}

fn end_all_that_stops(world: &mut World) {
    world.plan();
    let stops = |world: &World, name: &Name| world.seen(name).phase != Phase::Starting;
    while let Some(name) = world.pending().into_iter().find(|name| stops(world, name)) {
        world.all_gone(&name);
        world.plan();
    }
}

/// Returns the status of all units without times and numbers.
fn shown(world: &World) -> BTreeMap<Name, StatusReport> {
    let states = world.system.units().map(|name| {
        let state = world.system.status(name).unwrap();
        let since = fleet_core::Timestamp::default();
        (name.clone(), StatusReport { since, incarnation: None, attempts: 0, failures: 0, ..state })
    });
    states.collect()
}

proptest! {
    #![proptest_config(cases(10))]

    /// After any moves the state settles, and every unit that can be active is.
    // Holds: G-14, G-15
    #[test]
    fn state_settles_with_all_startable_units_active(
        units in patient(7),
        moves in moves(10),
        failures in failures(),
    ) {
        let world = Drain::new(&World::after(&units, &moves), &failures, 1).run();
        let twin = world.twin();
        for name in twin.units.keys() {
            let phase = twin.phase(name);
            if twin.needed.contains(name) {
                let over = phase.is_active() || matches!(phase, Phase::Failed | Phase::Completed);
                prop_assert!(over || twin.blocked(name), "{name} is {phase}");
            } else {
                let kept = phase == Phase::Failed && could_not_be_stopped(twin.seen[name].cause);
                prop_assert!(phase == Phase::Inactive || kept, "{name} is not needed and {phase}");
            }
        }
    }

    /// Once every unit that has to stop is gone, the final state depends neither on the order of
    /// events nor on `max_starting`. Before that it may: while a unit waits for its turn to stop,
    /// its dependency may return, or the unit may exit.
    // Holds: G-16
    #[test]
    fn event_order_does_not_change_the_final_state(
        units in patient(7),
        moves in moves(10),
        failures in failures(),
    ) {
        let mut world = World::after(&units, &moves);
        end_all_that_stops(&mut world);
        let first = shown(&Drain::new(&world, &failures, 1).run());
        for (order, room) in [(2, None), (3, Some(1)), (5, Some(2))] {
            let mut drain = Drain::new(&world, &failures, order);
            drain.world.make_room(room);
            prop_assert_eq!(&shown(&drain.run()), &first);
        }
    }

    /// If every unit becomes and stays active, all needed units do and none is degraded, even after
    /// a few failures without any intervention.
    // Holds: G-17, G-18
    #[test]
    fn all_units_recover_when_failures_end(
        units in lasting(7),
        moves in unskipped(10),
        failures in failures(),
    ) {
        let world = Drain::new(&World::after(&units, &moves), &failures, 7).run();
        for name in &world.twin().needed {
            let StatusReport { state, needed, degraded, .. } = world.system.status(name).unwrap();
            prop_assert!(needed && matches!(state, DerivedState::Active(_)), "{name} is {state:?}");
            prop_assert!(!degraded, "{name} is degraded");
        }
    }

    /// If some units complete, only they and the units that need them active stay down.
    // Holds: G-17
    #[test]
    fn only_completed_units_block_dependents_after_failures(
        units in persistent(7),
        moves in harmless(10),
        failures in failures(),
    ) {
        let world = Drain::new(&World::after(&units, &moves), &failures, 7).run();
        let twin = world.twin();
        let ended = |name: &Name| twin.phase(name) == Phase::Completed;
        let some_ended = twin.units.keys().any(ended);
        for name in &twin.needed {
            let phase = twin.phase(name);
            let down = ended(name) || twin.blocked(name);
            prop_assert!(phase.is_active() || down && some_ended, "{name} is {phase}");
            prop_assert!(!twin.degraded(name) || some_ended, "{name} is degraded");
        }
    }

    /// Without a goal every unit stops, each after all units ordered after it.
    // Holds: G-20
    #[test]
    fn without_a_goal_units_stop_in_order(units in patient(7), moves in moves(10)) {
        let mut world = World::after(&units, &moves);
        world.system.set_goal(None, BTreeSet::new(), world.now).unwrap();
        let edges = world.twin().edges;
        let drain = Drain::new(&world, &Vec::new(), 3);
        let world = drain.run_by(|world| stops_after_dependents(world, &edges));
        for name in world.system.units() {
            let off = match world.system.status(name).unwrap().state {
                DerivedState::Disabled | DerivedState::Masked => true,
                DerivedState::Failed { cause, .. } => could_not_be_stopped(Some(cause)),
                _ => false,
            };
            prop_assert!(off, "{name} is not inactive");
        }
    }
}

/// Returns whether this failure is shown even while the unit is not needed.
pub(super) fn could_not_be_stopped(cause: Option<FailureCause>) -> bool {
    use FailureCause::{StopCommand, StopTimeout, Unkillable};
    matches!(cause, Some(StopTimeout | StopCommand(_) | Unkillable))
}

/// Plans once. No unit may start, and no unit may stop before its dependents.
fn stops_after_dependents(world: &mut World, edges: &[Edge]) {
    let before = world.system.observation().units;
    world.plan();
    let after = world.system.observation().units;
    let is_on = |seen: &ObservedUnit| seen.phase == Phase::Starting || seen.phase.is_active();
    let ends =
        |name: &Name| before.get(name).is_some_and(is_on) && !after.get(name).is_some_and(is_on);
    // An unkillable unit delays no other.
    let is_left = |seen: &ObservedUnit| {
        seen.phase.is_busy() || (seen.processes && seen.phase != Phase::Failed)
    };
    for (from, kind, to) in edges.iter().filter(|(_, kind, _)| kind.orders()) {
        let left = after.get(from).is_some_and(is_left);
        assert!(!(ends(to) && left), "{to} stops before {from}, which {kind} it");
    }
    let is_start = |name: &Name| !before.get(name).is_some_and(is_on);
    let mut on = after.iter().filter(|(_, seen)| is_on(seen)).map(|(name, _)| name);
    assert!(!on.any(is_start), "something starts");
}

/// `b` depends on `c` and `c` on `f`, which fails while `b` starts. Only the order in which `b` and
/// `f` are gone decides whether `c` is stopped.
#[test]
fn unit_stays_active_if_dependency_returns_before_stop() {
    let mut all = units_of("f notified\nc notified on:f\nb notified on:c");
    all[0].restart.delay = Duration::ZERO;
    let mut world = World::new(&Units(all));
    for unit in ["f", "c"] {
        world.answer_for(&name(unit), true);
        world.plan();
    }
    let run = world.seen(&name("f")).incarnation.unwrap();
    world.send(&name("f"), run, EventKind::Stopping);
    world.plan();
    for (first, stops) in [("b", true), ("f", false)] {
        let mut drain = Drain::new(&world, &Vec::new(), 1);
        drain.world.log.clear();
        drain.world.all_gone(&name(first));
        drain.world.plan();
        if first == "f" {
            drain.world.answer_for(&name("f"), true);
            drain.world.plan();
        }
        let world = drain.run();
        let stopped = world.log.iter().any(|it| it.unit == name("c") && !it.is_start());
        assert_eq!(stopped, stops, "{first} is gone first");
        let up = |it: &Name| world.seen(it).phase.is_active();
        assert!(world.system.units().all(up), "{first} is gone first");
    }
}

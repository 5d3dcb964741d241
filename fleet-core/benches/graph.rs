//! Benchmarks of the init model with large graphs.
//!
//! `cargo bench -p fleet-core --bench graph`
//!
//! `build` builds a graph of units, and `plan` computes the first plan. `event` reports the failure
//! of one unit of a running init, plans, and restarts the unit. `choose` adds and removes an extra
//! target, by itself (`one`) or by setting all targets (`whole`).
//!
//! In `layers` every unit depends on three units of the layer below. In `chain` every unit depends
//! on the previous one. In `star` one unit waits for all others, and in `fan` they additionally all
//! wait for the first.

use std::collections::BTreeSet;

use divan::Bencher;
use fleet_core::Timestamp;
use fleet_core::graph::{
    ActionKind, Command, EdgeKind, EventKind, FailureCause, Graph, InitState, InitUnit, Readiness,
    Run, ServiceType, Settings, Target, UnitAction, UnitEvent,
};

const SHAPES: [(&str, usize); 4] =
    [("layers", 10_000), ("chain", 10_000), ("star", 10_000), ("chain", 100_000)];

const NOW: Timestamp = Timestamp::from_millis(0);

fn main() {
    divan::main();
}

#[divan::bench(args = SHAPES)]
fn build(bencher: Bencher, (shape, count): (&str, usize)) {
    let units = units(shape, count);
    let settings = settings(&units);
    bencher
        .with_inputs(|| units.clone())
        .bench_local_values(|units| Graph::strict(units, &settings));
}

#[divan::bench(args = SHAPES)]
fn plan(bencher: Bencher, (shape, count): (&str, usize)) {
    let units = units(shape, count);
    let settings = settings(&units);
    let graph = Graph::strict(units, &settings).expect("the units are valid");
    bencher.with_inputs(|| graph.clone()).bench_local_values(|graph| {
        let mut system = InitState::new(graph, &settings).expect("the goal is provided");
        (system.next_actions(NOW), system)
    });
}

/// Event of a unit that was started last: in a chain or a star no start waits for it, and in layers
/// few do.
#[divan::bench(args = SHAPES)]
fn event(bencher: Bencher, (shape, count): (&str, usize)) {
    let (system, starts) = settled(shape, count);
    let start = starts.into_iter().next_back().expect("something was started");
    fails_and_returns(bencher, system, start);
}

/// Event of a unit whose failure degrades its dependents without stopping them: half of the units,
/// as it is in the middle, or all of a fan.
#[divan::bench(args = [("loose", 10_000), ("chain", 10_000), ("fan", 10_000)])]
fn event_below(bencher: Bencher, (shape, count): (&str, usize)) {
    let (system, starts) = settled(shape, count);
    let at = if shape == "fan" { 0 } else { count / 2 };
    let start = starts.into_iter().nth(at).expect("as many were started");
    fails_and_returns(bencher, system, start);
}

fn fails_and_returns(bencher: Bencher, mut system: InitState, mut start: UnitAction) {
    let mut now = NOW;
    bencher.bench_local(|| {
        tell(&mut system, &start, EventKind::Failed(FailureCause::Watchdog), now);
        system.next_actions(now);
        tell(&mut system, &start, EventKind::AllGone, now);
        system.next_actions(now);
        now = system.next_deadline().expect("a retry is scheduled");
        start = system.next_actions(now).pop().expect("it is started");
        tell(&mut system, &start, EventKind::Ready, now);
        system.next_actions(now);
    });
}

/// Adds and removes one requested unit, among many that are not needed.
#[divan::bench(args = [("one", 1000), ("whole", 1000), ("one", 10_000), ("whole", 10_000)])]
fn choose(bencher: Bencher, (way, count): (&str, usize)) {
    let units: Vec<InitUnit> = (0..count).map(|at| unit("layers", at, count)).collect();
    let wanted: BTreeSet<Target> = units[..100].iter().map(|it| it.provides[0].clone()).collect();
    let graph = Graph::strict(units, &Settings::default()).expect("the units are valid");
    let mut system = InitState::new(graph, &Settings::default()).expect("there is no goal");
    system.set_goal(None, wanted.clone(), NOW).expect("they are provided");
    system.next_actions(NOW);
    let target: Target = "unit-000150".parse().expect("it is a name");
    let more = wanted.iter().cloned().chain([target.clone()]).collect::<BTreeSet<_>>();
    bencher.bench_local(|| {
        match way {
            "one" => system.add_extra_target(target.clone(), NOW),
            _ => system.set_goal(None, more.clone(), NOW),
        }
        .expect("it is provided");
        system.next_actions(NOW);
        match way {
            "one" => system.remove_extra_target(&target, NOW),
            _ => system.set_goal(None, wanted.clone(), NOW).expect("they are provided"),
        }
        system.next_actions(NOW)
    });
}

/// Returns a settled state, and the actions that led to it.
fn settled(shape: &str, count: usize) -> (InitState, Vec<UnitAction>) {
    let units = units(shape, count);
    let settings = settings(&units);
    let graph = Graph::strict(units, &settings).expect("the units are valid");
    let mut system = InitState::new(graph, &settings).expect("the goal is provided");
    let mut all = Vec::new();
    loop {
        let actions = system.next_actions(NOW);
        if actions.is_empty() {
            return (system, all);
        }
        for action in actions {
            assert_eq!(action.kind, ActionKind::Start);
            tell(&mut system, &action, EventKind::Ready, NOW);
            all.push(action);
        }
    }
}

fn tell(system: &mut InitState, action: &UnitAction, kind: EventKind, now: Timestamp) {
    let (unit, incarnation) = (action.unit.clone(), action.incarnation);
    system.on_event(&UnitEvent { unit, incarnation, kind }, now);
}

fn settings(units: &[InitUnit]) -> Settings {
    let goal = units.last().map(|unit| unit.provides[0].clone());
    Settings { goal, ..Settings::default() }
}

fn units(shape: &str, count: usize) -> Vec<InitUnit> {
    (0..=count).map(|at| unit(shape, at, count)).collect()
}

/// The last unit is the goal, and virtual.
fn unit(shape: &str, at: usize, count: usize) -> InitUnit {
    let (on, edges): (_, Vec<usize>) = match shape {
        "chain" => (EdgeKind::DependsMs, at.checked_sub(1).into_iter().collect()),
        "layers" | "loose" if at < count => {
            let below = (at / 100 * 100).checked_sub(100);
            let three = below.map(|below| [0, 37, 71].map(|step| below + (at + step) % 100));
            let kind = if shape == "loose" { EdgeKind::WaitsFor } else { EdgeKind::DependsOn };
            (kind, three.into_iter().flatten().collect())
        }
        "fan" if at < count => (EdgeKind::WaitsFor, if at > 0 { vec![0] } else { Vec::new() }),
        _ => (EdgeKind::WaitsFor, if at < count { Vec::new() } else { (0..count).collect() }),
    };
    let name = |at: usize| format!("unit-{at:06}");
    let target = |at: usize| name(at).parse::<Target>().expect("it is a name");
    let unit = InitUnit::new_virtual(name(at).parse().expect("it is a name"), [target(at)]);
    let edges = edges.into_iter().map(|at| (on, target(at))).collect();
    if at == count {
        return InitUnit { edges, ..unit };
    }
    let run = Run { start: vec![Command::new("/bin/true", [])], ..Run::default() };
    let kind = ServiceType::ForegroundSupervised(Readiness::Executed);
    InitUnit { kind, edges, run, ..unit }
}

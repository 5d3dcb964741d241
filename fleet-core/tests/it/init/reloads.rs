//! What reading the units again changes, and what it leaves alone.

use fleet_core::graph::strategies::units;
use fleet_core::graph::{EdgeKind, Graph, Settings, Unit};
use proptest::prelude::*;
use proptest::sample::Index;

use super::config::cases;
use super::script::moves;
use super::world::World;

fn read_again(world: &mut World, change: impl Fn(usize, &mut Unit)) {
    let mut units: Vec<Unit> = world.system.graph().units().map(|it| Unit::clone(it)).collect();
    units.iter_mut().enumerate().for_each(|(at, unit)| change(at, unit));
    let settings = Settings::default();
    let (graph, _) = Graph::lenient(units, &settings);
    world.system.reload(graph, world.now).expect("the goal is still there");
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn the_same_units_again_change_nothing(units in units(7), moves in moves(14)) {
        let mut world = World::after(&units, &moves);
        read_again(&mut world, |_, _| {});
        let actions = world.system.next_actions(world.now);
        prop_assert_eq!(actions, []);
    }

    /// Neither what is known of units nor a new target nor a weaker dependency restarts anything.
    #[test]
    fn what_does_not_change_what_runs_restarts_nothing(
        units in units(7),
        moves in moves(14),
        (which, what) in (any::<Index>(), 0..4),
    ) {
        let mut world = World::after(&units, &moves);
        let count = world.system.graph().units().count();
        let which = which.index(count.max(1));
        read_again(&mut world, |at, unit| {
            if at != which {
                return;
            }
            match what {
                0 => unit.description += "?",
                1 => unit.provides.push("another".parse().unwrap()),
                2 => unit.time_outs.stop = None,
                _ => {
                    let on = unit.provides[0].clone();
                    unit.edges.push((EdgeKind::Pulls, on));
                }
            }
        });
        let actions = world.system.next_actions(world.now);
        prop_assert_eq!(actions, []);
    }
}

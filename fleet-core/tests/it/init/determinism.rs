//! Inputs that do not influence a plan.

use fleet_core::graph::strategies::{Units, units};
use fleet_core::graph::{
    ActionKind, Graph, InitState, Name, Settings, StopReason, Target, UnitAction,
};
use proptest::prelude::*;

use super::config::cases;
use super::script::{Edit, Move, moves};
use super::world::World;

/// Returns all actions, with names mapped to those of the other state.
fn log(world: &World, name: impl Fn(&Name) -> String) -> Vec<String> {
    let what = |action: &UnitAction| match &action.kind {
        ActionKind::Stop { reason: StopReason::DependencyLost(_), was_active } => {
            format!("lost {was_active}")
        }
        other => format!("{other:?}"),
    };
    let one = |it: &UnitAction| format!("{} {} {}", name(&it.unit), it.incarnation, what(it));
    world.log.iter().map(one).collect()
}

/// Renames units in the same order, and their targets in another order.
fn renamed(units: &Units) -> Units {
    let other = |target: &Target| -> Target {
        let turned: String = target.as_str().chars().map(turn).collect();
        turned.parse().unwrap()
    };
    let mut units = units.clone();
    for unit in &mut units.0 {
        unit.name = format!("x{}", unit.name).parse().unwrap();
        unit.provides.iter_mut().for_each(|target| *target = other(target));
        unit.edges.iter_mut().for_each(|(_, target)| *target = other(target));
    }
    units
}

/// Mirrors a letter in the alphabet.
fn turn(letter: char) -> char {
    match letter {
        'a'..='z' => char::from(b'a' + b'z' - letter as u8),
        other => other,
    }
}

/// Returns whether a unit of an earlier graph is left.
fn something_is_left(world: &World) -> bool {
    let graph = world.system.graph();
    world.system.observation().units.keys().any(|name| graph.unit(name).is_none())
}

proptest! {
    #![proptest_config(cases(10))]

    // Holds: G-11
    #[test]
    fn renaming_units_and_targets_keeps_the_plan(
        units in units(7),
        mut moves in moves(14),
    ) {
        // Of several units that provide a target, the unit named like the target wins.
        moves.retain(|it| !matches!(it, Move::Reload(Edit::Hand(..))));
        let first = log(&World::after(&units, &moves), ToString::to_string);
        let second = World::after(&renamed(&units), &moves);
        let second = log(&second, |name| name.as_str()[1..].to_owned());
        prop_assert_eq!(first, second);
    }

    // Holds: G-9
    #[test]
    fn unit_order_does_not_change_the_plan(units in units(7)) {
        let goal = units.0.last().map(|unit| unit.provides[0].clone());
        let settings = Settings { goal, ..Settings::default() };
        let plan = |units: Vec<_>| {
            let graph = Graph::strict(units, &settings).unwrap();
            InitState::new(graph, &settings).unwrap().next_actions(Default::default())
        };
        let backwards = units.0.iter().rev().cloned().collect();
        prop_assert_eq!(plan(units.0.clone()), plan(backwards));
    }

    /// A state restored from an observation continues like the original.
    // Holds: G-25
    #[test]
    fn restored_state_continues_as_before(
        units in units(7),
        mut before in moves(10),
        after in moves(8),
    ) {
        let mut first = World::after(&units, &before);
        if something_is_left(&first) {
            // The order of its stops depends on the units that ran at the time of the reload, which
            // the observation does not contain.
            before.retain(|it| !matches!(it, Move::Reload(_)));
            first = World::after(&units, &before);
        }
        let mut second = first.clone();
        second.restore();
        prop_assert_eq!(first.system.next_deadline(), second.system.next_deadline());
        for one in &after {
            first.make(one);
            second.make(one);
        }
        prop_assert_eq!(&first.log, &second.log);
        prop_assert_eq!(first.system.observation(), second.system.observation());
    }
}

//! What a plan does not depend on.

use fleet_core::graph::strategies::{Units, units};
use fleet_core::graph::{
    ActionKind, Graph, InitState, Name, Settings, StopReason, Target, UnitAction,
};
use proptest::prelude::*;

use super::config::cases;
use super::script::{Edit, Move, moves};
use super::world::World;

/// Everything that was to be done, by names that mean the same in both systems.
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

/// The same units by other names, in the same order, and with targets by others in another order.
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

/// Letters from the other end of the alphabet.
fn turn(letter: char) -> char {
    match letter {
        'a'..='z' => char::from(b'a' + b'z' - letter as u8),
        other => other,
    }
}

/// Whether a unit of an earlier graph has not gone yet.
fn something_is_left(world: &World) -> bool {
    let graph = world.system.graph();
    world.system.observation().units.keys().any(|name| graph.unit(name).is_none())
}

proptest! {
    #![proptest_config(cases(10))]

    // Holds: G-11
    #[test]
    fn names_only_break_ties_and_targets_not_even_that(
        units in units(7),
        mut moves in moves(14),
    ) {
        // Of several units that claim a target, the one whose name it is wins.
        moves.retain(|it| !matches!(it, Move::Reload(Edit::Hand(..))));
        let first = log(&World::after(&units, &moves), ToString::to_string);
        let second = World::after(&renamed(&units), &moves);
        let second = log(&second, |name| name.as_str()[1..].to_owned());
        prop_assert_eq!(first, second);
    }

    // Holds: G-9
    #[test]
    fn the_order_of_the_units_makes_no_difference(units in units(7)) {
        let goal = units.0.last().map(|unit| unit.provides[0].clone());
        let settings = Settings { goal, ..Settings::default() };
        let plan = |units: Vec<_>| {
            let graph = Graph::strict(units, &settings).unwrap();
            InitState::new(graph, &settings).unwrap().next_actions(Default::default())
        };
        let backwards = units.0.iter().rev().cloned().collect();
        prop_assert_eq!(plan(units.0.clone()), plan(backwards));
    }

    /// A system that is made anew from what was known of another goes on as that one does.
    // Holds: G-25
    #[test]
    fn a_system_goes_on_from_what_was_known(
        units in units(7),
        mut before in moves(10),
        after in moves(8),
    ) {
        let mut first = World::after(&units, &before);
        if something_is_left(&first) {
            // It keeps its order by what ran at the moment of reading, which nobody knows any more.
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

//! What holds at each moment of a system, whatever befalls it.

use fleet_core::graph::strategies::units;
use proptest::prelude::*;

use super::config::cases;
use super::script::moves;
use super::world::World;

proptest! {
    #![proptest_config(cases(10))]

    /// Each plan is that of the definitions and does what it may: the world looks after it.
    // Holds: G-1, G-2, G-3, G-4, G-5, G-6, G-7, G-8, G-10, G-12, G-19, G-22, G-23
    #[test]
    fn each_plan_is_that_of_the_definitions(units in units(7), moves in moves(18)) {
        World::after(&units, &moves);
    }
}

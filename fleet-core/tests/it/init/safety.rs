//! Properties of a state at every time, after any moves.

use fleet_core::graph::strategies::units;
use proptest::prelude::*;

use super::config::cases;
use super::script::moves;
use super::world::World;

proptest! {
    #![proptest_config(cases(10))]

    /// Every plan equals that of the reference planner; the world checks the rest.
    // Holds: G-1, G-2, G-3, G-4, G-5, G-6, G-7, G-8, G-10, G-12, G-19, G-22, G-23
    #[test]
    fn every_plan_matches_the_reference_planner(units in units(7), moves in moves(18)) {
        World::after(&units, &moves);
    }
}

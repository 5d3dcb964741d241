//! The features that the planner under test supports.

use fleet_scheduler::testing::strategies::Features;

/// The features of the generated clusters.
pub(crate) const FEATURES: Features = Features::ALL;

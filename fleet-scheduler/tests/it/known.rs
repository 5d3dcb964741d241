//! What the planner under test knows of the rule_set.

use fleet_scheduler::strategies::Features;

/// The features of the clusters that it is given.
pub(crate) const KNOWN: Features = Features::ALL;

//! What holds for all units of a system.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::{Name, Target, Timeouts};

/// The central settings. The default is no goal and no limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The one target that the system is there for.
    pub goal: Option<Target>,
    /// How many units may be starting at once; nothing is as many as there are.
    pub max_starting: Option<NonZeroU32>,
    /// Units whose starts take no room beside others.
    pub unlimited_starts: BTreeSet<Name>,
    /// Which unit provides a target that several would.
    pub alternatives: BTreeMap<Target, Name>,
    /// Targets whose units are treated as if they could not be started.
    pub mask: BTreeSet<Target>,
    /// The time-outs of units that say nothing.
    pub timeouts: Timeouts,
}

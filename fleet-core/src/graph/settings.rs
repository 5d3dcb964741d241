//! Settings for all units of an init.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::{ExecOutput, Name, Target, Timeouts};

/// Central settings. The default has no goal and no limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Target that the init maintains.
    pub goal: Option<Target>,
    /// Maximum number of units that are starting at once; `None` means no limit.
    pub max_starting: Option<NonZeroU32>,
    /// Units that do not count toward `max_starting` while they start.
    pub unlimited_starts: BTreeSet<Name>,
    /// Chosen provider of each target that several units provide.
    pub alternatives: BTreeMap<Target, Name>,
    /// Masked targets: the unit that provides one must not start.
    pub mask: BTreeSet<Target>,
    /// Output of units that set none and have no readiness line; `None` means their logs.
    pub output: Option<ExecOutput>,
    /// Timeouts of units that set none.
    pub timeouts: Timeouts,
}

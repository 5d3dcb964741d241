//! What is known of the units beside their graph: all that has to outlive whoever runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Cause, Ending, Incarnation, Name, Phase, Target, Unit};
use crate::Timestamp;

/// All that is known of the units of a system. Together with the graph and the settings it decides
/// everything: a [`System`](super::System) made from it goes on where the one before was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// What is known of each unit that was ever started or failed; the others are off.
    pub units: BTreeMap<Name, Observed>,
    /// What was wanted beside the goal, for the time being.
    pub beside: BTreeSet<Target>,
    /// The number of the last start of any unit.
    pub last: Incarnation,
}

/// What is known of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// What it is doing.
    pub phase: Phase,
    /// Since when it is doing that.
    pub since: Timestamp,
    /// Its last start.
    pub incarnation: Option<Incarnation>,
    /// What it was started from.
    pub definition: Option<Arc<Unit>>,
    /// Whether some of its processes may be left. It is not started again before they are gone.
    pub processes: bool,
    /// While it is up: since when.
    pub up_since: Option<Timestamp>,
    /// While it is up: whether its main process has ended well, so that nothing of it has to run.
    pub exited: bool,
    /// While it stops: what becomes of it then.
    pub ending: Option<Ending>,
    /// While it stops: whether it was killed.
    pub killed: bool,
    /// When what it is doing has taken too long.
    pub deadline: Option<Timestamp>,
    /// Why it last failed, until it is up again.
    pub cause: Option<Cause>,
    /// How often in a row it has ended by itself, without having been up for long in between.
    pub attempts: u32,
    /// When it is started again, if it is.
    pub retry_at: Option<Timestamp>,
    /// Whether it would be started again, but was tried too often.
    pub gave_up: bool,
    /// Its latest starts.
    pub starts: Starts,
    /// Whether it is to be started anew as it is.
    pub renew: bool,
    /// Whether it is to read its configuration again as soon as it can.
    pub reload_wanted: bool,
    /// Whether it did not when it last was to.
    pub reload_failed: bool,
}

/// The starts of a unit in the interval that was running when it was last started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Starts {
    /// When the interval began.
    pub since: Timestamp,
    /// How many there were in it.
    pub count: u32,
}

impl Observed {
    /// Whether it is as if the unit had never been seen.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

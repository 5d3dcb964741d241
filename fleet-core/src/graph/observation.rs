//! What is known of the units beside their graph: all that has to outlive whoever runs them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Activity, EdgeKind, Exit, FailureCause, Graph, Incarnation, InitUnit, Name, Phase, StopOutcome,
    Target,
};
use crate::Timestamp;

/// All that is known of the units of a system. Together with the graph and the settings it decides
/// everything: a [`InitState`](super::InitState) made from it goes on where the one before was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// What is known of each unit that was ever started or failed; the others are off.
    pub units: BTreeMap<Name, ObservedUnit>,
    /// What was wanted beside the goal, for the time being.
    pub extra_targets: BTreeSet<Target>,
    /// The number of the last start of any unit.
    pub last: Incarnation,
}

/// What is known of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedUnit {
    /// What it is doing.
    pub phase: Phase,
    /// Since when it is doing that.
    pub since: Timestamp,
    /// Its last start.
    pub incarnation: Option<Incarnation>,
    /// What it was started from.
    pub definition: Option<Arc<InitUnit>>,
    /// Whether some of its processes may be left. It is not started again before they are gone.
    pub processes: bool,
    /// While it is up: since when.
    pub up_since: Option<Timestamp>,
    /// While it is up: whether its main process has ended well, so that nothing of it has to run.
    pub exited: bool,
    /// Until nothing of it is left: how its main process has ended, whether it failed by that or
    /// not. It counts for whether it is started again.
    pub exit: Option<Exit>,
    /// While it stops: what becomes of it then.
    pub outcome: Option<StopOutcome>,
    /// While it stops: whether it was killed.
    pub killed: bool,
    /// When what it is doing has taken too long.
    pub deadline: Option<Timestamp>,
    /// Why it last failed, until it is up again.
    pub cause: Option<FailureCause>,
    /// How often in a row it has ended by itself, without having been up for long in between.
    pub attempts: u32,
    /// How many of these ends, since the last good one, were failures.
    pub failures: u32,
    /// When it is started again, if it is.
    pub retry_at: Option<Timestamp>,
    /// Whether it would be started again, but was tried too often.
    pub gave_up: bool,
    /// Its latest starts.
    pub starts: StartRateLimit,
    /// Whether it is to be started anew as it is.
    pub restart_requested: bool,
    /// Whether it is to read its configuration again as soon as it can.
    pub reload_wanted: bool,
    /// Whether it did not when it last was to.
    pub reload_failed: bool,
}

/// The starts of a unit in the interval that was running when it was last started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartRateLimit {
    /// When the interval began.
    pub since: Timestamp,
    /// How many there were in it.
    pub count: u32,
}

impl Observation {
    /// Adds what nobody writes down of units that run nothing. One is up if a unit depends on it
    /// that was found to be starting or up: without it, that one would have had to stop. Found are
    /// those that `is_found` says are, and nothing that is known is changed.
    pub fn add_virtual(&mut self, graph: &Graph, now: Timestamp, is_found: impl Fn(&Name) -> bool) {
        let runs = |seen: &ObservedUnit| seen.phase == Phase::Starting || seen.phase.is_active();
        let found = self.units.iter().filter(|(name, seen)| is_found(name) && runs(seen));
        let started = found.filter_map(|(_, seen)| seen.definition.as_deref());
        let mut open: Vec<Target> = started.flat_map(depends_on).cloned().collect();
        while let Some(unit) = open.pop().map(|target| graph.provider(&target)) {
            let Some(unit) = unit.filter(|unit| unit.is_virtual()) else { continue };
            if self.units.get(&unit.name).is_none_or(ObservedUnit::is_default) {
                self.units.insert(unit.name.clone(), ObservedUnit::virtual_up(unit, now));
                open.extend(depends_on(unit).cloned());
            }
        }
    }
}

fn depends_on(unit: &InitUnit) -> impl Iterator<Item = &Target> {
    let hard = unit.edges.iter().filter(|(kind, _)| *kind == EdgeKind::DependsOn);
    hard.map(|(_, target)| target)
}

impl ObservedUnit {
    fn virtual_up(unit: &Arc<InitUnit>, now: Timestamp) -> Self {
        Self {
            phase: Phase::Active(Activity::Running),
            since: now,
            up_since: Some(now),
            definition: Some(Arc::clone(unit)),
            ..Self::default()
        }
    }

    /// That it has ended by itself is forgiven.
    pub(super) fn clear_attempts(&mut self) {
        (self.attempts, self.failures) = (0, 0);
    }

    /// Whether it is as if the unit had never been seen.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

//! Observed state of the units, which has to outlive the supervisor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Activity, EdgeKind, Exit, FailureCause, Graph, Incarnation, InitUnit, Name, Phase, StopOutcome,
    Target,
};
use crate::Timestamp;

/// Observed state of all units. Together with the graph and the settings, it determines the whole
/// state of the init. An [`InitState`](super::InitState) that is restored from an observation
/// continues where the previous one stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// Observed state of each unit that ever started or failed. Units without an entry are
    /// inactive.
    pub units: BTreeMap<Name, ObservedUnit>,
    /// Targets requested in addition to the goal.
    pub extra_targets: BTreeSet<Target>,
    /// Number of the last start of any unit.
    pub last: Incarnation,
}

/// Observed state of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedUnit {
    /// Current phase.
    pub phase: Phase,
    /// Time of the last change of phase.
    pub since: Timestamp,
    /// The last start.
    pub incarnation: Option<Incarnation>,
    /// Definition that the last start used.
    pub definition: Option<Arc<InitUnit>>,
    /// Whether processes of the unit may still exist. The unit does not start again before they
    /// have exited.
    pub processes: bool,
    /// Time since which the unit has been active; `None` while it is not active.
    pub active_since: Option<Timestamp>,
    /// Whether the main process exited successfully while the unit stays active.
    pub exited: bool,
    /// Exit of the main process, kept until all processes of the unit have exited. The restart
    /// policy uses this exit even if the unit failed for another reason.
    pub exit: Option<Exit>,
    /// Phase that follows the current stop.
    pub outcome: Option<StopOutcome>,
    /// Whether the current stop has sent the final signal.
    pub killed: bool,
    /// Deadline of the current operation.
    pub deadline: Option<Timestamp>,
    /// Cause of the last failure, kept until the unit is active again.
    pub cause: Option<FailureCause>,
    /// Number of consecutive unrequested exits without a long active time between them.
    pub attempts: u32,
    /// Number of failures since the last success, among the exits that `attempts` counts.
    pub failures: u32,
    /// Time of the next restart, if one is scheduled.
    pub retry_at: Option<Timestamp>,
    /// Whether the unit was not restarted because its restart limit is reached.
    pub gave_up: bool,
    /// Starts in the current rate limit interval.
    pub starts: StartRateLimit,
    /// Whether a restart with the same definition is requested.
    pub restart_requested: bool,
    /// Whether a reload is requested.
    pub reload_requested: bool,
    /// Whether the last requested reload failed.
    pub reload_failed: bool,
}

/// Starts of a unit in the rate limit interval of its last start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartRateLimit {
    /// Beginning of the interval.
    pub since: Timestamp,
    /// Number of starts in it.
    pub count: u32,
}

impl Observation {
    /// Records a virtual unit as active if the units that were found imply that it was active.
    ///
    /// A virtual unit has no processes by which it could be found. But a unit with a `depends-on`
    /// edge to it is starting or active only while the virtual unit is active. If such a dependent
    /// was found starting or active, the virtual unit was therefore active too.
    ///
    /// `is_found` selects the units that were found. Units with an observed state are not changed.
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
            active_since: Some(now),
            definition: Some(Arc::clone(unit)),
            ..Self::default()
        }
    }

    /// Resets the counts of unrequested exits and failures.
    pub(super) fn clear_attempts(&mut self) {
        (self.attempts, self.failures) = (0, 0);
    }

    /// Returns whether nothing has been observed of the unit.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

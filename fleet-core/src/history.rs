//! History of a unit: events with their times and causes.
//!
//! The leader stores a [`UnitHistory`] per unit. [`UnitHistory::observe`] compares the unit with
//! the facts of the last observation, and appends an event for each difference. The number of
//! events is bounded, and repeated events share one entry.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::health::Health;
use crate::{
    ActiveState, Generation, MachineId, Snapshot, SystemdState, TargetState, Timestamp, Unit,
};

/// Events of a unit, oldest first, and the facts of the last observation.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of histories that a new field has to become a part of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitHistory {
    /// The last events, at most [`MAX_EVENTS`](Self::MAX_EVENTS).
    pub events: Vec<UnitEvent>,
    /// The facts of the last observation.
    pub facts: UnitFacts,
}

/// An event of a unit, or several equal ones in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitEvent {
    /// Time of the last one, in milliseconds since 1970. By the clock of the machine for the state
    /// of a run, and by the clock of the leader for all others.
    pub at: Timestamp,
    /// Number of equal events in a row.
    pub count: u32,
    /// The event.
    pub kind: UnitEventKind,
}

/// Kind of an event. `Display` formats it as a clause without a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitEventKind {
    /// The unit was submitted, or its desired state was changed.
    Desired {
        /// The desired state.
        state: TargetState,
    },
    /// A restart of the unit was requested.
    RestartRequested,
    /// The unit is wanted and has no machine.
    Unplaced {
        /// The reason, in a short form.
        reason: String,
    },
    /// The leader placed the unit on a machine.
    Placed {
        /// The machine.
        machine: MachineId,
        /// Cause of the placement; empty if it is not known.
        cause: String,
    },
    /// The leader moved the unit to another machine.
    Moved {
        /// The former machine.
        from: MachineId,
        /// The new machine.
        to: MachineId,
        /// Cause of the move; empty if it is not known.
        cause: String,
    },
    /// The leader removed the placement of the unit.
    Removed {
        /// The former machine.
        from: MachineId,
        /// Cause of the removal; empty if it is not known.
        cause: String,
    },
    /// The machine of the unit has left the cluster, or was lost.
    MachineLost {
        /// The machine.
        machine: MachineId,
    },
    /// The machine of the unit is present again.
    MachineReturned {
        /// The machine.
        machine: MachineId,
    },
    /// The unit became active.
    Started {
        /// The machine.
        machine: MachineId,
    },
    /// The service manager restarted the unit by itself.
    Restarted {
        /// The machine.
        machine: MachineId,
        /// End of the run before it; empty if it is not known.
        outcome: String,
    },
    /// The unit ended without a failure.
    Stopped {
        /// The machine.
        machine: MachineId,
    },
    /// The unit failed.
    Failed {
        /// The machine.
        machine: MachineId,
        /// End of the run; empty if it is not known.
        outcome: String,
    },
    /// The health check succeeded for the first time, or again.
    Healthy {
        /// The machine.
        machine: MachineId,
    },
    /// The health check failed.
    Unhealthy {
        /// The machine.
        machine: MachineId,
        /// Failure of the check.
        message: String,
    },
}

/// Facts about a unit at the last observation.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of histories that a new field has to become a part of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// The desired state; `None` before the first observation.
    pub desired: Option<TargetState>,
    /// Generation of the unit.
    pub generation: Generation,
    /// The machine on which the unit is placed.
    pub machine: Option<MachineId>,
    /// Whether that machine is not present.
    pub is_machine_lost: bool,
    /// Whether the unit has a reason for having no machine.
    pub is_unplaced: bool,
    /// The last report of each machine, for at most [`MAX_RUNS`](UnitHistory::MAX_RUNS) machines.
    pub runs: BTreeMap<MachineId, RunFacts>,
}

/// Facts about a unit on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts {
    /// The active state.
    pub active: ActiveState,
    /// Time at which the unit entered its active state, if it is known.
    pub since: Option<Timestamp>,
    /// Number of automatic restarts.
    pub restarts: u32,
    /// Whether the health check succeeds; `None` without a check, or before its first result.
    pub is_healthy: Option<bool>,
}

/// Difference of two begin times that may be of one run.
const SLACK: Duration = Duration::from_secs(1);

impl UnitHistory {
    /// Maximum number of events.
    pub const MAX_EVENTS: usize = 32;

    /// Maximum number of machines of one unit whose reports are recorded. A global unit may run on
    /// more machines.
    pub const MAX_RUNS: usize = 16;

    /// Maximum length of a text in an event, in characters.
    pub const MAX_TEXT: usize = 200;

    /// Records the events that explain the difference between the last observation and a snapshot.
    /// Returns whether anything has changed.
    ///
    /// `cause` is the cause of the last placement, move or removal of the unit, if it is known.
    /// `now` is the leader's time.
    pub fn observe(
        &mut self,
        unit: &Unit,
        snapshot: &Snapshot,
        cause: Option<&str>,
        now: Timestamp,
    ) -> bool {
        let mut facts = UnitFacts::of(unit, snapshot);
        let before = self.facts.clone();
        let name = unit.name.as_str();
        if before.desired != Some(unit.desired) {
            self.add(now, UnitEventKind::Desired { state: unit.desired });
        } else if before.generation != unit.generation && unit.desired == TargetState::Launched {
            self.add(now, UnitEventKind::RestartRequested);
        }
        self.observe_placement(&before, &facts, cause.unwrap_or_default(), now);
        if facts.is_unplaced && !before.is_unplaced {
            let reason = snapshot.reason(name).map(|reason| reason.summary());
            let reason = shorten(&reason.unwrap_or_default());
            self.add(now, UnitEventKind::Unplaced { reason });
        }
        for (machine, run) in &facts.runs {
            let state = snapshot.state(name, machine.as_str());
            let Some(state) = state else { continue };
            let earlier = before.runs.get(machine);
            self.observe_run(machine, earlier, run, &state.systemd, now);
            self.observe_health(machine, earlier, state.health.as_ref(), now);
        }
        // A restarted agent reports its units again. Until then, its last report is kept.
        let is_kept = |machine: &MachineId| Some(machine) == facts.machine.as_ref();
        for (machine, run) in before.runs.iter().filter(|(machine, _)| is_kept(machine)) {
            facts.runs.entry(machine.clone()).or_insert(*run);
        }
        let has_changed = facts != before;
        self.facts = facts;
        has_changed
    }

    fn observe_placement(
        &mut self,
        before: &UnitFacts,
        facts: &UnitFacts,
        cause: &str,
        now: Timestamp,
    ) {
        let cause = shorten(cause);
        match (before.machine.clone(), facts.machine.clone()) {
            (None, Some(machine)) => self.add(now, UnitEventKind::Placed { machine, cause }),
            (Some(from), Some(to)) if from != to => {
                self.add(now, UnitEventKind::Moved { from, to, cause });
            }
            (Some(from), None) => self.add(now, UnitEventKind::Removed { from, cause }),
            (Some(machine), Some(_)) if facts.is_machine_lost != before.is_machine_lost => {
                self.add(
                    now,
                    match facts.is_machine_lost {
                        true => UnitEventKind::MachineLost { machine },
                        false => UnitEventKind::MachineReturned { machine },
                    },
                );
            }
            _ => {}
        }
    }

    fn observe_run(
        &mut self,
        machine: &MachineId,
        before: Option<&RunFacts>,
        run: &RunFacts,
        state: &SystemdState,
        now: Timestamp,
    ) {
        let (machine, at) = (machine.clone(), run.since.unwrap_or(now));
        let earlier = before.map_or(ActiveState::Inactive, |before| before.active);
        let restarts = before.map_or(0, |before| before.restarts);
        if run.restarts > restarts {
            let outcome = outcome(state);
            let kind = UnitEventKind::Restarted { machine: machine.clone(), outcome };
            self.add_several(at, kind, run.restarts - restarts);
            if is_up(run.active) {
                return;
            }
        }
        let since = before.and_then(|before| before.since);
        // A restarted agent may know the begin of a run less precisely.
        let is_new_run = since.zip(run.since).is_some_and(|(one, other)| other > one.after(SLACK));
        let is_counted = |last: &UnitEvent| {
            let UnitEventKind::Restarted { machine: at, .. } = &last.kind else { return false };
            *at == machine && run.restarts == restarts
        };
        match run.active {
            ActiveState::Failed if earlier != ActiveState::Failed || is_new_run => {
                self.add(at, UnitEventKind::Failed { machine, outcome: outcome(state) });
            }
            ActiveState::Inactive if is_up(earlier) || earlier == ActiveState::Deactivating => {
                self.add(at, UnitEventKind::Stopped { machine });
            }
            // An automatic restart is one event, not two.
            ActiveState::Active if self.events.last().is_some_and(is_counted) => {}
            ActiveState::Active if !is_up(earlier) || is_new_run => {
                self.add(at, UnitEventKind::Started { machine });
            }
            _ => {}
        }
    }

    fn observe_health(
        &mut self,
        machine: &MachineId,
        before: Option<&RunFacts>,
        health: Option<&Health>,
        now: Timestamp,
    ) {
        let (machine, before) = (machine.clone(), before.and_then(|before| before.is_healthy));
        match health {
            Some(Health::Healthy) if before != Some(true) => {
                self.add(now, UnitEventKind::Healthy { machine });
            }
            Some(Health::Unhealthy { message }) if before != Some(false) => {
                let message = shorten(message);
                self.add(now, UnitEventKind::Unhealthy { machine, message });
            }
            _ => {}
        }
    }

    fn add(&mut self, at: Timestamp, kind: UnitEventKind) {
        self.add_several(at, kind, 1);
    }

    /// Appends an event, or counts it with the last one if both are equal.
    fn add_several(&mut self, at: Timestamp, kind: UnitEventKind, count: u32) {
        match self.events.last_mut() {
            Some(last) if last.kind == kind => {
                last.count = last.count.saturating_add(count);
                last.at = at;
            }
            _ => self.events.push(UnitEvent { at, count, kind }),
        }
        let excess = self.events.len().saturating_sub(Self::MAX_EVENTS);
        self.events.drain(..excess);
    }
}

impl UnitFacts {
    fn of(unit: &Unit, snapshot: &Snapshot) -> Self {
        let name = unit.name.as_str();
        let machine = snapshot.placement(name).map(|placement| placement.machine.clone());
        let is_lost = |id: &MachineId| snapshot.machine(id.as_str()).is_none();
        let runs = snapshot.states_of(name).take(UnitHistory::MAX_RUNS).map(|state| {
            let is_healthy = match &state.health {
                Some(Health::Healthy) => Some(true),
                Some(Health::Unhealthy { .. }) => Some(false),
                _ => None,
            };
            let SystemdState { active, since, restarts, .. } = state.systemd;
            (state.machine.clone(), RunFacts { active, since, restarts, is_healthy })
        });
        Self {
            desired: Some(unit.desired),
            generation: unit.generation,
            is_machine_lost: machine.as_ref().is_some_and(is_lost),
            is_unplaced: machine.is_none() && snapshot.reason(name).is_some(),
            machine,
            runs: runs.collect(),
        }
    }
}

fn is_up(state: ActiveState) -> bool {
    matches!(state, ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing)
}

/// Describes the end of the last run.
fn outcome(state: &SystemdState) -> String {
    match (state.exit, state.result.as_deref()) {
        (Some(exit), Some("exit-code" | "signal" | "success") | None) => exit.to_string(),
        (Some(exit), Some(result)) => format!("{result}, {exit}"),
        (None, result) => result.unwrap_or_default().to_owned(),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(UnitHistory::MAX_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl UnitEventKind {
    /// Returns the name of the kind.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Desired { .. } => "desired",
            Self::RestartRequested => "restartRequested",
            Self::Unplaced { .. } => "unplaced",
            Self::Placed { .. } => "placed",
            Self::Moved { .. } => "moved",
            Self::Removed { .. } => "removed",
            Self::MachineLost { .. } => "machineLost",
            Self::MachineReturned { .. } => "machineReturned",
            Self::Started { .. } => "started",
            Self::Restarted { .. } => "restarted",
            Self::Stopped { .. } => "stopped",
            Self::Failed { .. } => "failed",
            Self::Healthy { .. } => "healthy",
            Self::Unhealthy { .. } => "unhealthy",
        }
    }

    /// Returns the machine of the event: of a move, the new one.
    #[must_use]
    pub const fn machine(&self) -> Option<&MachineId> {
        match self {
            Self::Desired { .. } | Self::RestartRequested | Self::Unplaced { .. } => None,
            Self::Moved { to: machine, .. }
            | Self::Removed { from: machine, .. }
            | Self::Placed { machine, .. }
            | Self::MachineLost { machine }
            | Self::MachineReturned { machine }
            | Self::Started { machine }
            | Self::Restarted { machine, .. }
            | Self::Stopped { machine }
            | Self::Failed { machine, .. }
            | Self::Healthy { machine }
            | Self::Unhealthy { machine, .. } => Some(machine),
        }
    }

    /// Returns the cause or outcome of the event; empty if it has none.
    #[must_use]
    pub fn cause(&self) -> &str {
        match self {
            Self::Unplaced { reason: cause }
            | Self::Placed { cause, .. }
            | Self::Moved { cause, .. }
            | Self::Removed { cause, .. }
            | Self::Restarted { outcome: cause, .. }
            | Self::Failed { outcome: cause, .. }
            | Self::Unhealthy { message: cause, .. } => cause,
            _ => "",
        }
    }
}

impl fmt::Display for UnitEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Desired { state } => write!(f, "desired state {state}")?,
            Self::RestartRequested => f.write_str("restart requested")?,
            Self::Unplaced { .. } => f.write_str("no machine")?,
            Self::Placed { .. } => f.write_str("placed")?,
            Self::Moved { from, .. } => write!(f, "moved from {}", from.short())?,
            Self::Removed { .. } => f.write_str("removed")?,
            Self::MachineLost { .. } => f.write_str("machine lost")?,
            Self::MachineReturned { .. } => f.write_str("machine returned")?,
            Self::Started { .. } => f.write_str("started")?,
            Self::Restarted { .. } => f.write_str("restarted by its service manager")?,
            Self::Stopped { .. } => f.write_str("stopped")?,
            Self::Failed { .. } => f.write_str("failed")?,
            Self::Healthy { .. } => f.write_str("healthy")?,
            Self::Unhealthy { .. } => f.write_str("unhealthy")?,
        }
        match self.cause() {
            "" => Ok(()),
            cause => write!(f, ": {cause}"),
        }
    }
}

#[cfg(test)]
mod tests;

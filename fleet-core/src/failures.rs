//! Failures of units with `MoveAfterFailures=`: when such a unit is restarted, and when it moves.
//!
//! The leader stores a [`FailureRecord`] per unit that has failed recently. [`advance`] counts each
//! failure once, waits for a delay that grows with the number of failures, and then asks for a
//! restart or a move. The caller stores the record and carries out the action in one step.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fleet_unitfile::UnitHash;

use crate::unit::LoadState;
use crate::{
    ActiveState, Generation, MachineId, Snapshot, TargetState, Timestamp, Unit, UnitState,
};

/// Failures of a unit since it was last started by a user, or last ran for
/// [`RESET_AFTER`](Self::RESET_AFTER).
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of records that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureRecord {
    /// Hash of the unit file that failed.
    pub hash: UnitHash,
    /// Generation of the unit. If the unit has another one, a user has restarted it since.
    pub generation: Generation,
    /// Number of failures on each machine; at most [`MAX_MACHINES`](Self::MAX_MACHINES).
    pub machines: BTreeMap<MachineId, u32>,
    /// Number of failures on all machines.
    pub total: u32,
    /// The phase.
    pub phase: FailurePhase,
}

/// Phase of a unit that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailurePhase {
    /// The unit has failed, and its next restart is due later.
    Waiting {
        /// The machine on which the unit has failed.
        machine: MachineId,
        /// The time of the restart, by the wall clock.
        until: Timestamp,
    },
    /// The unit was restarted, or came to another machine.
    Restarted {
        /// The time at which the leader first saw the unit up.
        up_since: Option<Timestamp>,
    },
}

/// Facts about a unit and its failures, from one snapshot of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureObservation {
    /// The unit is not to be restarted or moved, so its failures do not count.
    Exempt,
    /// Nothing changes for now: a rollout has the unit as a member, or its machine is absent.
    Held,
    /// The state of the unit on its machine.
    Seen(SeenUnit),
}

/// A unit whose failures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenUnit {
    /// Hash of the unit file.
    pub hash: UnitHash,
    /// Generation of the unit.
    pub generation: Generation,
    /// Generation that the unit gets by a restart.
    pub next_generation: Generation,
    /// Number of failures on one machine after which the unit moves.
    pub limit: u32,
    /// The machine on which the unit is placed.
    pub machine: Option<MachineId>,
    /// The reported state for this placement, file and generation.
    pub run: RunState,
}

/// State of a unit on its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunState {
    /// The machine has not reported a result.
    Pending,
    /// The unit is active, or has run successfully.
    Up,
    /// The unit has failed, or its file is invalid.
    Failed,
}

/// An action that the leader takes together with storing the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAction {
    /// Raises the unit's generation, which restarts the unit on its machine.
    Restart,
    /// Raises the unit's generation and removes its placement. The scheduler then places the unit,
    /// if possible on a machine that is not [avoided](FailureRecord::avoided).
    Move,
}

/// Result of [`advance`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct FailureStep {
    /// The record to store; `None` for no record.
    pub record: Option<FailureRecord>,
    /// The action to take.
    pub action: Option<FailureAction>,
    /// The time at which to call again at the latest, even if no observation changes.
    pub next: Option<Timestamp>,
}

impl FailureRecord {
    /// Upper bound of `MoveAfterFailures=`.
    pub const MAX_LIMIT: u32 = 100;

    /// Maximum number of machines with counted failures.
    pub const MAX_MACHINES: usize = 16;

    /// Time without a failure, since the unit is up, after which the record is removed.
    pub const RESET_AFTER: Duration = Duration::from_secs(600);

    /// Delay after the first failure. Each further failure doubles it.
    pub const FIRST_DELAY: Duration = Duration::from_secs(10);

    /// Maximum delay.
    pub const MAX_DELAY: Duration = Duration::from_secs(600);

    /// Returns the machines on which the unit has failed often enough to avoid them, with the
    /// number of failures.
    #[must_use]
    pub fn avoided(&self, limit: u32) -> BTreeMap<MachineId, u32> {
        let often = self.machines.iter().filter(|(_, count)| **count >= limit);
        often.map(|(machine, count)| (machine.clone(), *count)).collect()
    }

    /// Returns a description for users: the failures, and the restart or move after them.
    #[must_use]
    pub fn describe(&self, unit: &Unit, placed: Option<&MachineId>) -> String {
        let limit = unit.requirements.move_after_failures.unwrap_or(u32::MAX);
        let is_avoided = |machine: &MachineId| self.count_on(machine) >= limit;
        let mut text = self.to_string();
        text.push_str(&match (&self.phase, placed) {
            (FailurePhase::Waiting { machine, until }, _) => {
                let action = if is_avoided(machine) { "moves" } else { "restarts" };
                let (delay, time) = (delay(self.total).as_secs(), time_of_day(*until));
                format!(": {action} after {delay} s, at {time}")
            }
            (_, None) => ": waiting for a machine".to_owned(),
            (_, Some(at)) if is_avoided(at) => {
                format!(": restarted on {}, no better machine", at.short())
            }
            (_, Some(at)) if self.count_on(at) > 0 => format!(": restarted on {}", at.short()),
            (_, Some(at)) => format!(": moved to {}", at.short()),
        });
        text
    }

    /// Returns the number of failures on a machine.
    fn count_on(&self, machine: &MachineId) -> u32 {
        self.machines.get(machine).copied().unwrap_or_default()
    }

    /// Makes the record of a unit without counted failures.
    fn new(seen: &SeenUnit) -> Self {
        Self {
            hash: seen.hash,
            generation: seen.generation,
            machines: BTreeMap::new(),
            total: 0,
            phase: FailurePhase::Restarted { up_since: None },
        }
    }

    /// Counts a failure, and begins to wait. If there are too many machines, the one with the
    /// fewest failures is forgotten.
    fn count(&mut self, machine: &MachineId, now: Timestamp) {
        let count = self.machines.entry(machine.clone()).or_default();
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        if self.machines.len() > Self::MAX_MACHINES {
            let others = self.machines.iter().filter(|(other, _)| *other != machine);
            let least = others.min_by_key(|(_, count)| **count).map(|(other, _)| other.clone());
            least.and_then(|least| self.machines.remove(&least));
        }
        let until = now.after(delay(self.total));
        self.phase = FailurePhase::Waiting { machine: machine.clone(), until };
    }

    /// Applies an observation of the same file and generation.
    fn observe(&mut self, seen: &SeenUnit, now: Timestamp) {
        let waits_on = match &self.phase {
            FailurePhase::Waiting { machine, .. } => Some(machine),
            FailurePhase::Restarted { .. } => None,
        };
        let is_elsewhere = waits_on.is_some() && waits_on != seen.machine.as_ref();
        match (seen.run, &seen.machine, &self.phase) {
            (RunState::Failed, Some(machine), _) if waits_on != Some(machine) => {
                let machine = machine.clone();
                self.count(&machine, now);
            }
            (RunState::Up, _, FailurePhase::Waiting { .. })
            | (RunState::Up, _, FailurePhase::Restarted { up_since: None }) => {
                self.phase = FailurePhase::Restarted { up_since: Some(now) };
            }
            // The unit starts on its new machine anyway.
            _ if is_elsewhere => self.phase = FailurePhase::Restarted { up_since: None },
            _ => {}
        }
        // The wall clock may have been set back.
        if let FailurePhase::Restarted { up_since: Some(since) } = &mut self.phase {
            *since = now.min(*since);
        }
    }
}

/// Returns the next record of a unit, and the action that goes with it.
pub fn advance(
    record: Option<&FailureRecord>,
    seen: &FailureObservation,
    now: Timestamp,
) -> FailureStep {
    let seen = match seen {
        FailureObservation::Exempt => return FailureStep::default(),
        FailureObservation::Held => {
            return FailureStep { record: record.cloned(), ..FailureStep::default() };
        }
        FailureObservation::Seen(seen) => seen,
    };
    let is_same = |it: &&FailureRecord| (it.hash, it.generation) == (seen.hash, seen.generation);
    let mut record = match record.filter(is_same) {
        Some(record) => record.clone(),
        None if seen.run == RunState::Failed => FailureRecord::new(seen),
        None => return FailureStep::default(),
    };
    record.observe(seen, now);
    let (mut action, mut next) = (None, None);
    match &record.phase {
        FailurePhase::Waiting { machine, until } => {
            let was_set_back = until.since(now) > FailureRecord::MAX_DELAY;
            if now >= *until || was_set_back {
                let moves = record.count_on(machine) >= seen.limit;
                action = Some(if moves { FailureAction::Move } else { FailureAction::Restart });
                record.generation = seen.next_generation;
                record.phase = FailurePhase::Restarted { up_since: None };
            } else {
                next = Some(*until);
            }
        }
        FailurePhase::Restarted { up_since } => {
            next = up_since.map(|since| since.after(FailureRecord::RESET_AFTER));
            if next.is_some_and(|next| now >= next) {
                return FailureStep::default();
            }
        }
    }
    FailureStep { record: Some(record), action, next }
}

/// Returns the delay after a number of failures.
fn delay(total: u32) -> Duration {
    let doubled = FailureRecord::FIRST_DELAY * 2_u32.pow(total.saturating_sub(1).min(10));
    FailureRecord::MAX_DELAY.min(doubled)
}

impl FailureObservation {
    /// Returns the facts about a unit in a snapshot. `next_generation` is the generation that the
    /// unit gets by a restart.
    #[must_use]
    pub fn of(unit: &Unit, snapshot: &Snapshot, next_generation: Generation) -> Self {
        let limit = match unit.requirements.move_after_failures {
            Some(limit) if unit.desired == TargetState::Launched => limit,
            _ => return Self::Exempt,
        };
        let name = unit.name.as_str();
        let placement = snapshot.placement(name);
        let is_absent = |it: &&crate::Placement| snapshot.machine(it.machine.as_str()).is_none();
        if placement.filter(is_absent).is_some() || snapshot.rollout_of(&unit.name).is_some() {
            return Self::Held;
        }
        let hash = unit.hash();
        let state = placement.and_then(|at| snapshot.state(name, at.machine.as_str()));
        let is_current = |state: &&std::sync::Arc<UnitState>| {
            state.hash == hash
                && state.generation == unit.generation
                && placement.is_some_and(|at| at.epoch == state.epoch)
        };
        Self::Seen(SeenUnit {
            hash,
            generation: unit.generation,
            next_generation,
            limit,
            machine: placement.map(|at| at.machine.clone()),
            run: state.filter(is_current).map_or(RunState::Pending, |state| run_state(state)),
        })
    }
}

fn run_state(state: &UnitState) -> RunState {
    let systemd = &state.systemd;
    match (systemd.load, systemd.active) {
        // A file that could not be loaded for another reason is loaded again by the agent.
        (LoadState::BadSetting, _) | (_, ActiveState::Failed) => RunState::Failed,
        _ if state.requested != TargetState::Launched => RunState::Pending,
        (_, ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing) => RunState::Up,
        (_, ActiveState::Inactive) if systemd.result.as_deref() == Some("success") => RunState::Up,
        _ => RunState::Pending,
    }
}

/// Formats the time of day in UTC. All commands print times in UTC, because the machines may be in
/// several time zones.
fn time_of_day(at: Timestamp) -> String {
    let second = at.as_millis() / 1000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Formats the number of failures per machine.
impl fmt::Display for FailureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (machine, count)) in self.machines.iter().enumerate() {
            let verb = if at == 0 { "failed" } else { "," };
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            write!(f, "{verb} {times} on {}", machine.short())?;
        }
        Ok(())
    }
}

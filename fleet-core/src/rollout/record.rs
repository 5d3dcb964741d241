//! Rollouts as a part of the cluster, and the observation of their members in a snapshot.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use fleet_unitfile::UnitName;

use super::{
    Member, MemberObservation, MemberState, ObservedState, Rollout, RolloutPhase, UnitTarget,
};
use crate::health::Health;
use crate::unit::LoadState;
use crate::{ActiveState, Epoch, MachineId, Snapshot, TargetState, Unit, UnitState};

/// The identity of a rollout: its number in the cluster, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RolloutId(pub u64);

impl RolloutId {
    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Error for a text that is not the number of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the number of a rollout: write a number such as 1")]
pub struct RolloutIdError(String);

impl FromStr for RolloutId {
    type Err = RolloutIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_canonical = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_canonical);
        number.map(Self).ok_or_else(|| RolloutIdError(text.to_owned()))
    }
}

/// A rollout that the cluster stores.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of rollouts that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutRecord {
    /// The identity.
    pub id: RolloutId,
    /// Time of the request by the clock of the daemon that stored it, in milliseconds since 1970
    /// (UTC). `None` if it is unknown.
    pub requested_at: Option<u64>,
    /// The rollout.
    pub rollout: Rollout,
}

impl UnitTarget {
    /// Returns the target that the cluster stores for a unit.
    #[must_use]
    pub fn of(unit: &Unit) -> Self {
        Self { hash: unit.hash(), desired: unit.desired, generation: unit.generation }
    }
}

impl RolloutRecord {
    /// Returns the observer of the members in a snapshot.
    #[must_use]
    pub fn observer<'a>(&'a self, snapshot: &'a Snapshot) -> MemberObserver<'a> {
        let mut written = BTreeMap::new();
        for member in self.rollout.members.iter().filter(|member| member.id.machine.is_some()) {
            let target = written.entry(&member.id.unit).or_insert(None);
            *target = later_target(*target, member);
        }
        MemberObserver { snapshot, written }
    }

    /// Returns the member of a global unit on a machine, if the rollout has last written the unit
    /// with the target `stored`.
    fn member_with(
        &self,
        unit: &UnitName,
        machine: &MachineId,
        stored: UnitTarget,
    ) -> Option<&Member> {
        let is_of_unit = |member: &&Member| member.id.machine.is_some() && member.id.unit == *unit;
        let members = || self.rollout.members.iter().filter(is_of_unit);
        let written = members().fold(None, later_target);
        let mut members = members().filter(|member| member.id.machine.as_ref() == Some(machine));
        members.next().filter(|_| written == Some(stored))
    }
}

/// Returns the target that a rollout has written for a global unit, as far as it follows from one
/// more member. `target` follows from the others. A rollback comes after all updates.
fn later_target(target: Option<UnitTarget>, member: &Member) -> Option<UnitTarget> {
    match member.state {
        MemberState::Restoring | MemberState::Restored => member.from,
        MemberState::Updating | MemberState::Updated => target.or(Some(member.to)),
        MemberState::Pending | MemberState::Superseded => target,
    }
}

/// Observes the members of a rollout in a snapshot, for [`Rollout::advance`].
#[derive(Debug)]
pub struct MemberObserver<'a> {
    snapshot: &'a Snapshot,
    /// Target that the rollout has written for each global unit; `None` before its first write.
    written: BTreeMap<&'a UnitName, Option<UnitTarget>>,
}

impl MemberObserver<'_> {
    /// Returns the observation of a member.
    ///
    /// A global unit has one record for all machines. The target on one machine therefore follows
    /// from the state of the member, as long as the record is as the rollout has left it. If
    /// another writer has changed the record, no member of the unit has a target. A machine that is
    /// absent, or that the unit no longer accepts, has none either.
    #[must_use]
    pub fn observe(&self, member: &Member) -> MemberObservation {
        let unit = self.snapshot.unit(member.id.unit.as_str());
        let current = unit.and_then(|unit| self.current_target(member, unit));
        let state = current.map(|current| member.observed_state(&current, self.snapshot));
        MemberObservation { current, state: state.unwrap_or(ObservedState::NotYet) }
    }

    fn current_target(&self, member: &Member, unit: &Unit) -> Option<UnitTarget> {
        let stored = UnitTarget::of(unit);
        let Some(machine) = &member.id.machine else { return Some(stored) };
        let machine = self.snapshot.machine(machine.as_str())?;
        let written = self.written.get(&member.id.unit).copied().flatten().or(member.from);
        let is_decided = unit.is_global() && written == Some(stored);
        if !is_decided || !unit.requirements.admits(machine) {
            return None;
        }
        member.target_on_machine()
    }
}

impl Member {
    /// Returns the target of a global unit on its machine; `None` if the rollout does not decide
    /// it.
    fn target_on_machine(&self) -> Option<UnitTarget> {
        match self.state {
            MemberState::Pending | MemberState::Restoring | MemberState::Restored => self.from,
            MemberState::Updating | MemberState::Updated => Some(self.to),
            MemberState::Superseded => None,
        }
    }

    fn observed_state(&self, current: &UnitTarget, snapshot: &Snapshot) -> ObservedState {
        let unit = self.id.unit.as_str();
        let placement = snapshot.placement(unit).map(|at| (&at.machine, at.epoch));
        let on = self.id.machine.as_ref().map(|machine| (machine, Epoch::ZERO)).or(placement);
        let Some((machine, epoch)) = on else {
            let is_gone = snapshot.states_of(unit).next().is_none();
            let is_settled = current.desired == TargetState::Inactive && is_gone;
            return if is_settled { ObservedState::Settled } else { ObservedState::NotYet };
        };
        match snapshot.state(unit, machine.as_str()) {
            Some(state) if state.epoch == epoch => {
                let unit = snapshot.unit(unit).filter(|unit| unit.hash() == current.hash);
                let has_check = unit.is_some_and(|it| it.requirements.health_check.is_some());
                state_for(current, has_check, state)
            }
            _ => ObservedState::NotYet,
        }
    }
}

/// Returns the meaning of a reported state for a target. `has_check` is `true` if its file has
/// a health check.
fn state_for(target: &UnitTarget, has_check: bool, state: &UnitState) -> ObservedState {
    // A rollback returns to an earlier generation, which no machine starts again.
    let is_current = state.hash == target.hash && state.generation >= target.generation;
    if !is_current || state.requested != target.desired {
        return ObservedState::NotYet;
    }
    let systemd = &state.systemd;
    if target.desired != TargetState::Launched {
        return if systemd.active.has_ended() {
            ObservedState::Settled
        } else {
            ObservedState::NotYet
        };
    }
    let failed = |reason: String| ObservedState::Failed {
        reason: format!("{reason} on {}", state.machine.short()),
    };
    match (systemd.load, systemd.active) {
        (LoadState::NotFound | LoadState::BadSetting | LoadState::Error | LoadState::Masked, _) => {
            failed(state.problem.clone().unwrap_or_else(|| format!("its file is {}", systemd.load)))
        }
        (_, ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing) => {
            let healthy = match &state.health {
                Some(health) => *health == Health::Healthy,
                None => !has_check,
            };
            ObservedState::Active { healthy }
        }
        (_, ActiveState::Failed) => failed(failure(state)),
        // A unit that ran to completion.
        (_, ActiveState::Inactive) if systemd.result.as_deref() == Some("success") => {
            ObservedState::Active { healthy: true }
        }
        _ => ObservedState::NotYet,
    }
}

/// Returns the reason for a failed state.
fn failure(state: &UnitState) -> String {
    let result = state.systemd.result.as_deref();
    match (&state.systemd.exit, result) {
        (Some(exit), Some("exit-code" | "signal") | None) => format!("its process {exit}"),
        (Some(exit), Some(result)) => format!("its process {exit}, with the result {result},"),
        (None, Some(result)) => format!("it ended with the result {result}"),
        (None, None) => "it entered the state failed".to_owned(),
    }
}

/// Rollouts of the cluster.
impl Snapshot {
    /// Returns whether a rollout keeps a machine from updating a global unit. The unit's record
    /// then already has a version that the rollout has not released for this machine, or no longer.
    ///
    /// A rollout that was stopped or aborted still has this effect, because it has not reached all
    /// machines. The next change of the unit by another writer ends it.
    #[must_use]
    pub fn holds_update(&self, unit: &Unit, machine: &MachineId) -> bool {
        let stored = UnitTarget::of(unit);
        let has_effect = |phase: &RolloutPhase| {
            !matches!(phase, RolloutPhase::Completed | RolloutPhase::RolledBack { .. })
        };
        let rollouts = self.rollouts().filter(|record| has_effect(&record.rollout.phase));
        let members = rollouts.filter_map(|record| record.member_with(&unit.name, machine, stored));
        let target = members.last().and_then(Member::target_on_machine);
        target.is_some_and(|target| target != stored)
    }

    /// Returns the rollout that has not ended and has this unit as a member.
    #[must_use]
    pub fn rollout_of(&self, unit: &UnitName) -> Option<&RolloutRecord> {
        let has_unit = |record: &&RolloutRecord| {
            record.rollout.members.iter().any(|member| member.id.unit == *unit)
        };
        self.active_rollouts().find(has_unit)
    }

    /// Returns the rollouts that have not ended, in the order of their numbers.
    pub fn active_rollouts(&self) -> impl Iterator<Item = &RolloutRecord> {
        self.rollouts().filter(|record| !record.rollout.phase.has_ended()).map(|record| &**record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollout_numbers_are_canonical() {
        for text in ["", "0", "01", "+1", "-1", "1 ", "x", "18446744073709551616"] {
            assert!(text.parse::<RolloutId>().is_err(), "{text:?}");
        }
        assert_eq!("17".parse(), Ok(RolloutId(17)));
    }
}

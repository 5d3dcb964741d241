//! Rollouts: rolling updates of several units, batch by batch, with a rollback on failure.
//!
//! [`Rollout`] is the state that the cluster stores. [`Rollout::advance`] decides the next steps
//! from observations. It performs none of them. `docs/explain/rollouts.md` describes the rules.

mod advance;
mod phase;
mod record;
mod strategy;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use fleet_unitfile::{UnitHash, UnitName};

use crate::{Generation, MachineId, TargetState};

pub use advance::{Advance, MemberObservation, ObservedState, RolloutAction, RolloutTimers};
pub use phase::{MemberFailure, RollbackCause, RolloutPhase, Shortage, StopCause};
pub use record::{MemberObserver, RolloutId, RolloutIdError, RolloutRecord};
pub use strategy::{CountOrPercent, CountOrPercentError, OnFailure, RolloutStrategy};

/// A rolling update of a list of units, with its progress.
///
/// The rollout stays in the cluster until it has ended. A new leader therefore continues it at the
/// point where the previous leader stopped. [`advance`](Self::advance) is called after each change
/// of the members, and at the time that it returned. Its caller has these duties:
///
/// 1. Store the rollout if it has changed, before the actions or together with them.
/// 2. Perform the actions. Each is a write that is conditional on the target observed before; see
///    [`RolloutAction::before`].
/// 3. Call `advance` again only when the results of these writes are known and observable.
///
/// A lost action needs no further care, because the next call returns it again.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of rollouts that a new field has to become a part of.
///
/// ```
/// use fleet_core::rollout::{
///     Member, MemberId, MemberObservation, ObservedState, Rollout, RolloutAction, RolloutPhase,
///     RolloutStrategy, RolloutTimers, UnitTarget,
/// };
/// use fleet_core::{Generation, TargetState, Timestamp};
/// use fleet_unitfile::UnitFile;
///
/// let target = |text: &str| UnitTarget {
///     hash: UnitFile::parse(text).expect("the text is a unit file").hash(),
///     desired: TargetState::Launched,
///     generation: Generation::ZERO,
/// };
/// let old = target("[Service]\nExecStart=/bin/web --old\n");
/// let new = target("[Service]\nExecStart=/bin/web --new\n");
/// let mut stored = vec![old; 2];
/// let members = ["web@1.service", "web@2.service"].map(|name| {
///     let id = MemberId::from(name.parse::<fleet_unitfile::UnitName>().expect("a valid name"));
///     Member::new(id, Some(old), new)
/// });
/// let mut rollout = Rollout::new(members.to_vec(), RolloutStrategy::default())?;
/// let mut timers = RolloutTimers::default();
/// let mut now = Timestamp::default();
/// while !rollout.phase.has_ended() {
///     let mut targets = stored.iter();
///     let advance = rollout.advance(&mut timers, now, |_| MemberObservation {
///         current: targets.next().copied(),
///         state: ObservedState::Active { healthy: true },
///     });
///     for action in advance.actions {
///         match action {
///             RolloutAction::Update { member } => stored[member] = rollout.members[member].to,
///             other => unreachable!("nothing fails here: {other:?}"),
///         }
///     }
///     now = advance.next.unwrap_or(now);
/// }
/// assert_eq!((rollout.phase, stored), (RolloutPhase::Completed, vec![new; 2]));
/// assert_eq!(now, Timestamp::from_millis(10_000), "two members, five seconds each");
/// # Ok::<(), fleet_core::rollout::RolloutError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// The members, in the order of their update.
    pub members: Vec<Member>,
    /// The pace, the limits, and the reaction to a failure.
    pub strategy: RolloutStrategy,
    /// The phase.
    pub phase: RolloutPhase,
}

/// The identity of a member: a unit, or a global unit on one machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// The unit.
    pub unit: UnitName,
    /// The machine of a global unit, which is updated machine by machine.
    pub machine: Option<MachineId>,
}

impl From<UnitName> for MemberId {
    fn from(unit: UnitName) -> Self {
        Self { unit, machine: None }
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unit.fmt(f)?;
        match &self.machine {
            Some(machine) => write!(f, " on {}", machine.short()),
            None => Ok(()),
        }
    }
}

/// The version and desired state of a unit, as stored in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitTarget {
    /// Hash of the unit file.
    pub hash: UnitHash,
    /// The desired state.
    pub desired: TargetState,
    /// Number of requested restarts.
    pub generation: Generation,
}

/// A member of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The identity, unique in the rollout.
    pub id: MemberId,
    /// The target before the rollout; `None` if the rollout creates the unit.
    pub from: Option<UnitTarget>,
    /// The target of the rollout.
    pub to: UnitTarget,
    /// The progress.
    pub state: MemberState,
}

impl Member {
    /// Makes a member that is not updated yet.
    #[must_use]
    pub const fn new(id: MemberId, from: Option<UnitTarget>, to: UnitTarget) -> Self {
        Self { id, from, to, state: MemberState::Pending }
    }
}

/// The progress of a member. Each state is derived from an observation, never from an intention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Its stored target is `from`; the rollout has not changed it.
    Pending,
    /// Its stored target is `to`, and its batch is not yet known to be healthy.
    Updating,
    /// Its stored target is `to`, and all members of its batch were healthy for the required time.
    Updated,
    /// Its stored target is `from` again, and the member is not yet known to be healthy.
    Restoring,
    /// Its stored target is `from` again, and the rollback waits for it no longer.
    Restored,
    /// Another writer changed or destroyed the unit. The rollout never writes it again.
    Superseded,
}

impl MemberState {
    /// Returns the name of the state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Updating => "updating",
            Self::Updated => "updated",
            Self::Restoring => "restoring",
            Self::Restored => "restored",
            Self::Superseded => "superseded",
        }
    }

    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Updating,
        Self::Updated,
        Self::Restoring,
        Self::Restored,
        Self::Superseded,
    ];

    /// Returns `true` if the member has the target of the rollout.
    const fn is_changed(self) -> bool {
        matches!(self, Self::Updating | Self::Updated)
    }
}

/// Error for a text that is not the name of a member's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the state of a member")]
pub struct MemberStateError(String);

impl FromStr for MemberState {
    type Err = MemberStateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let state = Self::ALL.into_iter().find(|state| state.as_str() == text);
        state.ok_or_else(|| MemberStateError(text.to_owned()))
    }
}

impl Rollout {
    /// Makes a rollout that has not begun.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutError`] if there are no members, if one is listed twice or would not
    /// change, or if the strategy is invalid; see [`RolloutStrategy::check`].
    pub fn new(members: Vec<Member>, strategy: RolloutStrategy) -> Result<Self, RolloutError> {
        if members.is_empty() {
            return Err(RolloutError::NoMembers);
        }
        let mut ids = BTreeSet::new();
        for member in &members {
            if !ids.insert(&member.id) {
                return Err(RolloutError::Repeated { member: member.id.clone() });
            }
            if member.from == Some(member.to) {
                return Err(RolloutError::Unchanged { member: member.id.clone() });
            }
        }
        let existing = members.iter().filter(|member| member.from.is_some()).count();
        strategy.check(members.len(), existing)?;
        Ok(Self { members, strategy, phase: RolloutPhase::Running })
    }

    /// Pauses the rollout. It then neither writes nor judges a member. Returns `true` if the phase
    /// has changed.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutRequestError`] if the rollout is rolling back or has ended.
    pub fn pause(&mut self) -> Result<bool, RolloutRequestError> {
        self.change_phase("pause", &RolloutPhase::Running, RolloutPhase::Paused)
    }

    /// Resumes a paused rollout. Returns `true` if the phase has changed.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutRequestError`] if the rollout is rolling back or has ended.
    pub fn resume(&mut self) -> Result<bool, RolloutRequestError> {
        self.change_phase("resume", &RolloutPhase::Paused, RolloutPhase::Running)
    }

    /// Ends the rollout, or its rollback. Each member keeps the version that it has. Returns `true`
    /// if the phase has changed.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutRequestError`] if the rollout has ended in another way.
    pub fn abort(&mut self) -> Result<bool, RolloutRequestError> {
        self.end("abort", RolloutPhase::Aborted, |phase| matches!(phase, RolloutPhase::Aborted))
    }

    /// Ends the rollout, and returns all updated members to their former version. Returns `true` if
    /// the phase has changed.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutRequestError`] if the rollout has ended in another way.
    pub fn abort_and_roll_back(&mut self) -> Result<bool, RolloutRequestError> {
        let cause = RollbackCause::AbortRequested;
        self.end("roll back", RolloutPhase::RollingBack { cause }, |phase| {
            matches!(phase, RolloutPhase::RollingBack { .. } | RolloutPhase::RolledBack { .. })
        })
    }

    /// Applies a request. Returns `true` if the phase has changed.
    ///
    /// # Errors
    ///
    /// Returns [`RolloutRequestError`] if the phase does not admit the request.
    pub fn request(&mut self, request: RolloutRequest) -> Result<bool, RolloutRequestError> {
        match request {
            RolloutRequest::Pause => self.pause(),
            RolloutRequest::Resume => self.resume(),
            RolloutRequest::Abort => self.abort(),
            RolloutRequest::RollBack => self.abort_and_roll_back(),
        }
    }

    /// Changes the phase from `from` to `to`; no other phase than these two is accepted.
    fn change_phase(
        &mut self,
        request: &'static str,
        from: &RolloutPhase,
        to: RolloutPhase,
    ) -> Result<bool, RolloutRequestError> {
        let changes = self.phase == *from;
        if !changes && self.phase != to {
            return Err(RolloutRequestError { request, phase: self.phase.clone() });
        }
        self.phase = to;
        Ok(changes)
    }

    fn end(
        &mut self,
        request: &'static str,
        to: RolloutPhase,
        is_done: fn(&RolloutPhase) -> bool,
    ) -> Result<bool, RolloutRequestError> {
        if is_done(&self.phase) {
            return Ok(false);
        }
        if self.phase.has_ended() {
            return Err(RolloutRequestError { request, phase: self.phase.clone() });
        }
        self.phase = to;
        Ok(true)
    }
}

/// A request of a user to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutRequest {
    /// See [`Rollout::pause`].
    Pause,
    /// See [`Rollout::resume`].
    Resume,
    /// See [`Rollout::abort`].
    Abort,
    /// See [`Rollout::abort_and_roll_back`].
    RollBack,
}

/// Error for a rollout that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutError {
    /// The list of members is empty.
    #[error("the rollout has no members: name at least one unit")]
    NoMembers,
    /// A member is listed twice.
    #[error("{member} is listed twice: list each member once")]
    Repeated {
        /// The member.
        member: MemberId,
    },
    /// The rollout would not change a member.
    #[error("{member} already has the target of the rollout: leave it out")]
    Unchanged {
        /// The member.
        member: MemberId,
    },
    /// A batch would be empty.
    #[error(
        "at-once is {at_once}, so no member would be updated: write a count of at least 1, or a \
         percentage such as 25%"
    )]
    NothingAtOnce {
        /// The value.
        at_once: CountOrPercent,
    },
    /// A percentage is above 100.
    #[error("{setting} is {percent}%: write at most 100%")]
    PercentTooHigh {
        /// Name of the setting.
        setting: &'static str,
        /// The value.
        percent: u32,
    },
    /// The minimum leaves no member to update.
    #[error(
        "min-available is {min_available} of {members} members, which leaves none to update: write \
         at most {}", highest_minimum(*min_available, *members)
    )]
    NoMemberAdmitted {
        /// The value.
        min_available: CountOrPercent,
        /// Number of members.
        members: usize,
    },
    /// The deadline is zero.
    #[error("deadline is 0, so every member would fail: write a longer time, such as 5min")]
    NoDeadline,
}

/// Returns the highest minimum that admits one member, in the unit of `min_available`.
fn highest_minimum(min_available: CountOrPercent, members: usize) -> CountOrPercent {
    let others = members.saturating_sub(1);
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    match min_available {
        CountOrPercent::Count(_) => CountOrPercent::Count(number(others)),
        CountOrPercent::Percent(_) => {
            CountOrPercent::Percent(number(others.saturating_mul(100) / members.max(1)))
        }
    }
}

/// Error for a request that does not fit the phase of the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RolloutRequestError {
    /// The request.
    pub request: &'static str,
    /// The phase.
    pub phase: RolloutPhase,
}

impl std::error::Error for RolloutRequestError {}

impl fmt::Display for RolloutRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, phase } = self;
        if phase.has_ended() {
            let name = phase.as_str();
            return write!(f, "cannot {request} a rollout that is {name}: start another one");
        }
        write!(f, "cannot {request} a rollout that is {}: wait for its end, ", phase.as_str())?;
        f.write_str("or abort it to keep each member as it is")
    }
}

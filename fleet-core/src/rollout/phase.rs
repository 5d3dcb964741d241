//! Phases of a rollout, with the causes of its end as data and as text.

use std::fmt;
use std::time::Duration;

use super::MemberId;

/// The phase of a rollout.
///
/// `Display` writes the phase with its cause and, for an ended rollout, a remedy.
///
/// All variants are listed on purpose, without `#[non_exhaustive]`: the compiler then points to
/// each encoding of rollouts that a new variant has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutPhase {
    /// Members are updated, batch by batch.
    Running,
    /// The rollout neither writes nor judges until it is resumed.
    Paused,
    /// The updated members return to their former version.
    RollingBack {
        /// The reason for the rollback.
        cause: RollbackCause,
    },
    /// Every member runs the new version, except superseded ones.
    Completed,
    /// Every updated member has its former version again, except superseded ones.
    RolledBack {
        /// The reason for the rollback.
        cause: RollbackCause,
    },
    /// The rollout could not continue. The members keep the version that they have.
    Stopped {
        /// The reason for the stop.
        cause: StopCause,
    },
    /// The rollout ended on request. The members keep the version that they have.
    Aborted,
}

impl RolloutPhase {
    /// Returns the name of the phase, without its cause.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::RollingBack { .. } => "rolling back",
            Self::Completed => "completed",
            Self::RolledBack { .. } => "rolled back",
            Self::Stopped { .. } => "stopped",
            Self::Aborted => "aborted",
        }
    }

    /// Returns `true` if the rollout has ended. It then never changes again.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        match self {
            Self::Running | Self::Paused | Self::RollingBack { .. } => false,
            Self::Completed | Self::RolledBack { .. } | Self::Stopped { .. } | Self::Aborted => {
                true
            }
        }
    }
}

impl fmt::Display for RolloutPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Self::Running | Self::Completed => Ok(()),
            Self::Paused => f.write_str(": resume or abort it"),
            Self::RollingBack { cause } => write!(f, ": {cause}"),
            Self::RolledBack { cause: cause @ RollbackCause::Failure(_) } => {
                write!(f, ": {cause}: correct the unit, and start another rollout")
            }
            Self::RolledBack { cause: cause @ RollbackCause::AbortRequested } => {
                write!(f, ": {cause}")
            }
            Self::Stopped { cause } => write!(f, ": {cause}"),
            Self::Aborted => f.write_str(" on request: each member keeps the version that it has"),
        }
    }
}

/// The reason for a rollback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackCause {
    /// A member failed with the new version.
    Failure(MemberFailure),
    /// A user aborted the rollout and requested a rollback.
    AbortRequested,
}

impl fmt::Display for RollbackCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failure(failure) => failure.fmt(f),
            Self::AbortRequested => f.write_str("the rollout was aborted on request"),
        }
    }
}

/// The failure of a member that has the new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberFailure {
    /// The member was reported as failed.
    Failed {
        /// The member.
        member: MemberId,
        /// The reported reason.
        reason: String,
    },
    /// The member did not reach its desired state in time.
    NotReady {
        /// The member.
        member: MemberId,
        /// The time that it had.
        deadline: Duration,
    },
    /// The member is active, but its health check did not pass in time.
    Unhealthy {
        /// The member.
        member: MemberId,
        /// The time that it had.
        deadline: Duration,
    },
}

impl MemberFailure {
    /// Returns the member that failed.
    #[must_use]
    pub const fn member(&self) -> &MemberId {
        match self {
            Self::Failed { member, .. }
            | Self::NotReady { member, .. }
            | Self::Unhealthy { member, .. } => member,
        }
    }
}

impl fmt::Display for MemberFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { member, reason } => write!(f, "{member} failed: {reason}"),
            Self::NotReady { member, deadline } => {
                write!(f, "{member} was not ready with its new version within {deadline:?}")
            }
            Self::Unhealthy { member, deadline } => {
                write!(f, "{member} is active, but its health check did not pass ")?;
                write!(f, "within {deadline:?}")
            }
        }
    }
}

/// A number of healthy members too low to change another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Number of healthy members.
    pub healthy: usize,
    /// Number of healthy members that must remain.
    pub min_available: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { healthy, min_available } = self;
        write!(f, "no further member may change, because {healthy} are healthy and ")?;
        write!(f, "min-available requires {min_available}")
    }
}

/// The reason why a rollout stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopCause {
    /// A member failed, and the strategy requests no rollback.
    Failure(MemberFailure),
    /// Too few members were healthy to update another one.
    Shortage(Shortage),
    /// Too few members were healthy to complete the rollback.
    UnfinishedRollback {
        /// The reason for the rollback.
        cause: RollbackCause,
        /// The number of healthy members.
        shortage: Shortage,
    },
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failure(failure) => {
                write!(f, "{failure}; each member keeps the version that it has: correct the ")?;
                f.write_str("unit, and start another rollout")
            }
            Self::Shortage(shortage) => {
                write!(f, "{shortage}: repair the others, or start another rollout with a lower ")?;
                f.write_str("min-available")
            }
            Self::UnfinishedRollback { cause, shortage } => {
                write!(f, "{cause}; the rollback is incomplete: {shortage}: repair the others, ")?;
                f.write_str("and start a rollout of the former version")
            }
        }
    }
}

//! Jobs: units that run to completion once, with retries and a deadline.
//!
//! ```text
//! JobSettings ─┐
//! JobState ────┼── advance ──> JobState to store, JobStep with actions
//! observation ─┘
//! ```
//!
//! The leader stores a [`JobState`] per job. In each cycle it calls [`JobState::advance`], stores
//! the changed state, and only then carries out the actions. Actions follow from the stored state
//! and the observation. They are returned again until the observation shows their effect, so a
//! leader may lose or repeat them.
//!
//! Each attempt has an [`AttemptId`], and the stored state binds it to one machine before it
//! starts. The agent of that machine records the ID before it starts the unit, and never starts a
//! recorded attempt again. Together this gives at most one run per attempt.
//!
//! ```
//! use fleet_core::job::{JobAction, JobObservation, JobSettings, JobState};
//! use fleet_core::{Revision, Timestamp};
//!
//! let settings = JobSettings::default();
//! let mut job = JobState::new(Revision(7), Timestamp::from_millis(1_000));
//! let mut seen = JobObservation::default();
//!
//! // The job has no machine yet.
//! let step = job.advance(&settings, &seen, Timestamp::from_millis(1_000));
//! assert_eq!(step.actions, [JobAction::Place { attempt: job.next_attempt() }]);
//!
//! // The scheduler has chosen a machine. The caller stores the new state, then starts the attempt.
//! seen.placed = Some("m1".parse()?);
//! let step = job.advance(&settings, &seen, Timestamp::from_millis(2_000));
//! assert_eq!(step.actions[0].to_string(), "start attempt 1 on m1");
//! assert_eq!(job.phase.to_string(), "running on m1, attempt 1");
//! # Ok::<(), fleet_core::machine::MachineIdError>(())
//! ```

mod advance;
mod record;
mod setting_error;
mod settings;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::unit::ExitStatus;
use crate::{MachineId, Revision, Timestamp};

pub use record::JobRecord;
pub use setting_error::{SettingError, SettingErrorKind};
pub use settings::JobDefinition;

/// Settings of a job.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of settings that a new field has to become a part of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct JobSettings {
    /// Number of further attempts after failed ones (`Retries=`).
    pub retries: u32,
    /// Maximum time from the creation to the end, by the wall clock (`Deadline=`). `None` for no
    /// limit.
    pub deadline: Option<Duration>,
    /// Time for which the ended job is kept before its unit is removed (`KeepFor=`). `None` keeps
    /// it until a user removes it.
    pub keep_for: Option<Duration>,
    /// Whether an interrupted attempt uses up a retry like a failed one (`CountLost=`).
    pub count_lost: bool,
}

/// Identity of an attempt. A later attempt has a higher ID, also if it belongs to a later job of
/// the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The [origin](JobState::origin) of the job.
    pub origin: Revision,
    /// Number of the attempt within the job, counted from one.
    pub number: u32,
}

/// Persistent state of a job.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of jobs that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobState {
    /// Revision of the cluster state from which the job was created. It distinguishes the job from
    /// an earlier one of the same name.
    pub origin: Revision,
    /// Creation of the job, by the wall clock.
    pub created: Timestamp,
    /// The phase.
    pub phase: JobPhase,
    /// Number of the last attempt that was begun; zero before the first one.
    pub last_attempt: u32,
    /// Number of attempts that failed by themselves.
    pub failed: u32,
    /// Number of attempts that ended without a fault of the unit; see
    /// [`is_interruption`](AttemptEnd::is_interruption).
    pub interrupted: u32,
    /// The last ended attempts, oldest first; at most [`MAX_ATTEMPTS`](Self::MAX_ATTEMPTS).
    pub attempts: Vec<AttemptRecord>,
}

/// Phase of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobPhase {
    /// The next attempt has not begun.
    Pending {
        /// Creation of the job, or end of its last attempt.
        since: Timestamp,
    },
    /// An attempt is bound to a machine. It may not have started there yet.
    Running {
        /// The machine.
        machine: MachineId,
        /// Number of the attempt.
        attempt: u32,
        /// The time at which the attempt was bound to the machine.
        since: Timestamp,
    },
    /// The job has ended and will not run again. A last attempt may still be stopping.
    Ended {
        /// The outcome.
        outcome: JobOutcome,
        /// The time of the end.
        at: Timestamp,
    },
}

/// Outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobOutcome {
    /// An attempt succeeded.
    Succeeded,
    /// The last permitted attempt failed.
    Failed,
    /// The deadline passed first.
    DeadlineExceeded,
    /// A user stopped the job.
    Stopped,
}

/// An ended attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Number of the attempt.
    pub number: u32,
    /// The machine to which it was bound.
    pub machine: MachineId,
    /// The time at which it was bound to the machine.
    pub begin: Timestamp,
    /// The time at which the leader recorded the end. It is earlier than `begin` if the wall clock
    /// was set back in between.
    pub end: Timestamp,
    /// The kind of the end.
    pub how: AttemptEnd,
    /// The last lines of its output, as far as the machine has reported them.
    pub output: Vec<String>,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The unit ended by itself.
    Exited {
        /// Exit status of the main process.
        status: ExitStatus,
        /// Whether the service manager counts it as a success. `SuccessExitStatus=` applies.
        success: bool,
    },
    /// The unit could not be started.
    NotStarted {
        /// The reason, as the agent reports it, truncated to a fixed length.
        reason: String,
    },
    /// The machine was absent for longer than its grace period.
    MachineLost,
    /// The machine has restarted, or its agent has stopped the unit.
    Interrupted,
    /// The unit was placed on another machine, or its placement was withdrawn.
    Moved,
    /// A user stopped the unit.
    Stopped,
    /// The deadline of the job passed.
    DeadlineExceeded,
}

/// Facts about a job and its machines, from one snapshot of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobObservation {
    /// The machine on which the unit is placed.
    pub placed: Option<MachineId>,
    /// Machines that have been absent for longer than their grace period.
    pub lost: BTreeSet<MachineId>,
    /// Reports about the unit, at most one per machine.
    pub reports: Vec<AttemptReport>,
    /// Whether a user has stopped the unit.
    pub stop_requested: bool,
}

/// An agent's report about the last attempt that it recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptReport {
    /// The machine of the agent.
    pub machine: MachineId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The progress of the attempt on this machine.
    pub progress: AttemptProgress,
    /// The last lines of the output of an attempt that has ended.
    pub output: Vec<String>,
}

/// Progress of an attempt on its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptProgress {
    /// The unit is starting, running or stopping.
    Active,
    /// The unit has ended.
    Exited {
        /// Exit status of the main process.
        status: ExitStatus,
        /// Whether the service manager counts it as a success.
        success: bool,
    },
    /// The unit could not be started.
    NotStarted {
        /// The reason.
        reason: String,
    },
    /// The machine has restarted since it recorded the attempt, or its agent has stopped the unit,
    /// for example during a partition.
    Interrupted,
}

/// An action that the leader takes after it has stored the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobAction {
    /// Places the unit on a machine that is present. The attempt begins once the observation shows
    /// the placement.
    Place {
        /// The attempt that will begin there.
        attempt: AttemptId,
    },
    /// Starts the unit, unless the machine's agent has recorded the attempt already.
    Start {
        /// The machine.
        machine: MachineId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// Stops the unit on the machine.
    Stop {
        /// The machine.
        machine: MachineId,
        /// The attempt that is active there.
        attempt: AttemptId,
        /// The reason.
        reason: JobStopReason,
    },
    /// Removes the unit from the cluster, because `KeepFor=` is over and no attempt is active.
    Remove,
}

/// The reason for stopping an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobStopReason {
    /// The deadline of the job has passed.
    Deadline,
    /// A user stopped the unit.
    Requested,
    /// The attempt is not the job's current one. Its machine was lost and has come back, the unit
    /// was moved, or the attempt belongs to an earlier job of the same name.
    NotCurrent,
}

/// Result of [`JobState::advance`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct JobStep {
    /// Actions to take after the state was stored.
    pub actions: Vec<JobAction>,
    /// The time at which to call again at the latest, even if no observation changes.
    pub next: Option<Timestamp>,
}

impl JobSettings {
    /// Upper bound of `Retries=`.
    pub const MAX_RETRIES: u32 = 1000;

    /// Number of interrupted attempts that use up no retry without `CountLost=true`. Later ones
    /// do, because the job itself may be the reason why its machines are lost.
    pub const FREE_INTERRUPTIONS: u32 = 3;
}

impl JobState {
    /// Maximum number of ended attempts that are kept.
    pub const MAX_ATTEMPTS: usize = 10;

    /// Maximum length of a stored reason in bytes.
    pub const MAX_REASON: usize = 256;

    /// Makes the state of a new job. `origin` is the revision of the snapshot from which the caller
    /// creates it, so it is higher than that of each earlier job of the same name.
    #[must_use]
    pub fn new(origin: Revision, now: Timestamp) -> Self {
        Self {
            origin,
            created: now,
            phase: JobPhase::Pending { since: now },
            last_attempt: 0,
            failed: 0,
            interrupted: 0,
            attempts: Vec::new(),
        }
    }

    /// Returns the ID of the attempt after the last one.
    #[must_use]
    pub fn next_attempt(&self) -> AttemptId {
        self.attempt(self.last_attempt.saturating_add(1))
    }

    /// Returns the outcome of a job that has ended and is not active on any reachable machine.
    #[must_use]
    pub fn settled(&self, seen: &JobObservation) -> Option<JobOutcome> {
        match self.phase {
            JobPhase::Ended { outcome, .. } if seen.active().next().is_none() => Some(outcome),
            _ => None,
        }
    }

    /// Returns the number of ended attempts that count against [`retries`](JobSettings::retries).
    #[must_use]
    pub fn counted(&self, settings: &JobSettings) -> u32 {
        let free = if settings.count_lost { 0 } else { JobSettings::FREE_INTERRUPTIONS };
        self.failed.saturating_add(self.interrupted.saturating_sub(free))
    }

    fn attempt(&self, number: u32) -> AttemptId {
        AttemptId { origin: self.origin, number }
    }
}

impl JobObservation {
    /// Returns the reports of active attempts on machines that are not lost.
    fn active(&self) -> impl Iterator<Item = &AttemptReport> {
        self.reports.iter().filter(|report| {
            report.progress == AttemptProgress::Active && !self.lost.contains(&report.machine)
        })
    }
}

impl AttemptEnd {
    /// Returns whether the attempt ended by no fault of the unit.
    #[must_use]
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::MachineLost | Self::Interrupted | Self::Moved)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.origin, self.number)
    }
}

impl fmt::Display for JobPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { .. } => f.write_str("pending"),
            Self::Running { machine, attempt, .. } => {
                write!(f, "running on {}, attempt {attempt}", machine.short())
            }
            Self::Ended { outcome, .. } => outcome.fmt(f),
        }
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Stopped => "stopped",
        })
    }
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { status, .. } => status.fmt(f),
            Self::NotStarted { reason } => write!(f, "not started: {reason}"),
            Self::MachineLost => f.write_str("machine lost"),
            Self::Interrupted => f.write_str("interrupted on its machine"),
            Self::Moved => f.write_str("moved to another machine"),
            Self::Stopped => f.write_str("stopped by a user"),
            Self::DeadlineExceeded => f.write_str("stopped at the deadline"),
        }
    }
}

impl fmt::Display for JobAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place { attempt } => write!(f, "place attempt {}", attempt.number),
            Self::Start { machine, attempt } => {
                write!(f, "start attempt {} on {machine}", attempt.number)
            }
            Self::Stop { machine, attempt, reason } => {
                write!(f, "stop attempt {} on {machine}: {reason}", attempt.number)
            }
            Self::Remove => f.write_str("remove the unit"),
        }
    }
}

impl fmt::Display for JobStopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "the deadline has passed",
            Self::Requested => "a user stopped the unit",
            Self::NotCurrent => "it is not the current attempt",
        })
    }
}

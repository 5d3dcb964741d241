//! Schedules: jobs that run at calendar events, started by the leader of the cluster.
//!
//! The leader stores a [`ScheduleState`] per schedule. Each time that the calendar event occurs is
//! an *elapse*, and makes at most one run. The leader carries out these steps for a run:
//!
//! 1. It calls [`ScheduleState::advance`], which records the run in the state.
//! 2. It stores the state.
//! 3. For each [`ScheduleAction::Start`], it creates the run's unit and stores the state with
//!    [`ScheduleState::start`]. Both happen in one transaction, which fails if the stored state has
//!    changed.
//!
//! A leader that ends after step 2 leaves a recorded run behind. The next leader gets the action
//! again. The name of the unit follows from the elapse: see [`RunId::unit_name`].
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use fleet_core::Timestamp;
//! use fleet_core::schedule::{ScheduleRequests, ScheduleSettings, ScheduleState};
//! use fleet_unitfile::calendar::Utc;
//!
//! let settings = ScheduleSettings::new("*-*-* 02:00".parse()?);
//! let requests = ScheduleRequests::default();
//! let at = |hours: u64| Timestamp::from_millis(hours * 3_600_000);
//! let mut schedule = ScheduleState::new(at(0));
//!
//! let step = schedule.advance(&settings, requests, &BTreeMap::new(), &Utc, at(1));
//! assert_eq!((step.actions.len(), step.next), (0, Some(at(2))));
//!
//! let step = schedule.advance(&settings, requests, &BTreeMap::new(), &Utc, at(2));
//! assert_eq!(step.actions[0].to_string(), "start run 19700101T020000Z");
//! let run = schedule.runs[0].id;
//! let name = run.unit_name(&"backup.service".parse()?)?;
//! assert_eq!(name.as_str(), "backup-19700101T020000Z.service");
//!
//! // The unit was created, and this change is stored in the same transaction.
//! assert!(schedule.start(run));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advance;
mod due;
mod name;
mod record;

use std::collections::VecDeque;
use std::fmt;

use fleet_unitfile::Calendar;

use crate::job::JobOutcome;
use crate::{Generation, Timestamp};

pub use record::{ScheduleRecord, ScheduleRequest};

/// Settings of a schedule.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of settings that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScheduleSettings {
    /// The calendar event (`Schedule=`). Without a time zone it is in UTC, because the machines of
    /// a cluster may be in different zones.
    pub calendar: Calendar,
    /// Treatment of an elapse while an earlier run is unfinished (`ConcurrencyPolicy=`).
    pub concurrency: ConcurrencyPolicy,
    /// Treatment of missed elapses (`CatchUp=`).
    pub catch_up: CatchUp,
}

/// Treatment of an elapse while an earlier run of the schedule is unfinished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConcurrencyPolicy {
    /// Both run, up to [`ScheduleState::MAX_RUNS`] at a time.
    Allow,
    /// The elapse is skipped, as by a systemd timer whose unit is active.
    #[default]
    Forbid,
    /// The earlier runs are stopped. The new one starts once they have stopped.
    Replace,
}

/// Treatment of elapses that no leader handled in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatchUp {
    /// The last of them runs late, as with `Persistent=true` of a systemd timer.
    Once,
    /// None of them runs.
    #[default]
    None,
}

/// Requests of users, stored separately from the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleRequests {
    /// Whether elapses make no runs.
    pub paused: bool,
    /// Number of requests to run the job now. Requests that come in before the leader handles the
    /// first of them make one run.
    pub run_now: Generation,
}

/// Identity of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunId {
    /// The run of the elapse at this time, by the wall clock.
    Elapse(Timestamp),
    /// The run of the last of these requests to run now.
    Manual(Generation),
}

/// Persistent state of a schedule.
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of schedules that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    /// All elapses up to this time are decided. It never decreases, so no elapse is decided twice,
    /// even if the wall clock is set back.
    pub decided_until: Timestamp,
    /// Whether the schedule was paused at the last decision. All later elapses are then skipped,
    /// and recorded as such once the schedule is resumed.
    pub is_paused: bool,
    /// The last request to run now that was handled.
    pub run_now: Generation,
    /// Unfinished runs, in the order in which they were recorded; at most
    /// [`MAX_RUNS`](Self::MAX_RUNS), and one more with [`ConcurrencyPolicy::Replace`].
    pub runs: Vec<ScheduledRun>,
    /// The last finished runs and omitted elapses, oldest first; at most
    /// [`MAX_HISTORY`](Self::MAX_HISTORY).
    pub history: VecDeque<HistoryEntry>,
}

/// An unfinished run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledRun {
    /// The identity.
    pub id: RunId,
    /// The time at which the run was recorded.
    pub recorded: Timestamp,
    /// The phase.
    pub phase: RunPhase,
}

/// Phase of an unfinished run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunPhase {
    /// The run is recorded, and its unit does not exist yet.
    Recorded,
    /// The run's unit was created.
    Started,
    /// The run was started and has to stop, because another run replaces it.
    Stopping,
}

/// Status of a run's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    /// The job has not ended, or is still active on a machine.
    Active,
    /// The job has ended and is not active: see [`settled`](crate::job::JobState::settled).
    Ended(JobOutcome),
}

/// One entry in the history of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryEntry {
    /// A finished run.
    Run {
        /// The identity.
        id: RunId,
        /// The time at which the run was recorded.
        recorded: Timestamp,
        /// The time at which the leader recorded the end.
        ended: Timestamp,
        /// The result.
        result: RunEnd,
    },
    /// Consecutive elapses or requests that made no run, for the same reason.
    Omitted {
        /// The first of them.
        first: RunId,
        /// The last of them.
        last: RunId,
        /// Their number.
        count: u64,
        /// Whether there are more of them than `count`, because counting was limited.
        or_more: bool,
        /// The reason.
        reason: OmissionReason,
    },
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The job has ended.
    Ended(JobOutcome),
    /// The job was stopped for another run.
    Replaced,
    /// The run's unit was removed before the leader knew its outcome.
    Removed,
}

/// The reason why an elapse made no run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OmissionReason {
    /// No leader handled the elapse in time, or a later elapse was due as well.
    Missed,
    /// The schedule was paused or stopped.
    Paused,
    /// `ConcurrencyPolicy=forbid`, and an earlier run was unfinished.
    Unfinished,
    /// The maximum number of runs was unfinished.
    TooManyRuns,
    /// Another run replaced this one before it started.
    Replaced,
    /// Another unit already had the name of the run's unit.
    NameTaken,
}

/// An action that the leader takes after it has stored the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAction {
    /// Creates the unit of the run, in the transaction that the [module](self) describes.
    Start {
        /// The run.
        run: RunId,
    },
    /// Stops the unit of the run.
    Stop {
        /// The run.
        run: RunId,
    },
}

/// Result of [`ScheduleState::advance`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct ScheduleStep {
    /// Actions to take after the state was stored.
    pub actions: Vec<ScheduleAction>,
    /// The next elapse. Call again at this time, even if no observation changes. `None` if the
    /// event never occurs again, or while the schedule is paused.
    pub next: Option<Timestamp>,
}

impl ScheduleSettings {
    /// Makes settings with the default policies.
    #[must_use]
    pub fn new(calendar: Calendar) -> Self {
        Self { calendar, concurrency: ConcurrencyPolicy::default(), catch_up: CatchUp::default() }
    }
}

impl ScheduleState {
    /// Maximum number of unfinished runs. Further elapses are omitted.
    pub const MAX_RUNS: usize = 10;

    /// Maximum number of entries in the history.
    pub const MAX_HISTORY: usize = 20;

    /// Makes the state of a new schedule. Elapses up to now make no runs.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            decided_until: now,
            is_paused: false,
            run_now: Generation::ZERO,
            runs: Vec::new(),
            history: VecDeque::new(),
        }
    }
}

impl ConcurrencyPolicy {
    /// Returns the value as written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Forbid => "forbid",
            Self::Replace => "replace",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Allow, Self::Forbid, Self::Replace].into_iter().find(|it| it.as_str() == name)
    }
}

impl CatchUp {
    /// Returns the value as written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::None => "none",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Once, Self::None].into_iter().find(|it| it.as_str() == name)
    }
}

impl fmt::Display for ConcurrencyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for ScheduleAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { run } => write!(f, "start run {run}"),
            Self::Stop { run } => write!(f, "stop run {run}"),
        }
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(outcome) => outcome.fmt(f),
            Self::Replaced => f.pad("replaced by another run"),
            Self::Removed => f.pad("removed"),
        }
    }
}

impl fmt::Display for OmissionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Missed => "missed: no leader handled it in time",
            Self::Paused => "skipped: the schedule was paused or stopped",
            Self::Unfinished => "skipped: an earlier run was unfinished",
            Self::TooManyRuns => "skipped: too many runs were unfinished",
            Self::Replaced => "skipped: another run replaced it before it started",
            Self::NameTaken => "skipped: another unit had the name of its unit",
        })
    }
}

/// Writes the entry as one line for a listing.
impl fmt::Display for HistoryEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { id, result, .. } => write!(f, "{id}: {result}"),
            Self::Omitted { first, count: 1, or_more: false, reason, .. } => {
                write!(f, "{first}: {reason}")
            }
            Self::Omitted { first, last, count, or_more, reason } => {
                let more = if *or_more { " or more" } else { "" };
                write!(f, "{first} to {last} ({count}{more}): {reason}")
            }
        }
    }
}

//! Rollouts: the options of a request, and reports.

use fleet_core::rollout::{
    CountOrPercent, CountOrPercentError, MemberObservation, ObservedState, OnFailure, RolloutId,
    RolloutRecord, RolloutRequest, RolloutStrategy,
};
use fleet_core::{Snapshot, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

use super::Time;

/// Options of a rollout. Missing ones have their default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RolloutOptions {
    /// Maximum number of members in a batch, as a count or a percentage; 1 by default.
    #[schema(example = "25%")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<String>,
    /// Time in which a member must become healthy, in milliseconds; five minutes by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Minimum number of healthy members, as a count or a percentage; 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<String>,
    /// Reaction to a member that fails: `rollback` (default) or `stop`.
    #[schema(pattern = "^(rollback|stop)$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<String>,
    /// Time for which a member must be healthy before the next batch begins, in milliseconds; five
    /// seconds by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_ms: Option<u64>,
}

/// Error of invalid rollout options.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RolloutOptionsError {
    #[error("{option}: {error}")]
    Share { option: &'static str, error: CountOrPercentError },
    #[error("onFailure: {0:?} is unknown: write \"rollback\" or \"stop\"")]
    OnFailure(String),
}

impl RolloutOptions {
    pub(crate) fn strategy(&self) -> Result<RolloutStrategy, RolloutOptionsError> {
        let usual = RolloutStrategy::default();
        let share = |option, text: &Option<String>, usual: CountOrPercent| match text {
            Some(text) => {
                text.parse().map_err(|error| RolloutOptionsError::Share { option, error })
            }
            None => Ok(usual),
        };
        let time = |millis: Option<u64>, usual| millis.map_or(usual, Duration::from_millis);
        Ok(RolloutStrategy {
            at_once: share("atOnce", &self.at_once, usual.at_once)?,
            min_available: share("minAvailable", &self.min_available, usual.min_available)?,
            settle: time(self.settle_ms, usual.settle),
            deadline: time(self.deadline_ms, usual.deadline),
            on_failure: match self.on_failure.as_deref() {
                None => usual.on_failure,
                Some("rollback") => OnFailure::Rollback,
                Some("stop") => OnFailure::Stop,
                Some(other) => return Err(RolloutOptionsError::OnFailure(other.to_owned())),
            },
        })
    }
}

/// Body of `POST /rollouts/<number>`: a request to a rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutCommand {
    /// `pause`, `resume`, `abort` (members keep the version that they have) or `rollback`.
    #[schema(pattern = "^(pause|resume|abort|rollback)$", example = "pause")]
    pub request: String,
}

impl RolloutCommand {
    pub(crate) fn new(request: RolloutRequest) -> Self {
        Self { request: name_of(request).to_owned() }
    }

    pub(crate) fn request(&self) -> Option<RolloutRequest> {
        use RolloutRequest::{Abort, Pause, Resume, RollBack};
        [Pause, Resume, Abort, RollBack].into_iter().find(|it| name_of(*it) == self.request)
    }
}

const fn name_of(request: RolloutRequest) -> &'static str {
    match request {
        RolloutRequest::Pause => "pause",
        RolloutRequest::Resume => "resume",
        RolloutRequest::Abort => "abort",
        RolloutRequest::RollBack => "rollback",
    }
}

/// Rollouts of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct RolloutList {
    /// The rollouts, in the order of their numbers. They include the last ones that have ended.
    pub rollouts: Vec<RolloutEntity>,
}

/// A rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RolloutEntity {
    /// Maximum number of members in a batch, as a count or a percentage.
    pub at_once: String,
    /// Time in which a member must become healthy, in milliseconds.
    pub deadline_ms: u64,
    /// Whether the rollout has ended.
    pub has_ended: bool,
    /// Number of the rollout.
    pub id: u64,
    /// The members, in the order of their update.
    pub members: Vec<RolloutMember>,
    /// Minimum number of healthy members, as a count or a percentage.
    pub min_available: String,
    /// The phase: `running`, `paused`, `rolling back`, `completed`, `rolled back`, `stopped` or
    /// `aborted`.
    pub phase: String,
    /// Time of the request by the clock of the daemon that received it. Missing if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Time>,
    /// Time for which a member must be healthy before the next batch begins, in milliseconds.
    pub settle_ms: u64,
    /// The phase as a sentence, with its cause and a remedy.
    pub text: String,
}

/// A member of a rollout: a unit, or a global unit on one machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct RolloutMember {
    /// Hash of the unit file before the rollout. Missing if the rollout creates the unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_hash: Option<String>,
    /// Observed health: `healthy`, `unhealthy`, `not ready` or `failed`. Empty for a rollout that
    /// has ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
    /// The machine of a global unit.
    #[serde(rename = "machineID", skip_serializing_if = "String::is_empty")]
    pub machine_id: String,
    /// The progress: `pending`, `updating`, `updated`, `restoring`, `restored` or `superseded`.
    pub state: String,
    /// Hash of the unit file of the rollout.
    pub to_hash: String,
    /// Name of the unit.
    pub unit: String,
}

impl RolloutEntity {
    /// Returns the number of the rollout.
    #[must_use]
    pub fn rollout_id(&self) -> RolloutId {
        RolloutId(self.id)
    }

    pub(crate) fn of(record: &RolloutRecord, snapshot: &Snapshot) -> Self {
        let RolloutRecord { id, requested_at, rollout } = record;
        let strategy = &rollout.strategy;
        let (has_ended, observer) = (rollout.phase.has_ended(), record.observer(snapshot));
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let members = rollout.members.iter().map(|member| RolloutMember {
            from_hash: member.from.map(|from| from.hash.to_string()),
            health: match has_ended {
                true => String::new(),
                false => health(&observer.observe(member)).to_owned(),
            },
            machine_id: member.id.machine.as_ref().map(ToString::to_string).unwrap_or_default(),
            state: member.state.as_str().to_owned(),
            to_hash: member.to.hash.to_string(),
            unit: member.id.unit.to_string(),
        });
        Self {
            at_once: strategy.at_once.to_string(),
            deadline_ms: millis(strategy.deadline),
            has_ended,
            id: id.0,
            members: members.collect(),
            min_available: strategy.min_available.to_string(),
            phase: rollout.phase.as_str().to_owned(),
            requested_at: requested_at.map(|millis| Timestamp::from_millis(millis).into()),
            settle_ms: millis(strategy.settle),
            text: rollout.phase.to_string(),
        }
    }
}

fn health(observation: &MemberObservation) -> &'static str {
    match &observation.state {
        _ if observation.is_healthy() => "healthy",
        ObservedState::Failed { .. } => "failed",
        ObservedState::Active { .. } => "unhealthy",
        ObservedState::NotYet | ObservedState::Settled => "not ready",
    }
}

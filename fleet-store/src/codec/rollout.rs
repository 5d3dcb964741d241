//! Encoding of rollouts, and of the unit files of their members.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::Generation;
use fleet_core::rollout::{
    CountOrPercent, Member, MemberFailure, MemberId, OnFailure, RollbackCause, Rollout, RolloutId,
    RolloutPhase, RolloutRecord, RolloutStrategy, Shortage, StopCause, UnitTarget,
};
use fleet_unitfile::UnitFile;
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};
use crate::registry::{DeferredFile, MemberFiles, RolloutFiles};

#[derive(Serialize, Deserialize)]
struct WireRollout {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requested_at: Option<u64>,
    phase: WirePhase,
    strategy: WireStrategy,
    members: Vec<WireMember>,
}

#[derive(Serialize, Deserialize)]
struct WireStrategy {
    at_once: String,
    min_available: String,
    settle_ms: u64,
    deadline_ms: u64,
    on_failure: WireOnFailure,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireOnFailure {
    Rollback,
    Stop,
}

#[derive(Serialize, Deserialize)]
struct WireMember {
    unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<WireTarget>,
    to: WireTarget,
    state: String,
}

#[derive(Serialize, Deserialize)]
struct WireTarget {
    hash: String,
    desired: String,
    generation: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WirePhase {
    Running,
    Paused,
    RollingBack(WireRollbackCause),
    Completed,
    RolledBack(WireRollbackCause),
    Stopped(WireStopCause),
    Aborted,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireRollbackCause {
    Failure(WireFailure),
    AbortRequested,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireStopCause {
    Failure(WireFailure),
    Shortage(WireShortage),
    UnfinishedRollback { cause: WireRollbackCause, shortage: WireShortage },
}

#[derive(Serialize, Deserialize)]
struct WireFailure {
    unit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    kind: WireFailureKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireFailureKind {
    Failed { reason: String },
    NotReady { deadline_ms: u64 },
    Unhealthy { deadline_ms: u64 },
}

#[derive(Serialize, Deserialize)]
struct WireShortage {
    healthy: usize,
    min_available: usize,
}

/// The files of a rollout. Equal files are stored once.
#[derive(Serialize, Deserialize)]
struct WireFiles {
    v: u32,
    files: Vec<WireFile>,
    /// Indexes of the files of each member before and after the update.
    members: Vec<(Option<usize>, usize)>,
    /// Units whose files are replaced at the end, with the indexes of both files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deferred: Vec<(String, usize, usize)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireFile {
    Text(String),
    /// In base64, if the file is not UTF-8.
    Base64(String),
}

wire!(WireRollout, WireFiles);

pub(crate) fn encode_rollout(record: &RolloutRecord) -> Vec<u8> {
    let Rollout { members, strategy, phase } = &record.rollout;
    encode(&WireRollout {
        v: FORMAT,
        requested_at: record.requested_at,
        phase: phase.into(),
        strategy: strategy.into(),
        members: members.iter().map(WireMember::from).collect(),
    })
}

pub(crate) fn decode_rollout(id: RolloutId, bytes: &[u8]) -> Result<RolloutRecord, CodecError> {
    let wire: WireRollout = decode(bytes)?;
    let members = wire.members.into_iter().map(WireMember::read).collect::<Result<_, _>>()?;
    let (strategy, phase) = (wire.strategy.read()?, wire.phase.read()?);
    let rollout = Rollout { members, strategy, phase };
    Ok(RolloutRecord { id, requested_at: wire.requested_at, rollout })
}

pub(crate) fn encode_rollout_files(rollout: &RolloutFiles) -> Vec<u8> {
    let (mut files, mut indexes) = (Vec::new(), BTreeMap::new());
    let mut index = |file: &UnitFile| {
        *indexes.entry(file.source().to_vec()).or_insert_with(|| {
            files.push(match std::str::from_utf8(file.source()) {
                Ok(text) => WireFile::Text(text.to_owned()),
                Err(_) => WireFile::Base64(STANDARD.encode(file.source())),
            });
            files.len() - 1
        })
    };
    let members = rollout.members.iter();
    let members = members.map(|it| (it.from.as_ref().map(&mut index), index(&it.to))).collect();
    let deferred = rollout.deferred.iter();
    let deferred =
        deferred.map(|it| (it.name.to_string(), index(&it.from), index(&it.to))).collect();
    encode(&WireFiles { v: FORMAT, files, members, deferred })
}

pub(crate) fn decode_rollout_files(bytes: &[u8]) -> Result<RolloutFiles, CodecError> {
    let wire: WireFiles = decode(bytes)?;
    let file = |file: WireFile| {
        let source = match file {
            WireFile::Text(text) => text.into_bytes(),
            WireFile::Base64(text) => STANDARD.decode(text).map_err(CodecError::damaged)?,
        };
        UnitFile::parse(source).map_err(CodecError::damaged)
    };
    let files: Vec<UnitFile> = wire.files.into_iter().map(file).collect::<Result<_, _>>()?;
    let find = |index: usize| {
        let missing = || CodecError::damaged("a unit file of the rollout is missing");
        files.get(index).cloned().ok_or_else(missing)
    };
    let member = |(from, to): (Option<usize>, usize)| {
        Ok(MemberFiles { from: from.map(find).transpose()?, to: find(to)? })
    };
    let deferred = |(name, from, to): (String, usize, usize)| {
        let name = parse(&name, "a unit name")?;
        Ok(DeferredFile { name, from: find(from)?, to: find(to)? })
    };
    Ok(RolloutFiles {
        members: wire.members.into_iter().map(member).collect::<Result<_, CodecError>>()?,
        deferred: wire.deferred.into_iter().map(deferred).collect::<Result<_, CodecError>>()?,
    })
}

impl From<&RolloutStrategy> for WireStrategy {
    fn from(strategy: &RolloutStrategy) -> Self {
        Self {
            at_once: strategy.at_once.to_string(),
            min_available: strategy.min_available.to_string(),
            settle_ms: millis(strategy.settle),
            deadline_ms: millis(strategy.deadline),
            on_failure: match strategy.on_failure {
                OnFailure::Rollback => WireOnFailure::Rollback,
                OnFailure::Stop => WireOnFailure::Stop,
            },
        }
    }
}

impl WireStrategy {
    fn read(self) -> Result<RolloutStrategy, CodecError> {
        let share = |text: &str| parse::<CountOrPercent>(text, "a number of members");
        Ok(RolloutStrategy {
            at_once: share(&self.at_once)?,
            min_available: share(&self.min_available)?,
            settle: Duration::from_millis(self.settle_ms),
            deadline: Duration::from_millis(self.deadline_ms),
            on_failure: match self.on_failure {
                WireOnFailure::Rollback => OnFailure::Rollback,
                WireOnFailure::Stop => OnFailure::Stop,
            },
        })
    }
}

impl From<&Member> for WireMember {
    fn from(member: &Member) -> Self {
        Self {
            unit: member.id.unit.to_string(),
            machine: member.id.machine.as_ref().map(ToString::to_string),
            from: member.from.as_ref().map(WireTarget::from),
            to: (&member.to).into(),
            state: member.state.as_str().to_owned(),
        }
    }
}

impl WireMember {
    fn read(self) -> Result<Member, CodecError> {
        Ok(Member {
            id: member_id(&self.unit, self.machine.as_deref())?,
            from: self.from.map(WireTarget::read).transpose()?,
            to: self.to.read()?,
            state: parse(&self.state, "the state of a member")?,
        })
    }
}

fn member_id(unit: &str, machine: Option<&str>) -> Result<MemberId, CodecError> {
    let machine = machine.map(|machine| parse(machine, "a machine ID")).transpose()?;
    Ok(MemberId { unit: parse(unit, "a unit name")?, machine })
}

impl From<&UnitTarget> for WireTarget {
    fn from(target: &UnitTarget) -> Self {
        Self {
            hash: target.hash.to_string(),
            desired: target.desired.as_str().to_owned(),
            generation: target.generation.0,
        }
    }
}

impl WireTarget {
    fn read(self) -> Result<UnitTarget, CodecError> {
        Ok(UnitTarget {
            hash: parse(&self.hash, "a unit file's hash")?,
            desired: parse(&self.desired, "a state")?,
            generation: Generation(self.generation),
        })
    }
}

impl From<&RolloutPhase> for WirePhase {
    fn from(phase: &RolloutPhase) -> Self {
        match phase {
            RolloutPhase::Running => Self::Running,
            RolloutPhase::Paused => Self::Paused,
            RolloutPhase::RollingBack { cause } => Self::RollingBack(cause.into()),
            RolloutPhase::Completed => Self::Completed,
            RolloutPhase::RolledBack { cause } => Self::RolledBack(cause.into()),
            RolloutPhase::Stopped { cause } => Self::Stopped(cause.into()),
            RolloutPhase::Aborted => Self::Aborted,
        }
    }
}

impl WirePhase {
    fn read(self) -> Result<RolloutPhase, CodecError> {
        Ok(match self {
            Self::Running => RolloutPhase::Running,
            Self::Paused => RolloutPhase::Paused,
            Self::RollingBack(cause) => RolloutPhase::RollingBack { cause: cause.read()? },
            Self::Completed => RolloutPhase::Completed,
            Self::RolledBack(cause) => RolloutPhase::RolledBack { cause: cause.read()? },
            Self::Stopped(cause) => RolloutPhase::Stopped { cause: cause.read()? },
            Self::Aborted => RolloutPhase::Aborted,
        })
    }
}

impl From<&RollbackCause> for WireRollbackCause {
    fn from(cause: &RollbackCause) -> Self {
        match cause {
            RollbackCause::Failure(failure) => Self::Failure(failure.into()),
            RollbackCause::AbortRequested => Self::AbortRequested,
        }
    }
}

impl WireRollbackCause {
    fn read(self) -> Result<RollbackCause, CodecError> {
        Ok(match self {
            Self::Failure(failure) => RollbackCause::Failure(failure.read()?),
            Self::AbortRequested => RollbackCause::AbortRequested,
        })
    }
}

impl From<&StopCause> for WireStopCause {
    fn from(cause: &StopCause) -> Self {
        match cause {
            StopCause::Failure(failure) => Self::Failure(failure.into()),
            StopCause::Shortage(shortage) => Self::Shortage((*shortage).into()),
            StopCause::UnfinishedRollback { cause, shortage } => {
                Self::UnfinishedRollback { cause: cause.into(), shortage: (*shortage).into() }
            }
        }
    }
}

impl WireStopCause {
    fn read(self) -> Result<StopCause, CodecError> {
        Ok(match self {
            Self::Failure(failure) => StopCause::Failure(failure.read()?),
            Self::Shortage(shortage) => StopCause::Shortage(shortage.into()),
            Self::UnfinishedRollback { cause, shortage } => {
                StopCause::UnfinishedRollback { cause: cause.read()?, shortage: shortage.into() }
            }
        })
    }
}

impl From<&MemberFailure> for WireFailure {
    fn from(failure: &MemberFailure) -> Self {
        let MemberId { unit, machine } = failure.member();
        Self {
            unit: unit.to_string(),
            machine: machine.as_ref().map(ToString::to_string),
            kind: match failure {
                MemberFailure::Failed { reason, .. } => {
                    WireFailureKind::Failed { reason: reason.clone() }
                }
                MemberFailure::NotReady { deadline, .. } => {
                    WireFailureKind::NotReady { deadline_ms: millis(*deadline) }
                }
                MemberFailure::Unhealthy { deadline, .. } => {
                    WireFailureKind::Unhealthy { deadline_ms: millis(*deadline) }
                }
            },
        }
    }
}

impl WireFailure {
    fn read(self) -> Result<MemberFailure, CodecError> {
        let member = member_id(&self.unit, self.machine.as_deref())?;
        Ok(match self.kind {
            WireFailureKind::Failed { reason } => MemberFailure::Failed { member, reason },
            WireFailureKind::NotReady { deadline_ms } => {
                MemberFailure::NotReady { member, deadline: Duration::from_millis(deadline_ms) }
            }
            WireFailureKind::Unhealthy { deadline_ms } => {
                MemberFailure::Unhealthy { member, deadline: Duration::from_millis(deadline_ms) }
            }
        })
    }
}

impl From<Shortage> for WireShortage {
    fn from(Shortage { healthy, min_available }: Shortage) -> Self {
        Self { healthy, min_available }
    }
}

impl From<WireShortage> for Shortage {
    fn from(WireShortage { healthy, min_available }: WireShortage) -> Self {
        Self { healthy, min_available }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! Pure: encoding and decoding of the store's values, as versioned JSON.
//!
//! The wire types mirror the types of `fleet_core` but can change independently. Each value has its
//! format number in the field `v`. Decoding a damaged value, or a value of another format, returns
//! an error instead of a guess. One bad value never prevents other values from being read.
//!
//! The encoding of a given format never changes, because some conditions compare stored values byte
//! for byte.
//!
//! Unit files are not JSON: their bytes are stored unchanged after a first line with the format
//! number.

mod failures;
mod history;
mod job;
mod reason;
mod record;
mod revisions;
mod rollout;
mod schedule;

use std::borrow::Cow;

use fleet_core::health::Health;
use fleet_core::unit::ExitStatus;
use fleet_core::{
    Epoch, Generation, MachineId, Metadata, SystemdState, TargetState, Timestamp, UnitState,
};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use crate::registry::{ContentId, Lineage, MachineRecord};

/// Format of all values without a format of their own.
const FORMAT: u32 = 1;

/// Format number of the key [layout](crate::Layout). It is stored in the lineage's value, because
/// every daemon reads the lineage first and so notices an unknown layout before it uses other keys.
/// In format 1, placement keys did not contain the machine.
const LAYOUT_FORMAT: u32 = 2;

/// Format of placements. In format 1 the machine was in the value; in format 2 it is in the key.
const PLACEMENT_FORMAT: u32 = 2;

/// Error of encoding or decoding a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A newer version of fleet wrote the value.
    #[error(
        "format {found} is newer than format {known}, which this version of fleet reads: upgrade \
         fleet on this machine"
    )]
    Newer {
        /// Format of the value.
        found: u32,
        /// Format that this version reads and writes.
        known: u32,
    },
    /// An older version of fleet wrote the value, in a format that is no longer supported.
    #[error(
        "format {found} is older than format {known}, which this version of fleet reads: export \
         the cluster with the older version of fleet, and import the export into a new store"
    )]
    Older {
        /// Format of the value.
        found: u32,
        /// Format that this version reads and writes.
        known: u32,
    },
    /// The value is damaged, or does not match its key.
    #[error("the value is damaged")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The format has no encoding for this.
    #[error("this version of fleet cannot store {0}: report this as a defect of fleet")]
    Unsupported(&'static str),
}

impl CodecError {
    pub(crate) fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Damaged(error.into())
    }
}

/// Stored state of a unit, except for its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitRecord {
    pub(crate) content: ContentId,
    pub(crate) desired: TargetState,
    pub(crate) generation: Generation,
}

impl UnitRecord {
    /// Returns the record with another desired state. A stop raises the generation. So a later
    /// start has a higher generation than the run before the stop, even if the unit's machine never
    /// sees the state in between.
    pub(crate) fn with_desired(self, desired: TargetState) -> Self {
        let is_stop = self.desired == TargetState::Launched && desired != TargetState::Launched;
        let generation = if is_stop { self.generation.next() } else { self.generation };
        Self { desired, generation, ..self }
    }
}

/// A machine's claim to its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) machine: MachineRecord,
    /// Distinguishes the machine from a copy with the same identity.
    pub(crate) token: String,
    /// Distinguishes one join of the machine from the next.
    pub(crate) joined: u64,
}

/// A leader's claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaderClaim {
    pub(crate) machine: MachineId,
    pub(crate) term: u64,
}

pub(crate) use self::failures::{decode_failures, encode_failures};
pub(crate) use self::history::{decode_history, encode_history};
pub(crate) use self::job::{decode_job, encode_job};
pub(crate) use self::revisions::{StoredRevision, decode_revisions, encode_revisions};
pub(crate) use self::rollout::{
    decode_rollout, decode_rollout_files, encode_rollout, encode_rollout_files,
};
pub(crate) use self::schedule::{decode_schedule, encode_schedule};
pub(crate) use reason::{decode_reason, encode_reason};
pub(crate) use record::{
    decode_claim, decode_content, decode_intent, decode_leader, decode_lineage, decode_placement,
    decode_rebalancing, decode_term, decode_text, decode_unit, encode_claim, encode_content,
    encode_intent, encode_leader, encode_lineage, encode_placement, encode_rebalancing,
    encode_term, encode_text, encode_unit,
};

/// A wire type with its format number in the field `v`. Types of frequent values (up to 100,000 in
/// one listing) borrow their strings from the input.
trait Wire {
    /// The only format that is read and written.
    const FORMAT: u32;

    fn format(&self) -> u32;
}

macro_rules! wire {
    ($($name:ty),+ $(,)?) => {
        $(wire!($name = crate::codec::FORMAT);)+
    };
    ($($name:ty = $format:expr),+ $(,)?) => {
        $(impl crate::codec::Wire for $name {
            const FORMAT: u32 = $format;

            fn format(&self) -> u32 {
                self.v
            }
        })+
    };
}
use wire;

fn encode(value: &(impl Wire + Serialize)) -> Vec<u8> {
    serde_json::to_vec(value).expect("wire types have text keys and write to memory")
}

fn decode<'a, T: Wire + Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    match serde_json::from_slice::<T>(bytes) {
        Ok(value) if value.format() == T::FORMAT => Ok(value),
        Ok(value) => Err(format_error(value.format(), T::FORMAT)),
        Err(error) => Err(decode_error(bytes, T::FORMAT, error)),
    }
}

/// Returns the error for a value that could not be decoded. This reads only the format number,
/// because a value of another format may lack the fields that this version expects.
fn decode_error(bytes: &[u8], known: u32, error: serde_json::Error) -> CodecError {
    #[derive(serde::Deserialize)]
    struct Probe {
        v: u32,
    }
    match serde_json::from_slice::<Probe>(bytes) {
        Ok(probe) if probe.v != known => format_error(probe.v, known),
        _ => CodecError::damaged(error),
    }
}

fn format_error(found: u32, known: u32) -> CodecError {
    match found {
        0 => CodecError::damaged("there is no format 0"),
        found if found > known => CodecError::Newer { found, known },
        found => CodecError::Older { found, known },
    }
}

/// Parses a field from its text.
fn parse<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, CodecError> {
    text.parse().map_err(|_| CodecError::damaged(format!("{text:?} is not {what}")))
}

#[derive(Serialize, Deserialize)]
struct WireState<'a> {
    v: u32,
    #[serde(borrow)]
    hash: Cow<'a, str>,
    #[serde(borrow)]
    requested: Cow<'a, str>,
    epoch: u64,
    generation: u64,
    #[serde(borrow)]
    load: Cow<'a, str>,
    #[serde(borrow)]
    active: Cow<'a, str>,
    sub: String,
    /// Milliseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    main_pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<WireExit>,
    #[serde(default)]
    restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    health: Option<WireHealth>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    output: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireExit {
    Code(i32),
    Signal(i32),
    Unknown,
}

/// Health, as `"starting"`, `"healthy"` or `{"unhealthy":"message"}`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireHealth {
    Starting,
    Healthy,
    Unhealthy(String),
}

wire!(WireState<'_>);

/// Maximum length of a stored problem or health text, in bytes. Longer texts are truncated, because
/// the states of many units share a transaction of limited size.
const MAX_PROBLEM_BYTES: usize = 4096;

pub(crate) fn encode_state(state: &UnitState) -> Vec<u8> {
    let systemd = &state.systemd;
    encode(&WireState {
        v: FORMAT,
        hash: state.hash.to_string().into(),
        requested: state.requested.as_str().into(),
        epoch: state.epoch.0,
        generation: state.generation.0,
        load: systemd.load.as_str().into(),
        active: systemd.active.as_str().into(),
        sub: systemd.sub.clone(),
        since: systemd.since.map(Timestamp::as_millis),
        result: systemd.result.clone(),
        main_pid: systemd.main_pid,
        exit: systemd.exit.map(WireExit::from),
        restarts: systemd.restarts,
        problem: state.problem.as_deref().map(shorten),
        health: state.health.as_ref().map(WireHealth::from),
        output: state.output.clone(),
    })
}

pub(crate) fn decode_state(
    unit: UnitName,
    machine: MachineId,
    bytes: &[u8],
) -> Result<UnitState, CodecError> {
    let wire: WireState<'_> = decode(bytes)?;
    let systemd = SystemdState {
        load: parse(&wire.load, "a load state")?,
        active: parse(&wire.active, "an active state")?,
        sub: wire.sub,
        since: wire.since.map(Timestamp::from_millis),
        result: wire.result,
        main_pid: wire.main_pid,
        exit: wire.exit.map(ExitStatus::from),
        restarts: wire.restarts,
    };
    Ok(UnitState {
        unit,
        machine,
        hash: parse(&wire.hash, "a unit file's hash")?,
        requested: parse::<TargetState>(&wire.requested, "a state")?,
        epoch: Epoch(wire.epoch),
        generation: Generation(wire.generation),
        systemd,
        problem: wire.problem,
        health: wire.health.map(Health::from),
        output: wire.output,
    })
}

fn shorten(text: &str) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(MAX_PROBLEM_BYTES)).rev().find(fits);
    text[..end.unwrap_or(0)].to_owned()
}

impl From<&Health> for WireHealth {
    fn from(health: &Health) -> Self {
        match health {
            Health::Starting => Self::Starting,
            Health::Healthy => Self::Healthy,
            Health::Unhealthy { message } => Self::Unhealthy(shorten(message)),
        }
    }
}

impl From<WireHealth> for Health {
    fn from(wire: WireHealth) -> Self {
        match wire {
            WireHealth::Starting => Self::Starting,
            WireHealth::Healthy => Self::Healthy,
            WireHealth::Unhealthy(message) => Self::Unhealthy { message },
        }
    }
}

impl From<ExitStatus> for WireExit {
    fn from(exit: ExitStatus) -> Self {
        match exit {
            ExitStatus::Code(code) => Self::Code(code),
            ExitStatus::Signal(signal) => Self::Signal(signal),
            ExitStatus::Unknown => Self::Unknown,
        }
    }
}

impl From<WireExit> for ExitStatus {
    fn from(wire: WireExit) -> Self {
        match wire {
            WireExit::Code(code) => Self::Code(code),
            WireExit::Signal(signal) => Self::Signal(signal),
            WireExit::Unknown => Self::Unknown,
        }
    }
}

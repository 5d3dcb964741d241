//! Pure: the wire form of a unit's state. The machine and the unit are in the key.

use std::borrow::Cow;

use fleet_core::unit_state::ExitStatus;
use fleet_core::{Epoch, Generation, MachineId, SystemdState, TargetState, UnitState};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};

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
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireExit {
    Code(i32),
    Signal(i32),
    Unknown,
}

wire!(WireState<'_>);

/// Maximum length of a stored problem text, in bytes. Longer texts are truncated, because the
/// states of many units share a transaction of limited size.
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
        result: systemd.result.clone(),
        main_pid: systemd.main_pid,
        exit: systemd.exit.map(WireExit::from),
        restarts: systemd.restarts,
        problem: state.problem.as_deref().map(shorten),
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
    })
}

fn shorten(text: &str) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(MAX_PROBLEM_BYTES)).rev().find(fits);
    text[..end.unwrap_or(0)].to_owned()
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

//! Encoding of the history of a unit.

use std::collections::BTreeMap;

use fleet_core::history::{RunFacts, UnitEvent, UnitEventKind, UnitFacts, UnitHistory};
use fleet_core::{Generation, MachineId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};

/// Times are in milliseconds since 1970 (UTC).
#[derive(Serialize, Deserialize)]
struct WireHistory {
    v: u32,
    events: Vec<WireEvent>,
    facts: WireFacts,
}

#[derive(Serialize, Deserialize)]
struct WireEvent {
    at: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    count: u32,
    #[serde(flatten)]
    kind: WireKind,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum WireKind {
    Desired { state: String },
    RestartRequested,
    Unplaced { reason: String },
    Placed { machine: String, cause: String },
    Moved { from: String, to: String, cause: String },
    Removed { from: String, cause: String },
    MachineLost { machine: String },
    MachineReturned { machine: String },
    Started { machine: String },
    Restarted { machine: String, outcome: String },
    Stopped { machine: String },
    Failed { machine: String, outcome: String },
    Healthy { machine: String },
    Unhealthy { machine: String, message: String },
}

#[derive(Serialize, Deserialize)]
struct WireFacts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    desired: Option<String>,
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unplaced: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    runs: BTreeMap<String, WireRun>,
}

#[derive(Serialize, Deserialize)]
struct WireRun {
    active: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(default)]
    restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
}

wire!(WireHistory);

pub(crate) fn encode_history(history: &UnitHistory) -> Vec<u8> {
    let UnitFacts { desired, generation, machine, is_machine_lost, is_unplaced, runs } =
        &history.facts;
    let run = |run: &RunFacts| WireRun {
        active: run.active.to_string(),
        since: run.since.map(Timestamp::as_millis),
        restarts: run.restarts,
        healthy: run.is_healthy,
    };
    let facts = WireFacts {
        desired: desired.map(|desired| desired.to_string()),
        generation: generation.0,
        machine: machine.as_ref().map(ToString::to_string),
        lost: *is_machine_lost,
        unplaced: *is_unplaced,
        runs: runs.iter().map(|(machine, facts)| (machine.to_string(), run(facts))).collect(),
    };
    let event = |it: &UnitEvent| WireEvent {
        at: it.at.as_millis(),
        count: it.count,
        kind: WireKind::from(&it.kind),
    };
    let events = history.events.iter().map(event).collect();
    encode(&WireHistory { v: FORMAT, events, facts })
}

pub(crate) fn decode_history(bytes: &[u8]) -> Result<UnitHistory, CodecError> {
    let WireHistory { events, facts, .. } = decode(bytes)?;
    let run = |(machine, run): (String, WireRun)| {
        let facts = RunFacts {
            active: parse(&run.active, "an active state")?,
            since: run.since.map(Timestamp::from_millis),
            restarts: run.restarts,
            is_healthy: run.healthy,
        };
        Ok((self::machine(&machine)?, facts))
    };
    let facts = UnitFacts {
        desired: facts.desired.map(|desired| parse(&desired, "a state")).transpose()?,
        generation: Generation(facts.generation),
        machine: facts.machine.as_deref().map(machine).transpose()?,
        is_machine_lost: facts.lost,
        is_unplaced: facts.unplaced,
        runs: facts.runs.into_iter().map(run).collect::<Result<_, CodecError>>()?,
    };
    let event = |it: WireEvent| {
        let at = Timestamp::from_millis(it.at);
        Ok(UnitEvent { at, count: it.count, kind: it.kind.decode()? })
    };
    let events = events.into_iter().map(event).collect::<Result<_, CodecError>>()?;
    Ok(UnitHistory { events, facts })
}

fn machine(id: &str) -> Result<MachineId, CodecError> {
    parse(id, "a machine ID")
}

impl From<&UnitEventKind> for WireKind {
    fn from(kind: &UnitEventKind) -> Self {
        use UnitEventKind as Kind;
        let id = |machine: &MachineId| machine.to_string();
        match kind {
            Kind::Desired { state } => Self::Desired { state: state.to_string() },
            Kind::RestartRequested => Self::RestartRequested,
            Kind::Unplaced { reason } => Self::Unplaced { reason: reason.clone() },
            Kind::Placed { machine, cause } => {
                Self::Placed { machine: id(machine), cause: cause.clone() }
            }
            Kind::Moved { from, to, cause } => {
                Self::Moved { from: id(from), to: id(to), cause: cause.clone() }
            }
            Kind::Removed { from, cause } => Self::Removed { from: id(from), cause: cause.clone() },
            Kind::MachineLost { machine } => Self::MachineLost { machine: id(machine) },
            Kind::MachineReturned { machine } => Self::MachineReturned { machine: id(machine) },
            Kind::Started { machine } => Self::Started { machine: id(machine) },
            Kind::Restarted { machine, outcome } => {
                Self::Restarted { machine: id(machine), outcome: outcome.clone() }
            }
            Kind::Stopped { machine } => Self::Stopped { machine: id(machine) },
            Kind::Failed { machine, outcome } => {
                Self::Failed { machine: id(machine), outcome: outcome.clone() }
            }
            Kind::Healthy { machine } => Self::Healthy { machine: id(machine) },
            Kind::Unhealthy { machine, message } => {
                Self::Unhealthy { machine: id(machine), message: message.clone() }
            }
        }
    }
}

impl WireKind {
    fn decode(self) -> Result<UnitEventKind, CodecError> {
        use UnitEventKind as Kind;
        let id = |text: &str| machine(text);
        Ok(match self {
            Self::Desired { state } => Kind::Desired { state: parse(&state, "a state")? },
            Self::RestartRequested => Kind::RestartRequested,
            Self::Unplaced { reason } => Kind::Unplaced { reason },
            Self::Placed { machine, cause } => Kind::Placed { machine: id(&machine)?, cause },
            Self::Moved { from, to, cause } => {
                Kind::Moved { from: id(&from)?, to: id(&to)?, cause }
            }
            Self::Removed { from, cause } => Kind::Removed { from: id(&from)?, cause },
            Self::MachineLost { machine } => Kind::MachineLost { machine: id(&machine)? },
            Self::MachineReturned { machine } => Kind::MachineReturned { machine: id(&machine)? },
            Self::Started { machine } => Kind::Started { machine: id(&machine)? },
            Self::Restarted { machine, outcome } => {
                Kind::Restarted { machine: id(&machine)?, outcome }
            }
            Self::Stopped { machine } => Kind::Stopped { machine: id(&machine)? },
            Self::Failed { machine, outcome } => Kind::Failed { machine: id(&machine)?, outcome },
            Self::Healthy { machine } => Kind::Healthy { machine: id(&machine)? },
            Self::Unhealthy { machine, message } => {
                Kind::Unhealthy { machine: id(&machine)?, message }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::{ActiveState, TargetState};

    use super::*;

    #[test]
    fn history_reads_back() {
        let m1: MachineId = "m1".parse().expect("it is a machine ID");
        let (machine, from, to) = (m1.clone(), m1.clone(), m1.clone());
        let text = || "why".to_owned();
        let kinds = [
            UnitEventKind::Desired { state: TargetState::Launched },
            UnitEventKind::RestartRequested,
            UnitEventKind::Unplaced { reason: text() },
            UnitEventKind::Placed { machine: machine.clone(), cause: text() },
            UnitEventKind::Moved { from: from.clone(), to, cause: text() },
            UnitEventKind::Removed { from, cause: text() },
            UnitEventKind::MachineLost { machine: machine.clone() },
            UnitEventKind::MachineReturned { machine: machine.clone() },
            UnitEventKind::Started { machine: machine.clone() },
            UnitEventKind::Restarted { machine: machine.clone(), outcome: text() },
            UnitEventKind::Stopped { machine: machine.clone() },
            UnitEventKind::Failed { machine: machine.clone(), outcome: text() },
            UnitEventKind::Healthy { machine: machine.clone() },
            UnitEventKind::Unhealthy { machine, message: text() },
        ];
        let at = Timestamp::from_millis(1_764_212_400_000);
        let event = |(count, kind)| UnitEvent { at, count, kind };
        let run = RunFacts {
            active: ActiveState::Active,
            since: Some(at),
            restarts: 3,
            is_healthy: Some(false),
        };
        let history = UnitHistory {
            events: (1..).zip(kinds).map(event).collect(),
            facts: UnitFacts {
                desired: Some(TargetState::Loaded),
                generation: Generation(7),
                machine: Some(m1.clone()),
                is_machine_lost: true,
                is_unplaced: true,
                runs: BTreeMap::from([(m1, run)]),
            },
        };
        assert_eq!(decode_history(&encode_history(&history)).expect("it was encoded"), history);
        let none = UnitHistory::default();
        assert_eq!(decode_history(&encode_history(&none)).expect("it was encoded"), none);
    }
}

//! Pure: the wire forms of a reason and of a refusal.

use std::time::Duration;

use fleet_core::pattern::Peer;
use fleet_core::reason::{NearestMachine, Tally};
use fleet_core::{MachineId, Reason, Refusal, Resource};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};

#[derive(Serialize, Deserialize)]
struct WireReason {
    v: u32,
    reason: WireReasonKind,
}

wire!(WireReason);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireReasonKind {
    NoMachines,
    NoMachineFits {
        machines: u32,
        tallies: Vec<WireTally>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nearest: Option<WireNearest>,
    },
    NoMachineFitsGroup {
        group: Vec<String>,
        machines: u32,
        tallies: Vec<WireTally>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nearest: Option<WireNearest>,
    },
    AttemptLimit,
    PeerUnknown {
        peer: String,
    },
    PeerInactive {
        peer: String,
    },
    PeersApart {
        one: (String, String),
        other: (String, String),
    },
    Cycle {
        units: Vec<String>,
    },
    NotRescheduled {
        machine: String,
    },
    MachineAwaited {
        machine: String,
    },
    MayStillRun {
        machine: String,
        /// Limit in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<u64>,
    },
}

#[derive(Serialize, Deserialize)]
struct WireTally {
    machines: u32,
    example: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    refusal: WireRefusal,
}

#[derive(Serialize, Deserialize)]
struct WireNearest {
    machine: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    refusal: WireRefusal,
}

pub(crate) fn encode_reason(reason: &Reason) -> Result<Vec<u8>, CodecError> {
    Ok(encode(&WireReason { v: FORMAT, reason: reason_to_wire(reason)? }))
}

pub(crate) fn decode_reason(bytes: &[u8]) -> Result<Reason, CodecError> {
    reason_from_wire(decode::<WireReason>(bytes)?.reason)
}

fn reason_to_wire(reason: &Reason) -> Result<WireReasonKind, CodecError> {
    let at = |place: &(UnitName, MachineId)| (place.0.to_string(), place.1.to_string());
    Ok(match reason {
        Reason::NoMachines => WireReasonKind::NoMachines,
        Reason::NoMachineFits { machines, tallies, nearest } => WireReasonKind::NoMachineFits {
            machines: *machines,
            tallies: tallies_to_wire(tallies)?,
            nearest: nearest_to_wire(nearest.as_ref())?,
        },
        Reason::NoMachineFitsGroup { group, machines, tallies, nearest } => {
            WireReasonKind::NoMachineFitsGroup {
                group: texts(group),
                machines: *machines,
                tallies: tallies_to_wire(tallies)?,
                nearest: nearest_to_wire(nearest.as_ref())?,
            }
        }
        Reason::AttemptLimit => WireReasonKind::AttemptLimit,
        Reason::PeerUnknown { peer } => WireReasonKind::PeerUnknown { peer: peer.to_string() },
        Reason::PeerInactive { peer } => WireReasonKind::PeerInactive { peer: peer.to_string() },
        Reason::PeersApart { one, other } => {
            WireReasonKind::PeersApart { one: at(one), other: at(other) }
        }
        Reason::Cycle { units } => WireReasonKind::Cycle { units: texts(units) },
        Reason::NotRescheduled { machine } => {
            WireReasonKind::NotRescheduled { machine: machine.to_string() }
        }
        Reason::MachineAwaited { machine } => {
            WireReasonKind::MachineAwaited { machine: machine.to_string() }
        }
        Reason::MayStillRun { machine, limit } => WireReasonKind::MayStillRun {
            machine: machine.to_string(),
            limit: limit.map(|limit| limit.as_secs()),
        },
        _ => return Err(CodecError::Unsupported("this reason for a unit without a machine")),
    })
}

fn reason_from_wire(wire: WireReasonKind) -> Result<Reason, CodecError> {
    let at = |(unit, machine): (String, String)| Ok((name(&unit)?, id(&machine)?));
    Ok(match wire {
        WireReasonKind::NoMachines => Reason::NoMachines,
        WireReasonKind::NoMachineFits { machines, tallies, nearest } => Reason::NoMachineFits {
            machines,
            tallies: tallies_from_wire(tallies)?,
            nearest: nearest_from_wire(nearest)?,
        },
        WireReasonKind::NoMachineFitsGroup { group, machines, tallies, nearest } => {
            Reason::NoMachineFitsGroup {
                group: names(&group)?,
                machines,
                tallies: tallies_from_wire(tallies)?,
                nearest: nearest_from_wire(nearest)?,
            }
        }
        WireReasonKind::AttemptLimit => Reason::AttemptLimit,
        WireReasonKind::PeerUnknown { peer: text } => Reason::PeerUnknown { peer: peer(&text)? },
        WireReasonKind::PeerInactive { peer: text } => Reason::PeerInactive { peer: peer(&text)? },
        WireReasonKind::PeersApart { one, other } => {
            Reason::PeersApart { one: at(one)?, other: at(other)? }
        }
        WireReasonKind::Cycle { units } => Reason::Cycle { units: names(&units)? },
        WireReasonKind::NotRescheduled { machine } => {
            Reason::NotRescheduled { machine: id(&machine)? }
        }
        WireReasonKind::MachineAwaited { machine } => {
            Reason::MachineAwaited { machine: id(&machine)? }
        }
        WireReasonKind::MayStillRun { machine, limit } => {
            Reason::MayStillRun { machine: id(&machine)?, limit: limit.map(Duration::from_secs) }
        }
    })
}

fn tallies_to_wire(tallies: &[Tally]) -> Result<Vec<WireTally>, CodecError> {
    let to_wire = |tally: &Tally| {
        Ok(WireTally {
            machines: tally.machines,
            example: tally.example.to_string(),
            unit: tally.unit.as_ref().map(ToString::to_string),
            refusal: refusal_to_wire(&tally.refusal)?,
        })
    };
    tallies.iter().map(to_wire).collect()
}

fn tallies_from_wire(tallies: Vec<WireTally>) -> Result<Vec<Tally>, CodecError> {
    let from_wire = |wire: WireTally| {
        Ok(Tally {
            machines: wire.machines,
            example: id(&wire.example)?,
            unit: wire.unit.map(|unit| name(&unit)).transpose()?,
            refusal: refusal_from_wire(wire.refusal)?,
        })
    };
    tallies.into_iter().map(from_wire).collect()
}

fn nearest_to_wire(nearest: Option<&NearestMachine>) -> Result<Option<WireNearest>, CodecError> {
    let to_wire = |nearest: &NearestMachine| {
        Ok(WireNearest {
            machine: nearest.machine.to_string(),
            unit: nearest.unit.as_ref().map(ToString::to_string),
            refusal: refusal_to_wire(&nearest.refusal)?,
        })
    };
    nearest.map(to_wire).transpose()
}

fn nearest_from_wire(wire: Option<WireNearest>) -> Result<Option<NearestMachine>, CodecError> {
    let from_wire = |wire: WireNearest| {
        Ok(NearestMachine {
            machine: id(&wire.machine)?,
            unit: wire.unit.map(|unit| name(&unit)).transpose()?,
            refusal: refusal_from_wire(wire.refusal)?,
        })
    };
    wire.map(from_wire).transpose()
}

fn texts(units: &[UnitName]) -> Vec<String> {
    units.iter().map(ToString::to_string).collect()
}

fn names(texts: &[String]) -> Result<Vec<UnitName>, CodecError> {
    texts.iter().map(|text| name(text)).collect()
}

pub(super) fn name(text: &str) -> Result<UnitName, CodecError> {
    parse(text, "a unit name")
}

pub(super) fn id(text: &str) -> Result<MachineId, CodecError> {
    parse(text, "a machine ID")
}

pub(super) fn peer(text: &str) -> Result<Peer, CodecError> {
    parse(text, "a unit name or a pattern")
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WireRefusal {
    Cordon {},
    MachineId { wanted: String },
    MachineMetadata { key: String, wanted: Vec<String>, found: Option<String> },
    MachineMetadataExpr { failed: String, found: String },
    MachineOf { peer: String },
    Conflicts { with: String, pattern: String, theirs: bool },
    MaxPerMachine { template: String, limit: u32, there: u32 },
    Reserve { resource: String, wanted: u64, free: u64, offered: u64 },
    Replaces { with: String, theirs: bool },
    Custom { rule: String, detail: String },
}

pub(super) fn refusal_to_wire(refusal: &Refusal) -> Result<WireRefusal, CodecError> {
    Ok(match refusal {
        Refusal::Cordon {} => WireRefusal::Cordon {},
        Refusal::MachineId { wanted } => WireRefusal::MachineId { wanted: wanted.to_string() },
        Refusal::MachineMetadata { key, wanted, found } => WireRefusal::MachineMetadata {
            key: key.clone(),
            wanted: wanted.clone(),
            found: found.clone(),
        },
        Refusal::MachineMetadataExpr { failed, found } => WireRefusal::MachineMetadataExpr {
            failed: failed.to_string(),
            found: found.to_string(),
        },
        Refusal::MachineOf { peer } => WireRefusal::MachineOf { peer: peer.to_string() },
        Refusal::Conflicts { with, pattern, by_other: theirs } => WireRefusal::Conflicts {
            with: with.to_string(),
            pattern: pattern.to_string(),
            theirs: *theirs,
        },
        Refusal::MaxPerMachine { template, limit, count: there } => WireRefusal::MaxPerMachine {
            template: template.to_string(),
            limit: *limit,
            there: *there,
        },
        Refusal::Reserve { resource, wanted, free, offered } => WireRefusal::Reserve {
            resource: resource.to_string(),
            wanted: *wanted,
            free: *free,
            offered: *offered,
        },
        Refusal::Replaces { with, by_other: theirs } => {
            WireRefusal::Replaces { with: with.to_string(), theirs: *theirs }
        }
        Refusal::Custom { rule, detail } => {
            WireRefusal::Custom { rule: rule.to_string(), detail: detail.to_string() }
        }
        _ => return Err(CodecError::Unsupported("this reason of a machine to refuse a unit")),
    })
}

pub(super) fn refusal_from_wire(wire: WireRefusal) -> Result<Refusal, CodecError> {
    Ok(match wire {
        WireRefusal::Cordon {} => Refusal::Cordon {},
        WireRefusal::MachineId { wanted } => Refusal::MachineId { wanted: id(&wanted)? },
        WireRefusal::MachineMetadata { key, wanted, found } => {
            Refusal::MachineMetadata { key, wanted, found }
        }
        WireRefusal::MachineMetadataExpr { failed, found } => {
            Refusal::MachineMetadataExpr { failed: failed.into(), found: found.into() }
        }
        WireRefusal::MachineOf { peer: text } => Refusal::MachineOf { peer: peer(&text)? },
        WireRefusal::Conflicts { with, pattern, theirs } => {
            let pattern = parse(&pattern, "a pattern")?;
            Refusal::Conflicts { with: name(&with)?, pattern, by_other: theirs }
        }
        WireRefusal::MaxPerMachine { template, limit, there } => {
            Refusal::MaxPerMachine { template: name(&template)?, limit, count: there }
        }
        WireRefusal::Reserve { resource, wanted, free, offered } => {
            Refusal::Reserve { resource: known_resource(&resource)?, wanted, free, offered }
        }
        WireRefusal::Replaces { with, theirs } => {
            Refusal::Replaces { with: name(&with)?, by_other: theirs }
        }
        WireRefusal::Custom { rule, detail } => {
            Refusal::Custom { rule: rule.into(), detail: detail.into() }
        }
    })
}

fn known_resource(text: &str) -> Result<Resource, CodecError> {
    let unknown = || CodecError::damaged(format!("{text:?} is not a resource"));
    Resource::from_name(text).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason without its optional fields, which are the nearest machine and the unit of a tally.
    const MINIMAL: &str = concat!(
        r#"{"v":1,"reason":{"no_machine_fits_group":{"group":["a.service","b.service"],"#,
        r#""machines":1,"tallies":[{"machines":1,"example":"m-1","#,
        r#""refusal":{"machine_of":{"peer":"b.service"}}}]}}}"#,
    );

    #[test]
    fn reason_without_optional_fields_round_trips() {
        let reason = decode_reason(MINIMAL.as_bytes()).unwrap();
        let Reason::NoMachineFitsGroup { nearest, tallies, .. } = &reason else {
            panic!("{reason}")
        };
        assert_eq!((nearest.as_ref(), tallies[0].unit.as_ref()), (None, None));
        assert_eq!(encode_reason(&reason).unwrap(), MINIMAL.as_bytes());
    }

    #[test]
    fn unknown_resource_is_damage() {
        let refusal = r#"{"reserve":{"resource":"gpu","wanted":1,"free":0,"offered":0}}"#;
        let text = MINIMAL.replace(r#"{"machine_of":{"peer":"b.service"}}"#, refusal);
        assert!(matches!(decode_reason(text.as_bytes()), Err(CodecError::Damaged(_))));
    }
}

//! Pure: the wire form of a reason.

use fleet_core::{MachineId, Reason, Refusal, Tally};
use fleet_unitfile::UnitName;
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};

#[derive(Serialize, Deserialize)]
struct WireReason {
    v: u32,
    reason: WireWhy,
}

wire!(WireReason);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireWhy {
    NoMachines,
    NoMachineFits { machines: u32, tallies: Vec<WireTally> },
    NoMachineFitsGroup { group: Vec<String>, machines: u32, tallies: Vec<WireTally> },
    PeerUnknown { peer: String },
    PeerInactive { peer: String },
    PeersApart { one: (String, String), other: (String, String) },
    Cycle { units: Vec<String> },
}

#[derive(Serialize, Deserialize)]
struct WireTally {
    machines: u32,
    example: String,
    refusal: WireRefusal,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireRefusal {
    MachineId { wanted: String },
    MachineMetadata { key: String, wanted: Vec<String>, found: Option<String> },
    MachineOf { peer: String },
    Conflicts { with: String, pattern: String, theirs: bool },
    Replaces { with: String, theirs: bool },
}

pub(crate) fn encode_reason(reason: &Reason) -> Result<Vec<u8>, CodecError> {
    Ok(encode(&WireReason { v: FORMAT, reason: why_to_wire(reason)? }))
}

pub(crate) fn decode_reason(bytes: &[u8]) -> Result<Reason, CodecError> {
    why_from_wire(decode::<WireReason>(bytes)?.reason)
}

fn why_to_wire(reason: &Reason) -> Result<WireWhy, CodecError> {
    let at = |place: &(UnitName, MachineId)| (place.0.to_string(), place.1.to_string());
    Ok(match reason {
        Reason::NoMachines => WireWhy::NoMachines,
        Reason::NoMachineFits { machines, tallies } => {
            WireWhy::NoMachineFits { machines: *machines, tallies: tallies_to_wire(tallies)? }
        }
        Reason::NoMachineFitsGroup { group, machines, tallies } => {
            let tallies = tallies_to_wire(tallies)?;
            WireWhy::NoMachineFitsGroup { group: texts(group), machines: *machines, tallies }
        }
        Reason::PeerUnknown { peer } => WireWhy::PeerUnknown { peer: peer.to_string() },
        Reason::PeerInactive { peer } => WireWhy::PeerInactive { peer: peer.to_string() },
        Reason::PeersApart { one, other } => WireWhy::PeersApart { one: at(one), other: at(other) },
        Reason::Cycle { units } => WireWhy::Cycle { units: texts(units) },
        _ => return Err(CodecError::Unsupported("a reason of this kind")),
    })
}

fn why_from_wire(wire: WireWhy) -> Result<Reason, CodecError> {
    let at = |(unit, machine): (String, String)| Ok((name(&unit)?, id(&machine)?));
    Ok(match wire {
        WireWhy::NoMachines => Reason::NoMachines,
        WireWhy::NoMachineFits { machines, tallies } => {
            Reason::NoMachineFits { machines, tallies: tallies_from_wire(tallies)? }
        }
        WireWhy::NoMachineFitsGroup { group, machines, tallies } => {
            let tallies = tallies_from_wire(tallies)?;
            Reason::NoMachineFitsGroup { group: names(&group)?, machines, tallies }
        }
        WireWhy::PeerUnknown { peer } => Reason::PeerUnknown { peer: name(&peer)? },
        WireWhy::PeerInactive { peer } => Reason::PeerInactive { peer: name(&peer)? },
        WireWhy::PeersApart { one, other } => {
            Reason::PeersApart { one: at(one)?, other: at(other)? }
        }
        WireWhy::Cycle { units } => Reason::Cycle { units: names(&units)? },
    })
}

fn tallies_to_wire(tallies: &[Tally]) -> Result<Vec<WireTally>, CodecError> {
    let to_wire = |tally: &Tally| {
        let refusal = refusal_to_wire(&tally.refusal)?;
        Ok(WireTally { machines: tally.machines, example: tally.example.to_string(), refusal })
    };
    tallies.iter().map(to_wire).collect()
}

fn tallies_from_wire(tallies: Vec<WireTally>) -> Result<Vec<Tally>, CodecError> {
    let from_wire = |wire: WireTally| {
        let refusal = refusal_from_wire(wire.refusal)?;
        Ok(Tally { machines: wire.machines, example: id(&wire.example)?, refusal })
    };
    tallies.into_iter().map(from_wire).collect()
}

fn refusal_to_wire(refusal: &Refusal) -> Result<WireRefusal, CodecError> {
    Ok(match refusal {
        Refusal::MachineId { wanted } => WireRefusal::MachineId { wanted: wanted.to_string() },
        Refusal::MachineMetadata { key, wanted, found } => WireRefusal::MachineMetadata {
            key: key.clone(),
            wanted: wanted.clone(),
            found: found.clone(),
        },
        Refusal::MachineOf { peer } => WireRefusal::MachineOf { peer: peer.to_string() },
        Refusal::Conflicts { with, pattern, theirs } => WireRefusal::Conflicts {
            with: with.to_string(),
            pattern: pattern.to_string(),
            theirs: *theirs,
        },
        Refusal::Replaces { with, theirs } => {
            WireRefusal::Replaces { with: with.to_string(), theirs: *theirs }
        }
        _ => return Err(CodecError::Unsupported("a refusal of this kind")),
    })
}

fn refusal_from_wire(wire: WireRefusal) -> Result<Refusal, CodecError> {
    Ok(match wire {
        WireRefusal::MachineId { wanted } => Refusal::MachineId { wanted: id(&wanted)? },
        WireRefusal::MachineMetadata { key, wanted, found } => {
            Refusal::MachineMetadata { key, wanted, found }
        }
        WireRefusal::MachineOf { peer } => Refusal::MachineOf { peer: name(&peer)? },
        WireRefusal::Conflicts { with, pattern, theirs } => {
            let pattern = parse(&pattern, "a pattern")?;
            Refusal::Conflicts { with: name(&with)?, pattern, theirs }
        }
        WireRefusal::Replaces { with, theirs } => Refusal::Replaces { with: name(&with)?, theirs },
    })
}

fn texts(units: &[UnitName]) -> Vec<String> {
    units.iter().map(ToString::to_string).collect()
}

fn names(texts: &[String]) -> Result<Vec<UnitName>, CodecError> {
    texts.iter().map(|text| name(text)).collect()
}

fn name(text: &str) -> Result<UnitName, CodecError> {
    parse(text, "a unit name")
}

fn id(text: &str) -> Result<MachineId, CodecError> {
    parse(text, "a machine ID")
}

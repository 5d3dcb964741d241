//! Pure: the wire form of a refusal.

use fleet_core::{Refusal, Resource};
use serde::{Deserialize, Serialize};

use super::reason::{id, name, peer};
use super::{CodecError, parse};

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

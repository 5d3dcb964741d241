//! Pure: the lines of an export, and what they say.
//!
//! An export is text: one JSON document a line. The header comes first, then the metadata that was
//! set at run time, by machine and key, then the intents by machine, then the units by name, then
//! the units that cannot be understood, by name, and the end last. So one cluster always gives the
//! same bytes. An export of another version may have nothing in common but the header's `kind`,
//! `format` and `version`; it is refused by its version.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::{Epoch, Generation, Intent, MachineId, Revision, TargetState};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};
use serde::{Deserialize, Serialize};

/// What the header says the format is.
pub(super) const FORMAT: &str = "fleet-export";

/// The version of the format that is written.
pub(super) const VERSION: u32 = 2;

/// No number in an export is larger: JSON is read by programs that know no larger one.
const MAX_NUMBER: u64 = 1 << 53;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Line {
    Header {
        format: String,
        version: u32,
        fleet: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lineage: Option<String>,
        revision: u64,
        epochs: u64,
        units: u64,
    },
    Metadata {
        machine: String,
        key: String,
        value: String,
    },
    Intent {
        machine: String,
        intent: String,
        #[serde(default, rename = "minAvailable", skip_serializing_if = "Option::is_none")]
        min_available: Option<u32>,
    },
    Unit {
        unit: String,
        hash: String,
        desired: String,
        generation: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        #[serde(default, rename = "sourceBase64", skip_serializing_if = "Option::is_none")]
        source_base64: Option<String>,
    },
    Fault {
        unit: String,
        problem: String,
    },
    End {
        units: u64,
        metadata: u64,
        intents: u64,
        faults: u64,
        content: String,
        sha256: String,
    },
}

/// What an export says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportHeader {
    /// The version of fleet that wrote it.
    pub fleet: String,
    /// Which unbroken history of revisions it is of, if the store said so.
    pub lineage: Option<String>,
    /// The revision that it shows.
    pub revision: Revision,
    /// No placement of the cluster was made in a higher epoch until then.
    pub max_epoch: Epoch,
    /// How many units it holds.
    pub units: u64,
}

/// What an export says when it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportEnd {
    /// How many units it holds.
    pub units: u64,
    /// How many pairs of metadata it holds.
    pub metadata: u64,
    /// Of how many machines it says what is to become of them.
    pub intents: u64,
    /// How many stored units could not be understood, so that it only names them.
    pub faults: u64,
    /// The SHA-256 of what is wanted: metadata, intents, and units with their texts and desired
    /// states. Two exports of the same content have the same, wherever their units are.
    pub content: String,
    /// The SHA-256 of all lines before the last one.
    pub sha256: String,
}

/// One thing that an export holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportItem {
    /// A pair of metadata that was set at run time.
    Metadata(ExportedMetadata),
    /// What is to become of a machine.
    Intent(ExportedIntent),
    /// A unit.
    Unit(ExportedUnit),
    /// A unit that could not be understood where the export was made.
    Fault {
        /// Its name.
        unit: UnitName,
        /// What was wrong with it.
        problem: String,
    },
}

/// A pair of metadata that was set at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedMetadata {
    /// The machine.
    pub machine: MachineId,
    /// The key.
    pub key: String,
    /// The value; an empty one hides the key of the machine's configuration.
    pub value: String,
}

/// What people said is to become of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedIntent {
    /// The machine.
    pub machine: MachineId,
    /// What is to become of it.
    pub intent: Intent,
}

/// A unit as an export holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedUnit {
    /// Its name.
    pub name: UnitName,
    /// Its unit file, byte for byte.
    pub source: Vec<u8>,
    /// The state that a person wants it to be in.
    pub desired: TargetState,
    /// How often a restart of it was requested.
    pub generation: Generation,
    /// The machine that it is placed on, if it is.
    pub machine: Option<MachineId>,
}

/// What a line says.
pub(super) enum ParsedLine {
    Header(ExportHeader),
    Item(ExportItem),
    End(ExportEnd),
}

impl Line {
    /// The line with its end.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("text and numbers, written to memory");
        bytes.push(b'\n');
        bytes
    }

    /// The line of an intent.
    pub(super) fn of_intent(machine: &MachineId, intent: Intent) -> Self {
        Self::Intent {
            machine: machine.to_string(),
            intent: intent_keyword(intent).to_owned(),
            min_available: intent.min_available(),
        }
    }

    /// The line of a unit.
    pub(super) fn of_unit(unit: &fleet_core::Unit, machine: Option<&MachineId>) -> Self {
        let source = unit.file.source_str();
        let encoded = || STANDARD.encode(unit.file.source());
        Self::Unit {
            unit: unit.name.to_string(),
            hash: unit.hash().to_string(),
            desired: unit.desired.to_string(),
            generation: unit.generation.0,
            machine: machine.map(ToString::to_string),
            source: source.map(str::to_owned),
            source_base64: source.is_none().then(encoded),
        }
    }

    /// What the line says; in the error, what is wrong with it.
    pub(super) fn read(self) -> Result<ParsedLine, String> {
        Ok(match self {
            Self::Header { fleet, lineage, revision, epochs, units, .. } => {
                let revision = Revision(check_number("revision", revision)?);
                let max_epoch = Epoch(check_number("epochs", epochs)?);
                ParsedLine::Header(ExportHeader { fleet, lineage, revision, max_epoch, units })
            }
            Self::Metadata { machine, key, value } => {
                let machine = parse("machine", &machine)?;
                ParsedLine::Item(ExportItem::Metadata(ExportedMetadata { machine, key, value }))
            }
            Self::Intent { machine, intent, min_available } => {
                let (machine, intent) =
                    (parse("machine", &machine)?, parse_intent(&intent, min_available)?);
                ParsedLine::Item(ExportItem::Intent(ExportedIntent { machine, intent }))
            }
            Self::Fault { unit, problem } => {
                ParsedLine::Item(ExportItem::Fault { unit: parse("unit", &unit)?, problem })
            }
            Self::End { units, metadata, intents, faults, content, sha256 } => {
                ParsedLine::End(ExportEnd { units, metadata, intents, faults, content, sha256 })
            }
            Self::Unit { unit, hash, desired, generation, machine, source, source_base64 } => {
                let unit = ExportedUnit {
                    name: parse("unit", &unit)?,
                    source: decode(source, source_base64)?,
                    desired: parse("desired", &desired)?,
                    generation: Generation(check_number("generation", generation)?),
                    machine: machine.map(|id| parse("machine", &id)).transpose()?,
                };
                check_hash(&unit, &hash)?;
                ParsedLine::Item(ExportItem::Unit(unit))
            }
        })
    }
}

pub(super) fn intent_keyword(intent: Intent) -> &'static str {
    match intent {
        Intent::Cordoned => "cordoned",
        Intent::Drained { .. } => "drained",
    }
}

fn parse_intent(intent: &str, min_available: Option<u32>) -> Result<Intent, String> {
    match (intent, min_available) {
        ("cordoned", None) => Ok(Intent::Cordoned),
        ("drained", Some(min_available)) => Ok(Intent::Drained { min_available }),
        _ => Err("intent: it is \"cordoned\", or \"drained\" with minAvailable".to_owned()),
    }
}

/// Reads a field out of its text.
fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: &str,
) -> Result<T, String> {
    text.parse().map_err(|error| format!("{field}: {error}"))
}

fn check_number(field: &str, number: u64) -> Result<u64, String> {
    match number {
        0..=MAX_NUMBER => Ok(number),
        _ => Err(format!("{field}: {number} is larger than any such number")),
    }
}

fn decode(source: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (source, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(text)) => {
            STANDARD.decode(text).map_err(|error| format!("sourceBase64: {error}"))
        }
        _ => Err("a unit has either source or sourceBase64".to_owned()),
    }
}

fn check_hash(unit: &ExportedUnit, hash: &str) -> Result<(), String> {
    let (file, _) = UnitFile::parse_collecting(&unit.source);
    let hash: UnitHash = parse("hash", hash)?;
    match file.hash() {
        own if own == hash => Ok(()),
        own => Err(format!("hash: the text of {} has {own}, and not {hash}", unit.name)),
    }
}

//! Pure: the lines of an export, and its checksums.
//!
//! An export is text with one JSON document per line. Equal clusters give equal bytes, because the
//! order of the lines is fixed:
//!
//! 1. the header
//! 2. the run-time metadata, by machine and key
//! 3. the intents, by machine
//! 4. the units, by name
//! 5. the unreadable units, by name
//! 6. the end
//!
//! All versions of the format have the header's `kind`, `format` and `version` in common. So an
//! export of another version is recognized and refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::{Epoch, Generation, Intent, MachineId, Revision, TargetState};
use fleet_unitfile::{UnitFile, UnitHash, UnitName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Value of the header's `format`.
pub(super) const FORMAT: &str = "fleet-export";

/// Version of the format.
pub(super) const VERSION: u32 = 2;

/// Largest number in an export, because many JSON parsers cannot represent larger ones.
const MAX_NUMBER: u64 = 1 << 53;

/// One line of an export.
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
        #[serde(default, rename = "keepUp", skip_serializing_if = "Option::is_none")]
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

/// Header of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportHeader {
    /// Version of fleet that wrote the export.
    pub fleet: String,
    /// Lineage of the store, if it had one.
    pub lineage: Option<String>,
    /// Revision of the exported state.
    pub revision: Revision,
    /// Upper bound for the epochs of the cluster's placements at that revision.
    pub max_epoch: Epoch,
    /// Number of units in the export.
    pub units: u64,
}

/// Last line of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportEnd {
    /// Number of units.
    pub units: u64,
    /// Number of metadata entries.
    pub metadata: u64,
    /// Number of intents.
    pub intents: u64,
    /// Number of stored units that were unreadable and are only named.
    pub faults: u64,
    /// SHA-256 of the desired state: the metadata, the intents, and the units with their files and
    /// desired states. It does not depend on placements.
    pub content: String,
    /// The SHA-256 of all lines before the last one.
    pub sha256: String,
}

/// An object in an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportItem {
    /// A run-time metadata entry.
    Metadata(ExportedMetadata),
    /// An intent for a machine.
    Intent(ExportedIntent),
    /// A unit.
    Unit(ExportedUnit),
    /// A unit that was unreadable when the export was made.
    Fault {
        /// Name of the unit.
        unit: UnitName,
        /// Problem with the stored unit.
        problem: String,
    },
}

/// A run-time metadata entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedMetadata {
    /// The machine.
    pub machine: MachineId,
    /// The key.
    pub key: String,
    /// Value; an empty one hides the key of the machine's configuration.
    pub value: String,
}

/// An operator's intent for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedIntent {
    /// The machine.
    pub machine: MachineId,
    /// The intent.
    pub intent: Intent,
}

/// A unit in an export.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedUnit {
    /// Name of the unit.
    pub name: UnitName,
    /// Unit file, byte for byte.
    pub source: Vec<u8>,
    /// Desired state.
    pub desired: TargetState,
    /// Number of requested restarts.
    pub generation: Generation,
    /// Machine that it is placed on, if any.
    pub machine: Option<MachineId>,
}

/// A parsed line.
pub(super) enum ParsedLine {
    Header(ExportHeader),
    Item(ExportItem),
    End(ExportEnd),
}

impl Line {
    /// Returns the line with its line end.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("lines contain only text and numbers");
        bytes.push(b'\n');
        bytes
    }

    /// Creates the line of an intent.
    pub(super) fn of_intent(machine: &MachineId, intent: Intent) -> Self {
        Self::Intent {
            machine: machine.to_string(),
            intent: intent_keyword(intent).to_owned(),
            min_available: intent.min_available(),
        }
    }

    /// Creates the line of a unit.
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

    /// Converts the line, or returns its problem.
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
        _ => Err("intent: expected \"cordoned\", or \"drained\" with keepUp".to_owned()),
    }
}

/// Parses a field.
fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: &str,
) -> Result<T, String> {
    text.parse().map_err(|error| format!("{field}: {error}"))
}

fn check_number(field: &str, number: u64) -> Result<u64, String> {
    match number {
        0..=MAX_NUMBER => Ok(number),
        _ => Err(format!("{field}: {number} is larger than 2^53")),
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
        own => Err(format!("hash: the source of {} has hash {own}, not {hash}", unit.name)),
    }
}

/// An incremental SHA-256.
#[derive(Debug, Clone, Default)]
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest in lower-case hexadecimal.
    pub(super) fn finish(self) -> String {
        use std::fmt::Write as _;
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _never = write!(text, "{byte:02x}");
            text
        })
    }
}

/// Digest of a cluster's desired state: the run-time metadata, the intents, and the units with
/// their files and desired states. It does not depend on placements or on the store.
#[derive(Debug, Clone, Default)]
pub(super) struct ContentDigest(Digest);

impl ContentDigest {
    pub(super) fn metadata(&mut self, machine: &str, key: &str, value: &str) {
        self.fields(&[b"metadata", machine.as_bytes(), key.as_bytes(), value.as_bytes()]);
    }

    pub(super) fn intent(&mut self, machine: &str, intent: Intent) {
        let min_available =
            intent.min_available().map(|number| number.to_string()).unwrap_or_default();
        let fields = ["intent", machine, intent_keyword(intent), &min_available];
        self.fields(&fields.map(str::as_bytes));
    }

    pub(super) fn unit(&mut self, name: &str, desired: TargetState, source: &[u8]) {
        self.fields(&[b"unit", name.as_bytes(), desired.as_str().as_bytes(), source]);
    }

    pub(super) fn finish(self) -> String {
        self.0.finish()
    }

    /// Hashes each field after its length, so different lists of fields cannot collide.
    fn fields(&mut self, fields: &[&[u8]]) {
        for field in fields {
            self.0.update(&(field.len() as u64).to_be_bytes());
            self.0.update(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_other_tools() {
        let mut digest = Digest::default();
        digest.update(b"ab");
        digest.update(b"c");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.finish(), known);
    }

    #[test]
    fn content_digest_depends_on_every_field() {
        let of = |fields: [&str; 3]| {
            let mut content = ContentDigest::default();
            content.metadata(fields[0], fields[1], fields[2]);
            content.finish()
        };
        assert_ne!(of(["m", "ab", "c"]), of(["m", "a", "bc"]));
        assert_eq!(of(["m", "ab", "c"]), of(["m", "ab", "c"]));
    }
}

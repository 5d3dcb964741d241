//! Revisions of a unit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleet_core::Timestamp;
use fleet_store::registry::UnitRevision;
use fleet_unitfile::UnitFile;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// Revisions of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct UnitRevisions {
    /// The revisions, in the order of their numbers. The last one is the current one.
    pub revisions: Vec<UnitRevisionEntity>,
}

/// A file that a unit has or had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnitRevisionEntity {
    /// Hash of the unit file.
    pub hash: String,
    /// Number of the revision, counted from 1.
    pub number: u64,
    /// The unit file as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The unit file in base64. Replaces `source` if the file is not valid UTF-8.
    #[serde(rename = "sourceBase64", skip_serializing_if = "Option::is_none")]
    pub source_base64: Option<String>,
    /// Time of the write by the clock of the daemon that made it. Missing if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written_at: Option<Time>,
}

impl From<UnitRevision> for UnitRevisionEntity {
    fn from(revision: UnitRevision) -> Self {
        let hash = UnitFile::parse_collecting(&revision.source).0.hash().to_string();
        let written_at = revision.written_at.map(|millis| Timestamp::from_millis(millis).into());
        let number = revision.number;
        let (source, source_base64) = match String::from_utf8(revision.source) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
        };
        Self { hash, number, source, source_base64, written_at }
    }
}

//! Unit upload.

use fleet_core::TargetState;
use fleet_unitfile::UnitFile;
use hyper::header::{HeaderName, HeaderValue, IF_NONE_MATCH};

use crate::wire::PutUnit;

/// A unit to create, or new content for an existing unit.
#[derive(Debug, Clone)]
pub struct UnitUpload {
    /// The unit file.
    pub file: UnitFile,
    /// The desired state. If `None`, an existing unit keeps its desired state, and a new unit
    /// becomes inactive.
    pub desired: Option<TargetState>,
    /// Whether an existing unit must stay unchanged.
    pub create_only: bool,
}

impl UnitUpload {
    pub(super) fn entity(&self) -> PutUnit {
        let (source, source_base64) = match self.file.source_str() {
            Some(text) => (Some(text.to_owned()), None),
            None => (None, Some(base64_of(self.file.source()))),
        };
        let desired_state = self.desired.map(|desired| desired.to_string());
        PutUnit { desired_state, source, source_base64, ..PutUnit::default() }
    }

    pub(super) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        self.create_only.then_some((IF_NONE_MATCH, HeaderValue::from_static("*")))
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

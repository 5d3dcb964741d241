//! Pure: what came of an import.

use std::fmt;

/// What came of an import, or would come of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// How many units were created.
    pub created: u64,
    /// How many took the location of another of the same name.
    pub replaced: u64,
    /// How many were there already, with the same content and desired state.
    pub unchanged: u64,
    /// What was refused, in order of names. Unless it was to be left out, nothing was
    /// written if there is any.
    pub refused: Vec<RefusedImport>,
    /// How many pairs of metadata were set.
    pub metadata: u64,
    /// Of how many machines it was noted what is to become of them.
    pub intents: u64,
    /// How many units stayed on the machine that the file says.
    pub placements_kept: u64,
    /// How many units have a machine in the file, and wait for the engine to choose one.
    pub rescheduled: u64,
    /// Why placements were left to the engine, if any was.
    pub reschedule_reason: Option<RescheduleReason>,
    /// The SHA-256 of what was imported, as an export counts it.
    pub content: String,
    /// What was read back and is not as it was written; nothing if it was not read back.
    pub mismatches: Option<Vec<String>>,
}

/// Something in a file that cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedImport {
    /// Where in the file it is.
    pub location: String,
    /// The unit, or the metadata.
    pub name: String,
    /// Each thing that is wrong with it.
    pub reasons: Vec<String>,
}

impl RefusedImport {
    pub(super) fn new(location: String, name: String, reason: impl fmt::Display) -> Self {
        Self { location, name, reasons: vec![reason.to_string()] }
    }
}

/// Why the engine of the target has to choose machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleReason {
    /// The target has units of its own, so machines may not fit any more.
    OwnUnits(usize),
    /// An engine leads there, and decides.
    EngineLeads,
    /// A daemon was asked, and only its engine decides.
    ThroughDaemon,
}

impl fmt::Display for RescheduleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnUnits(1) => f.write_str("the cluster has a unit of its own"),
            Self::OwnUnits(count) => write!(f, "the cluster has {count} units of its own"),
            Self::EngineLeads => f.write_str("an engine leads there, and chooses"),
            Self::ThroughDaemon => {
                f.write_str("a running daemon was asked, and its engine chooses")
            }
        }
    }
}

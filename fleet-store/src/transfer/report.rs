//! Pure: the report of an import.

use std::fmt;

/// Result of an import, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Number of created units.
    pub created: u64,
    /// Number of replaced units.
    pub replaced: u64,
    /// Number of units that existed with the same content and desired state.
    pub unchanged: u64,
    /// Refused objects, ordered by name. If there are any, nothing is written, unless the options
    /// allow skipping refused objects.
    pub refused: Vec<RefusedImport>,
    /// Warnings about the files of created and replaced units, as on a direct submission.
    pub warnings: Vec<ImportWarning>,
    /// Number of metadata entries set.
    pub metadata: u64,
    /// Number of intents set.
    pub intents: u64,
    /// Number of units that kept the machine of the file.
    pub placements_kept: u64,
    /// Number of units that have a machine in the file but do not keep it, because the engine
    /// chooses one.
    pub rescheduled: u64,
    /// Reason for the engine to choose machines, if there are such units.
    pub reschedule_reason: Option<RescheduleReason>,
    /// SHA-256 of the imported content, computed as in an export.
    pub content: String,
    /// Names of objects that were different when they were read back. `None` if nothing was read
    /// back.
    pub mismatches: Option<Vec<String>>,
}

/// An object in a file that cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedImport {
    /// Location in the file.
    pub location: String,
    /// Name of the unit, metadata entry or machine.
    pub name: String,
    /// All problems with the object.
    pub reasons: Vec<String>,
}

/// A warning about the file of an imported unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportWarning {
    /// Location in the file.
    pub location: String,
    /// Name of the unit.
    pub unit: String,
    /// Position in the unit file, the problem, and its remedy.
    pub message: String,
}

impl RefusedImport {
    pub(super) fn new(location: String, name: String, reason: impl fmt::Display) -> Self {
        Self { location, name, reasons: vec![reason.to_string()] }
    }
}

/// Reason for the target's engine to choose machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleReason {
    /// The target has units that are missing in the file or different from the file's. So the units
    /// of the file may no longer fit on their machines. The number counts the units of the target.
    OwnUnits(usize),
    /// An engine leads the target, and decides.
    EngineLeads,
    /// The import went through a daemon, and only its engine decides.
    ThroughDaemon,
}

impl fmt::Display for RescheduleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnUnits(1) => f.write_str("the cluster has a unit of its own"),
            Self::OwnUnits(count) => write!(f, "the cluster has {count} units of its own"),
            Self::EngineLeads => {
                f.write_str("an engine leads the cluster and chooses the machines")
            }
            Self::ThroughDaemon => f.write_str("the daemon's engine chooses the machines"),
        }
    }
}

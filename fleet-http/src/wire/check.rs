//! Checks of unit files by the service managers of machines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PutUnit;

/// Service manager of a machine, with the settings that determine which unit files it refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = ServiceManager)]
#[non_exhaustive]
pub struct ServiceManagerEntity {
    /// Unsupported options, and groups of them, without which it runs units.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// `native` or `systemd`.
    pub kind: String,
    /// Whether it runs as root. Set only for native ones.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root: bool,
}

/// Body of `POST /check`: the unit files to check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckRequest {
    /// Units with their files. Each must contain its name. A unit without a file must exist, and
    /// its file is checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<PutUnit>,
}

/// Verdicts of the machines' service managers on unit files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct CheckReport {
    /// The units of the request, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitCheck>,
}

/// Verdict on one unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct UnitCheck {
    /// Findings, ordered by severity and line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<UnitFinding>,
    /// Number of present machines that pass the unit's filters. Machines whose service manager is
    /// systemd, unknown, or of another version of fleet are included, and have no findings.
    pub machines: usize,
    /// The unit's name.
    pub name: String,
    /// Number of these machines that would refuse the file.
    pub refused_by: usize,
}

impl UnitCheck {
    /// Returns whether every machine that could run the unit would refuse its file.
    #[must_use]
    pub fn is_refused_everywhere(&self) -> bool {
        self.refused_by > 0 && self.refused_by == self.machines
    }
}

/// A finding in a unit file.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(default)]
#[non_exhaustive]
pub struct UnitFinding {
    /// `error`: the machines refuse the file. `warning`: they run the unit without some options.
    pub severity: String,
    /// Line, counted from one; zero if the whole file is concerned.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub line: usize,
    /// The finding with its remedy, as one sentence.
    pub message: String,
    /// Number of machines that it applies to.
    pub machines: usize,
}

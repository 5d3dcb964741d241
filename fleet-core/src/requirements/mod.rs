//! Requirements of a unit: its `[X-Fleet]` section, parsed and checked.

mod error;
mod errors;
mod option;
mod parse;
mod preferences;
mod scalars;
mod validate;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::{UnitFile, UnitName};

use crate::pattern::Peer;
use crate::{Expression, MachineId, Pattern, Resources};

pub use self::errors::{RequirementWarning, RequirementWarningKind};
pub use self::values::MetadataProblem;
pub use error::{RequirementError, RequirementErrorKind};
pub use errors::RequirementErrors;
pub use option::FleetOption;
pub use preferences::{OnPartition, Preference, Reschedule, Spread};
pub use validate::InvalidRequirements;

/// The section of a unit file that fleet reads.
const SECTION: &str = "X-Fleet";

/// A unit's requirements for the machine that runs it.
///
/// Specifiers are expanded with the unit's own name. Each instance of a template therefore has its
/// own requirements.
///
/// The fields may also be set directly, from `Requirements::default()` on.
/// [`validate`](Self::validate) then checks what [`parse`](Self::parse) would refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Requirements {
    /// `Global=`: run on every eligible machine.
    pub global: bool,
    /// `MachineID=`: the only acceptable machine.
    pub machine_id: Option<MachineId>,
    /// `MachineOf=`: peers that must be on the same machine, in the order written.
    pub machine_of: Vec<Peer>,
    /// `MachineMetadata=`: the accepted values of each key.
    pub metadata: BTreeMap<String, BTreeSet<String>>,
    /// `MachineMetadataExpr=`: a condition on the machine's metadata.
    pub metadata_expr: Option<Expression>,
    /// `Conflicts=`: units that must not be on the same machine, in the order written.
    pub conflicts: Vec<Pattern>,
    /// `Replaces=`: units that must leave the machine on which this unit is placed, in the order
    /// written.
    pub replaces: Vec<Pattern>,
    /// `MaxPerMachine=`: maximum number of instances of the unit's template on one machine,
    /// including this unit. The number is at least 1.
    pub max_per_machine: Option<u32>,
    /// `ReserveCPU=`, `ReserveMemory=` and `ReserveDisk=`: resources reserved on the machine.
    pub reserve: Resources,
    /// `Prefer=`: preferred machines, in the order written.
    pub prefer: Vec<Preference>,
    /// `Spread=`: metadata keys by which instances are spread, in the order written. Each key
    /// occurs once.
    pub spread: Vec<Spread>,
    /// `Reschedule=`: the policy after the loss of the machine.
    pub reschedule: Reschedule,
    /// `OnPartition=`: the policy on a partitioned machine.
    pub on_partition: OnPartition,
}

/// Setters, each for one option.
impl Requirements {
    /// Sets `Global=`.
    #[must_use]
    pub fn with_global(self, global: bool) -> Self {
        Self { global, ..self }
    }

    /// Sets `MachineID=`.
    #[must_use]
    pub fn with_machine_id(self, machine_id: impl Into<Option<MachineId>>) -> Self {
        Self { machine_id: machine_id.into(), ..self }
    }

    /// Sets `MachineOf=`.
    #[must_use]
    pub fn with_machine_of(self, machine_of: Vec<Peer>) -> Self {
        Self { machine_of, ..self }
    }

    /// Sets `MachineMetadata=`.
    #[must_use]
    pub fn with_metadata(self, metadata: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self { metadata, ..self }
    }

    /// Sets `MachineMetadataExpr=`.
    #[must_use]
    pub fn with_metadata_expr(self, metadata_expr: impl Into<Option<Expression>>) -> Self {
        Self { metadata_expr: metadata_expr.into(), ..self }
    }

    /// Sets `Conflicts=`.
    #[must_use]
    pub fn with_conflicts(self, conflicts: Vec<Pattern>) -> Self {
        Self { conflicts, ..self }
    }

    /// Sets `Replaces=`.
    #[must_use]
    pub fn with_replaces(self, replaces: Vec<Pattern>) -> Self {
        Self { replaces, ..self }
    }

    /// Sets `MaxPerMachine=`.
    #[must_use]
    pub fn with_max_per_machine(self, max_per_machine: impl Into<Option<u32>>) -> Self {
        Self { max_per_machine: max_per_machine.into(), ..self }
    }

    /// Sets `ReserveCPU=`, `ReserveMemory=` and `ReserveDisk=`.
    #[must_use]
    pub fn with_reserve(self, reserve: Resources) -> Self {
        Self { reserve, ..self }
    }

    /// Sets `Prefer=`.
    #[must_use]
    pub fn with_prefer(self, prefer: Vec<Preference>) -> Self {
        Self { prefer, ..self }
    }

    /// Sets `Spread=`.
    #[must_use]
    pub fn with_spread(self, spread: Vec<Spread>) -> Self {
        Self { spread, ..self }
    }

    /// Sets `Reschedule=`.
    #[must_use]
    pub fn with_reschedule(self, reschedule: Reschedule) -> Self {
        Self { reschedule, ..self }
    }

    /// Sets `OnPartition=`.
    #[must_use]
    pub fn with_on_partition(self, on_partition: OnPartition) -> Self {
        Self { on_partition, ..self }
    }
}

/// The handling of text that fleet v1 silently ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Refuses such text, so that a typo cannot silently remove a requirement.
    #[default]
    Refuse,
    /// Ignores such text with a warning. This applies to unknown options, invalid
    /// `MachineMetadata=` conditions, and invalid patterns.
    Warn,
}

/// Parsed requirements with their warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParsedRequirements {
    /// The requirements.
    pub requirements: Requirements,
    /// The warnings, in source order.
    pub warnings: Vec<RequirementWarning>,
}

impl Requirements {
    /// Parses the requirements of the unit called `name`.
    ///
    /// A line of an option holds one or several values:
    ///
    /// - `MachineMetadataExpr=` and `Prefer=`: always one value, the whole line.
    /// - Unit names and patterns: split at blanks, because they contain none.
    /// - Other options: if the line starts and ends with `"`, split at blanks outside quotes,
    ///   without escapes. Otherwise the line is one value.
    ///
    /// If an option occurs several times, lists grow and expressions are joined by `and`. A later
    /// single value (such as `Global=`) overrides the earlier one, but two different `MachineID=`
    /// are an error. As in systemd, an empty assignment (`Conflicts=`) resets the option, including
    /// values under its deprecated name.
    ///
    /// A template is never placed, and values with `%i`, `%n` or `%N` are known only for its
    /// instances. For a template such values are therefore skipped here; they are parsed and
    /// checked for each instance.
    ///
    /// ```
    /// use fleet_core::{Requirements, Strictness};
    /// use fleet_unitfile::UnitFile;
    ///
    /// let file = UnitFile::parse("[X-Fleet]\nMachineOf=%p.socket\nConflicts=foo@*.service\n")?;
    /// let name = "foo.service".parse()?;
    /// let parsed = Requirements::parse(&name, &file, Strictness::Refuse)?;
    /// assert_eq!(parsed.requirements.machine_of, ["foo.socket"]);
    /// assert!(parsed.warnings.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns all errors in the section, in source order: unknown options, invalid values, and
    /// mutually exclusive options.
    pub fn parse(
        name: &UnitName,
        file: &UnitFile,
        strictness: Strictness,
    ) -> Result<ParsedRequirements, RequirementErrors> {
        let mut reader = parse::SectionReader::new(name, file, strictness);
        reader.read();
        reader.finish()
    }
}

//! What a unit demands of a machine: its `[X-Fleet]` section, typed.

mod error;
mod errors;
mod metadata;
mod option;
mod parse;
mod preferences;
mod report;
mod rules;
mod scalars;
mod values;
mod warning;

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::{UnitFile, UnitName};

use crate::{Expression, MachineId, Pattern, Peer, Resources};

pub use error::{RequirementError, RequirementErrorKind};
pub use errors::RequirementErrors;
pub use metadata::MetadataProblem;
pub use option::FleetOption;
pub use preferences::{OnPartition, Preference, Reschedule, Spread};
pub use warning::{RequirementWarning, RequirementWarningKind};

/// The section of a unit file that speaks to fleet.
const SECTION: &str = "X-Fleet";

/// What a unit demands of the machine that runs it.
///
/// Specifiers are expanded with the unit's own name, so two instances of one template have
/// requirements of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Requirements {
    /// `Global=`: run on every eligible machine.
    pub global: bool,
    /// `MachineID=`: the only machine that will do.
    pub machine_id: Option<MachineId>,
    /// `MachineOf=`: who must be on the same machine, in the order written.
    pub machine_of: Vec<Peer>,
    /// `MachineMetadata=`: for each key the values of which the machine must have one.
    pub metadata: BTreeMap<String, BTreeSet<String>>,
    /// `MachineMetadataExpr=`: what must be true of the machine's metadata.
    pub metadata_expr: Option<Expression>,
    /// `Conflicts=`: units that must not be on the same machine, in the order written.
    pub conflicts: Vec<Pattern>,
    /// `Replaces=`: units that must leave the machine on which this one is placed, in the order
    /// written.
    pub replaces: Vec<Pattern>,
    /// `MaxPerMachine=`: how many instances of the unit's template may be on one machine, itself
    /// included; at least 1.
    pub max_per_machine: Option<u32>,
    /// `ReserveCPU=`, `ReserveMemory=` and `ReserveDisk=`: what the machine must have left.
    pub reserve: Resources,
    /// `Prefer=`: which machines are better, in the order written.
    pub prefer: Vec<Preference>,
    /// `Spread=`: by which metadata keys instances keep apart, each key once, in the order written.
    pub spread: Vec<Spread>,
    /// `Reschedule=`: whether it gets another machine when its own is lost.
    pub reschedule: Reschedule,
    /// `OnPartition=`: what becomes of it on a machine that is cut off.
    pub on_partition: OnPartition,
}

/// What to do about what the old program passed over in silence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Refuse it, so that no demand is lost by a slip of the pen.
    #[default]
    Refuse,
    /// Ignore it as the old program did, and warn: an unknown option, a `MachineMetadata=`
    /// condition that is none, a pattern that is none.
    Warn,
}

/// Requirements that were read, with what a person should know of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedRequirements {
    /// What the unit demands.
    pub requirements: Requirements,
    /// What is odd in the file, in the order of the file.
    pub warnings: Vec<RequirementWarning>,
}

impl Requirements {
    /// Reads what the file of the unit called `name` demands.
    ///
    /// A line that starts and ends with `"` holds several values, split at blanks outside quotes;
    /// there are no escapes. Any other line is one value, except that unit names and patterns are
    /// split at blanks always, since none holds a blank. Options may repeat and add up; of
    /// `Global=` the last one counts. As in systemd, an assignment of nothing (`Conflicts=`) takes
    /// back all that the option was given before it, under its old spelling too.
    ///
    /// A template runs nowhere, and what its values become is known of its instances only. So a
    /// value of a template in which `%i`, `%n` or `%N` stands is left out here, and read and
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
    /// Everything that is wrong with the section, in the order of the file: unknown options, values
    /// that cannot be read, options that cannot be used together.
    pub fn parse(
        name: &UnitName,
        file: &UnitFile,
        strictness: Strictness,
    ) -> Result<ParsedRequirements, RequirementErrors> {
        let mut reader = parse::Reader::new(name, file, strictness);
        reader.read();
        reader.finish()
    }
}

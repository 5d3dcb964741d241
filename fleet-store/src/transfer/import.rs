//! Imports the content of a file, of either kind, into a store, whether daemons run on it or not.
//! Reports what has changed.

use std::io::Read;
use std::time::Duration;
use std::{fmt, io};

use fleet_core::{Epoch, Generation, Intent, MachineId, TargetState};
use fleet_unitfile::UnitName;

use super::export::Export;
use super::line::{ExportEnd, ExportHeader, ExportItem, ExportedUnit};
use super::plan::{ImportAction, ImportOptions, ImportPlan, PlannedUnit};
use super::reader::{ExportError, ExportReader};
use super::v1;
use super::v1::V1DumpError;
use crate::registry::{AdoptedUnit, ExpectUnit, Leadership, Lineage, MetadataChange, NewUnit};
use crate::{Registry, RegistryError};

/// Maximum size of a dump of fleet v1, in bytes. The whole dump is kept in memory.
const MAX_DUMP: u64 = 1 << 30;

/// Size of a read in bytes.
const CHUNK: usize = 64 << 10;

/// Content of a file to import.
#[derive(Debug)]
#[non_exhaustive]
pub struct Import {
    /// Kind of the file.
    pub origin: ImportOrigin,
    /// Run-time metadata, ordered by machine and key.
    pub metadata: Vec<ImportMetadata>,
    /// Intents, ordered by machine.
    pub intents: Vec<ImportIntent>,
    /// Units, ordered by name.
    pub units: Vec<ImportUnit>,
    /// Objects that cannot be imported, with the reasons.
    pub refused: Vec<RefusedImport>,
    /// Remarks for the operator that are not errors, one sentence each.
    pub remarks: Vec<String>,
}

/// Kind of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImportOrigin {
    /// An export.
    Export {
        /// First line of the export.
        header: ExportHeader,
        /// Last line of the export.
        end: ExportEnd,
    },
    /// A dump of the keys of fleet v1.
    V1 {
        /// Common prefix of the keys.
        prefix: String,
    },
}

/// A unit to import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportUnit {
    /// Location in the file.
    pub location: String,
    /// Name of the unit.
    pub name: UnitName,
    /// Unit file.
    pub source: Vec<u8>,
    /// Desired state.
    pub desired: TargetState,
    /// Number of requested restarts.
    pub generation: Generation,
    /// Machine that the unit was placed on, if any.
    pub machine: Option<MachineId>,
}

/// A metadata entry to import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportMetadata {
    /// Location in the file.
    pub location: String,
    /// The machine.
    pub machine: MachineId,
    /// The key.
    pub key: String,
    /// Value; an empty one hides the key.
    pub value: String,
}

/// An intent to import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportIntent {
    /// Location in the file.
    pub location: String,
    /// The machine.
    pub machine: MachineId,
    /// Intent for the machine.
    pub intent: Intent,
}

/// Error of a file that cannot be imported into any cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("the input cannot be read")]
    Read(#[from] io::Error),
    /// The file is an export that is damaged, truncated or of another version.
    #[error("the export cannot be used")]
    Export(#[from] ExportError),
    /// The file is neither an export nor a usable dump of fleet v1.
    #[error("the input is neither a fleetctl export nor an etcd dump (JSON) of fleet v1")]
    V1(#[from] V1DumpError),
}

impl Import {
    /// Returns an upper bound for the epochs of the cluster in the file. It is zero for fleet v1,
    /// which had no epochs.
    #[must_use]
    pub fn max_epoch(&self) -> Epoch {
        match &self.origin {
            ImportOrigin::Export { header, .. } => header.max_epoch,
            ImportOrigin::V1 { .. } => Epoch::ZERO,
        }
    }

    /// Returns the lineage of the cluster in the file, if the file names one.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        match &self.origin {
            ImportOrigin::Export { header, .. } => header.lineage.as_ref()?.parse().ok(),
            ImportOrigin::V1 { .. } => None,
        }
    }

    /// Returns the epoch that all later epochs of `cluster` must exceed. This is
    /// [`max_epoch`](Self::max_epoch). If the file is an earlier export of `cluster` itself, its
    /// epochs are already higher, and the result is zero.
    #[must_use]
    pub fn epoch_to_exceed(&self, cluster: &Export) -> Epoch {
        let own = cluster.lineage.as_ref().map(ToString::to_string);
        let is_own = match &self.origin {
            ImportOrigin::Export { header, .. } => own.is_some() && header.lineage == own,
            ImportOrigin::V1 { .. } => false,
        };
        if is_own && self.max_epoch() <= cluster.max_epoch { Epoch::ZERO } else { self.max_epoch() }
    }

    /// Reads a whole file, which is an export or the keys of fleet v1 as JSON.
    ///
    /// # Errors
    ///
    /// [`ImportError`] when the file is not a valid import. Then no part of it can be used.
    pub fn read(mut from: impl Read) -> Result<Self, ImportError> {
        let mut beginning = Vec::new();
        from.by_ref().take(CHUNK as u64).read_to_end(&mut beginning)?;
        if ExportReader::is_export(&beginning) {
            return read_export(beginning, from);
        }
        let mut text = beginning;
        from.take(MAX_DUMP).read_to_end(&mut text)?;
        if text.len() as u64 > MAX_DUMP {
            return Err(V1DumpError::TooLarge { most: MAX_DUMP }.into());
        }
        Ok(v1::read(&text)?)
    }
}

fn read_export(mut chunk: Vec<u8>, mut from: impl Read) -> Result<Import, ImportError> {
    let mut reader = ExportReader::new();
    let mut items = Vec::new();
    while !chunk.is_empty() {
        reader.push(&chunk, &mut |item, line| items.push((item, line)))?;
        chunk.clear();
        from.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
    }
    let (header, end) = reader.finish()?;
    let mut import = Import::empty(ImportOrigin::Export { header, end });
    items.into_iter().for_each(|(item, line)| import.add(item, line));
    Ok(import)
}

impl Import {
    pub(super) fn empty(origin: ImportOrigin) -> Self {
        let (metadata, intents, units, refused, remarks) = Default::default();
        Self { origin, metadata, intents, units, refused, remarks }
    }

    fn add(&mut self, item: ExportItem, line: u64) {
        let location = format!("line {line}");
        match item {
            ExportItem::Metadata(it) => {
                let (machine, key, value) = (it.machine, it.key, it.value);
                self.metadata.push(ImportMetadata { location, machine, key, value });
            }
            ExportItem::Intent(it) => {
                let (machine, intent) = (it.machine, it.intent);
                self.intents.push(ImportIntent { location, machine, intent });
            }
            ExportItem::Unit(unit) => {
                let ExportedUnit { name, source, desired, generation, machine } = unit;
                let unit = ImportUnit { location, name, source, desired, generation, machine };
                self.units.push(unit);
            }
            ExportItem::Fault { unit, problem } => self.remarks.push(format!(
                "{location}: {unit} is not in the export, because its file could not be read: \
                 {problem}"
            )),
        }
    }
}

/// Identity of the import as a candidate for the leadership.
const CANDIDATE: &str = "fleetctl-import";

/// Time until another leader can follow if the import is interrupted.
const TTL: Duration = Duration::from_secs(60);

/// Number of metadata changes in one step.
const METADATA_BATCH: usize = 64;

/// The cluster in the file.
struct Earlier {
    /// Epoch that all later ones must exceed.
    epochs: Epoch,
    lineage: Option<Lineage>,
}

/// Imports a file into the cluster of `registry`, and reads the result back.
///
/// Everything is checked before the first write. Objects that exist already in the same form are
/// left unchanged, so an interrupted import can be completed by repeating it.
///
/// Placements are kept if the cluster has no units of its own and no other leader. To keep them,
/// the import itself becomes the leader for a while. Its writes of units and placements then have
/// the condition that this leadership lasts. The next leader sees them before it decides anything.
///
/// # Errors
///
/// [`RegistryError::NoLineage`] when the store has no lineage; nothing is imported in that case.
/// After any other [`RegistryError`] some units may be imported. Refused objects are not an error.
pub async fn import(
    registry: &Registry,
    import: Import,
    options: &ImportOptions,
) -> Result<ImportReport, RegistryError> {
    let target = registry.export().await?;
    let earlier = Earlier { epochs: import.epoch_to_exceed(&target), lineage: import.lineage() };
    let plan = ImportPlan::new(import, &target, options);
    if options.dry_run || plan.is_refused(options) {
        let reschedule_reason =
            (plan.own_units > 0).then_some(RescheduleReason::OwnUnits(plan.own_units));
        return Ok(plan.report(reschedule_reason));
    }
    if earlier.epochs > Epoch::ZERO && target.lineage.is_none() {
        return Err(RegistryError::NoLineage);
    }
    set_metadata(registry, &plan.metadata).await?;
    for (machine, intent) in &plan.intents {
        registry.set_intent(machine, Some(*intent)).await?;
    }
    let reschedule_reason = match plan.own_units {
        0 => keep_placements(registry, &plan, &earlier).await?,
        own => Some(RescheduleReason::OwnUnits(own)),
    };
    if reschedule_reason.is_some() {
        registry.raise_epochs(earlier.epochs).await?;
        put_all(registry, &plan).await?;
    }
    let mismatches = plan.mismatches(&registry.export().await?);
    Ok(ImportReport { mismatches: Some(mismatches), ..plan.report(reschedule_reason) })
}

/// Imports all missing units with their placements. If that is not possible, imports none and
/// returns the reason.
async fn keep_placements(
    registry: &Registry,
    plan: &ImportPlan,
    earlier: &Earlier,
) -> Result<Option<RescheduleReason>, RegistryError> {
    let Some(mut leadership) = registry.campaign(&candidate(), TTL).await? else {
        return Ok(Some(RescheduleReason::EngineLeads));
    };
    let kept = lead(registry, plan, &mut leadership, earlier).await;
    if let Err(error) = leadership.resign().await {
        // The leadership expires.
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot give up the leadership of the import: no fleetd leads the cluster until this \
             leadership expires"
        );
    }
    kept
}

/// Adds the missing units with their placements. If the cluster has units of its own, adds none and
/// returns [`RescheduleReason::OwnUnits`].
///
/// The cluster must be read again here, after the election. Before it, another leader could still
/// place units.
async fn lead(
    registry: &Registry,
    plan: &ImportPlan,
    leadership: &mut Leadership,
    earlier: &Earlier,
) -> Result<Option<RescheduleReason>, RegistryError> {
    let target = registry.export().await?.snapshot;
    let own = plan.own_units(&target);
    if own > 0 {
        return Ok(Some(RescheduleReason::OwnUnits(own)));
    }
    let missing = plan.units.iter().filter(|it| target.unit(it.unit.name.as_str()).is_none());
    let adopted = missing.map(|it| AdoptedUnit {
        unit: new_unit(it),
        generation: it.unit.generation,
        machine: it.machine.clone(),
    });
    let adopted: Vec<_> = adopted.collect();
    leadership.raise_epochs(earlier.epochs).await?;
    leadership.adopt(&adopted).await?;
    // Only a complete copy may replace the other cluster: its machines stop all other units.
    if let Some(lineage) = earlier.lineage.as_ref().filter(|_| plan.refused.is_empty()) {
        leadership.succeed(lineage).await?;
    }
    Ok(None)
}

async fn set_metadata(
    registry: &Registry,
    changes: &[MetadataChange],
) -> Result<(), RegistryError> {
    for changes in changes.chunks(METADATA_BATCH) {
        registry.patch_metadata(changes).await?;
    }
    Ok(())
}

async fn put_all(registry: &Registry, plan: &ImportPlan) -> Result<(), RegistryError> {
    for it in plan.new_units() {
        let expect = match it.action {
            ImportAction::Create => ExpectUnit::Absent,
            ImportAction::Replace | ImportAction::Keep => ExpectUnit::Any,
        };
        registry.put_unit(new_unit(it), expect).await?;
    }
    Ok(())
}

fn new_unit(it: &PlannedUnit) -> NewUnit {
    let (name, file) = (it.unit.name.clone(), it.unit.file.clone());
    NewUnit { name, file, desired: it.unit.desired }
}

fn candidate() -> MachineId {
    CANDIDATE.parse().expect("the candidate is a valid machine ID")
}

/// Result of an import, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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

//! Imports into a store directly: for a cluster whose daemons are at rest, and one whose are not.

use std::time::Duration;

use fleet_core::{Epoch, MachineId};

use super::import::{Import, ImportOrigin};
use super::plan::{ImportAction, ImportOptions, ImportPlan, PlannedUnit};
use super::report::{ImportReport, PlacementsLeft};
use crate::{Adopted, ExpectUnit, Leadership, MetadataChange, NewUnit, Registry, RegistryError};

/// Who stands for election while units are brought in.
const CANDIDATE: &str = "fleetctl-import";

/// For how long nobody else leads if the import breaks off.
const TTL: Duration = Duration::from_secs(60);

/// How much metadata is set in one step.
const PAIRS: usize = 64;

/// Brings what a file holds into the cluster of `registry`, and reads it back.
///
/// Everything is checked before the first write. What is there already is left, so an import that
/// broke off is finished by doing it again. Placements are kept if the cluster has no units of its
/// own, and nobody leads it meanwhile but the import itself: all that it writes has its own term as
/// a condition, and whoever leads next sees it before anything is decided.
///
/// # Errors
///
/// [`RegistryError`]; some units may be imported then. What is refused is no error.
pub async fn import(
    registry: &Registry,
    import: Import,
    options: &ImportOptions,
) -> Result<ImportReport, RegistryError> {
    // Elected before the cluster is read: from then on nobody else places anything.
    let mut leadership = match options.dry_run {
        true => None,
        false => registry.campaign(&candidate(), TTL).await?,
    };
    let result = import_led(registry, import, options, leadership.as_mut()).await;
    if let Some(leadership) = leadership
        && let Err(error) = leadership.resign().await
    {
        // Its time ends it.
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot resign");
    }
    result
}

async fn import_led(
    registry: &Registry,
    import: Import,
    options: &ImportOptions,
    leadership: Option<&mut Leadership>,
) -> Result<ImportReport, RegistryError> {
    let epochs = match &import.origin {
        ImportOrigin::Export { header, .. } => header.epochs,
        ImportOrigin::V1 { .. } => Epoch::ZERO,
    };
    let plan = ImportPlan::new(import, &registry.export().await?.snapshot, options);
    let why_left = match (plan.own, &leadership) {
        (0, None) if !options.dry_run => Some(PlacementsLeft::EngineLeads),
        (0, _) => None,
        (own, _) => Some(PlacementsLeft::OwnUnits(own)),
    };
    let report = plan.report(why_left);
    if options.dry_run || plan.is_refused(options) {
        return Ok(report);
    }
    set_metadata(registry, &plan.metadata).await?;
    match leadership.filter(|_| why_left.is_none()) {
        Some(leadership) => {
            leadership.raise_epochs(epochs).await?;
            leadership.adopt(&adopted(&plan)).await?;
        }
        None => put_all(registry, &plan).await?,
    }
    let differing = plan.differing(&registry.export().await?.snapshot);
    Ok(ImportReport { differing: Some(differing), ..report })
}

async fn set_metadata(
    registry: &Registry,
    changes: &[MetadataChange],
) -> Result<(), RegistryError> {
    for changes in changes.chunks(PAIRS) {
        registry.patch_metadata(changes).await?;
    }
    Ok(())
}

/// The units, for a cluster that has none of its own: so none is to be replaced.
fn adopted(plan: &ImportPlan) -> Vec<Adopted> {
    let adopted = plan.new_units().map(|it| Adopted {
        unit: new_unit(it),
        generation: it.unit.generation,
        machine: it.machine.clone(),
    });
    adopted.collect()
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
    CANDIDATE.parse().expect("letters and a dash")
}

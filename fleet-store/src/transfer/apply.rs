//! Imports into a store directly: for a cluster whose daemons are at rest, and one whose are not.

use std::time::Duration;

use fleet_core::{Epoch, MachineId};

use super::import::Import;
use super::plan::{ImportAction, ImportOptions, ImportPlan, PlannedUnit};
use super::report::{ImportReport, RescheduleReason};
use crate::{
    AdoptedUnit, ExpectUnit, Leadership, MetadataChange, NewUnit, Registry, RegistryError,
};

/// Who stands for election while units are brought in.
const CANDIDATE: &str = "fleetctl-import";

/// For how long nobody else leads if the import breaks off.
const TTL: Duration = Duration::from_secs(60);

/// How much metadata is set in one step.
const METADATA_BATCH: usize = 64;

/// Brings what a file holds into the cluster of `registry`, and reads it back.
///
/// Everything is checked before the first write. What is there already is left, so an import that
/// broke off is finished by doing it again. Placements are kept if the cluster has no units of its
/// own, and nobody leads it meanwhile but the import itself: all that it writes has its own term as
/// a condition, and whoever leads next sees it before anything is decided.
///
/// # Errors
///
/// [`RegistryError::NoLineage`], and nothing is imported; any other [`RegistryError`], and some
/// units may be. What is refused is no error.
pub async fn import(
    registry: &Registry,
    import: Import,
    options: &ImportOptions,
) -> Result<ImportReport, RegistryError> {
    let target = registry.export().await?;
    let epochs = import.epoch_to_exceed(&target);
    let plan = ImportPlan::new(import, &target, options);
    if options.dry_run || plan.is_refused(options) {
        let reschedule_reason =
            (plan.own_units > 0).then_some(RescheduleReason::OwnUnits(plan.own_units));
        return Ok(plan.report(reschedule_reason));
    }
    if epochs > Epoch::ZERO && target.lineage.is_none() {
        return Err(RegistryError::NoLineage);
    }
    set_metadata(registry, &plan.metadata).await?;
    for (machine, intent) in &plan.intents {
        registry.set_intent(machine, Some(*intent)).await?;
    }
    let reschedule_reason = match plan.own_units {
        0 => keep_placements(registry, &plan, epochs).await?,
        own => Some(RescheduleReason::OwnUnits(own)),
    };
    if reschedule_reason.is_some() {
        registry.raise_epochs(epochs).await?;
        put_all(registry, &plan).await?;
    }
    let mismatches = plan.mismatches(&registry.export().await?);
    Ok(ImportReport { mismatches: Some(mismatches), ..plan.report(reschedule_reason) })
}

/// Brings in all units that are not there, with their machines; or says why it did nothing.
async fn keep_placements(
    registry: &Registry,
    plan: &ImportPlan,
    epochs: Epoch,
) -> Result<Option<RescheduleReason>, RegistryError> {
    let Some(mut leadership) = registry.campaign(&candidate(), TTL).await? else {
        return Ok(Some(RescheduleReason::EngineLeads));
    };
    let kept = lead(registry, plan, &mut leadership, epochs).await;
    if let Err(error) = leadership.resign().await {
        // Its time ends it.
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot resign");
    }
    kept
}

/// Nobody else places anything from the election on, so what is looked at now decides.
async fn lead(
    registry: &Registry,
    plan: &ImportPlan,
    leadership: &mut Leadership,
    epochs: Epoch,
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
    leadership.raise_epochs(epochs).await?;
    leadership.adopt(&adopted).await?;
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
    CANDIDATE.parse().expect("letters and a dash")
}

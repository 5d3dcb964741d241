//! Detects units of the machine itself, which fleet must not touch.

use std::path::{Path, PathBuf};

use fleet_unitfile::{UnitName, UnitType};

use super::bus::{Bus, CallError, UNIT};
use super::context::{ManagerContext, unavailable};
use crate::ServiceError;

/// An existing unit under a name that fleet is about to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingUnit {
    /// None: the unit was never run, or systemd has dropped all of it.
    New,
    /// In memory, but without a definition.
    NotFound,
    /// An earlier definition, in memory.
    Stale,
}

/// Checks that fleet may use this name for a unit. Returns what systemd already has under the name.
///
/// # Errors
///
/// [`ServiceError::BadSetting`] if the machine has a unit of its own with this name.
pub(crate) async fn check_name(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<ExistingUnit, ServiceError> {
    let found = find_existing(context, bus, unit).await.map_err(unavailable)?;
    found.map_err(|what| ServiceError::BadSetting {
        unit: unit.clone(),
        line: 0,
        problem: format!(
            "this machine has {what} with this name, which is not fleet's: choose another name"
        ),
    })
}

/// Returns the existing unit, or as an error the machine's own definition.
pub(crate) async fn find_existing(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Result<ExistingUnit, String>, CallError> {
    match bus.loaded_path(unit.as_str()).await? {
        Some(path) => loaded_path(context, bus, unit, &path).await,
        None => on_disk(context, bus, unit).await,
    }
}

async fn loaded_path(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    path: &str,
) -> Result<Result<ExistingUnit, String>, CallError> {
    let load: String = bus.property(path, UNIT, "LoadState").await?;
    if load == "not-found" {
        return Ok(Ok(ExistingUnit::NotFound));
    }
    let file: String = bus.property(path, UNIT, "FragmentPath").await?;
    if is_own(context, unit, Path::new(&file)) {
        return Ok(Ok(ExistingUnit::Stale));
    }
    // systemd creates a slice implicitly once a unit refers to it.
    if file.is_empty() && load == "loaded" && unit.unit_type() == UnitType::Slice {
        let lasts: bool = bus.property(path, UNIT, "Perpetual").await?;
        return Ok(if lasts { Err("a slice".to_owned()) } else { Ok(ExistingUnit::Stale) });
    }
    Ok(Err(if file.is_empty() { format!("a unit ({load})") } else { file }))
}

async fn on_disk(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Result<ExistingUnit, String>, CallError> {
    if !is_on_disk(context, unit, bus.unit_path().await?) {
        return Ok(Ok(ExistingUnit::New));
    }
    match bus.manager::<_, String>("GetUnitFileState", &unit.as_str()).await {
        Ok(_) if leads_to_own(context, unit, &context.config.links.join(unit.as_str())) => {
            Ok(Ok(ExistingUnit::New))
        }
        Ok(state) => Ok(Err(format!("a unit file ({state})"))),
        Err(CallError::Refused { .. }) => Ok(Ok(ExistingUnit::New)),
        Err(error) => Err(error),
    }
}

/// Returns whether systemd's search path has any file of the unit or of its template, apart from
/// fleet's own link. Most units have no such file, so systemd need not be asked for the state of
/// the file.
fn is_on_disk(context: &ManagerContext, unit: &UnitName, folders: &[PathBuf]) -> bool {
    let is_there = |file: &Path| file.symlink_metadata().is_ok();
    let template = unit.template();
    folders.iter().any(|folder| {
        let file = folder.join(unit.as_str());
        let is_own = *folder == context.config.links && leads_to_own(context, unit, &file);
        (!is_own && is_there(&file))
            || template.as_ref().is_some_and(|it| is_there(&folder.join(it.as_str())))
    })
}

/// Returns whether `file`, from which systemd has loaded the unit, is fleet's unit file or fleet's
/// link to it. The path of the link counts even if no file exists there, because fleet may have
/// removed the link after systemd loaded the unit.
fn is_own(context: &ManagerContext, unit: &UnitName, file: &Path) -> bool {
    let is_link = file.parent() == Some(&*context.config.links);
    leads_to_own(context, unit, file) || (is_link && file.symlink_metadata().is_err())
}

/// Whether a file is the unit's own, or a link to it.
fn leads_to_own(context: &ManagerContext, unit: &UnitName, file: &Path) -> bool {
    let text = context.files.text(unit);
    file == text || std::fs::read_link(file).is_ok_and(|to| to == text)
}

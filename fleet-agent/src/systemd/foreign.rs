//! Tells units that the machine has by itself from fleet's own, which alone are touched.

use std::path::{Path, PathBuf};

use fleet_unitfile::{UnitName, UnitType};

use super::bus::{Bus, CallError, UNIT};
use super::machine::{Machine, unavailable};
use crate::ServiceError;

/// What systemd has under a name that fleet is about to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing: the unit was never run, or systemd has forgotten all of it.
    New,
    /// Nothing that it would go by.
    Free,
    /// An earlier definition in memory.
    Stale,
}

/// Looks what the machine has under the name of a unit.
///
/// # Errors
///
/// [`ServiceError::BadSetting`] when the machine has such a unit by itself.
pub(crate) async fn look_for(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Place, ServiceError> {
    let found = look(machine, bus, unit).await.map_err(unavailable)?;
    found.map_err(|what| ServiceError::BadSetting {
        unit: unit.clone(),
        line: 0,
        problem: format!(
            "this machine has {what} of its own under this name, which fleet leaves alone: choose \
             another name"
        ),
    })
}

/// What is there under a name, or what the machine has of its own.
pub(crate) async fn look(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Result<Place, String>, CallError> {
    match bus.in_memory(unit.as_str()).await? {
        Some(path) => in_memory(machine, bus, unit, &path).await,
        None => on_disk(machine, bus, unit).await,
    }
}

async fn in_memory(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
    path: &str,
) -> Result<Result<Place, String>, CallError> {
    let load: String = bus.property(path, UNIT, "LoadState").await?;
    if load == "not-found" {
        return Ok(Ok(Place::Free));
    }
    let file: String = bus.property(path, UNIT, "FragmentPath").await?;
    if is_own(machine, unit, Path::new(&file)) {
        return Ok(Ok(Place::Stale));
    }
    // A slice is made up as soon as something wants to be in it.
    if file.is_empty() && load == "loaded" && unit.unit_type() == UnitType::Slice {
        let lasts: bool = bus.property(path, UNIT, "Perpetual").await?;
        return Ok(if lasts { Err("a slice".to_owned()) } else { Ok(Place::Stale) });
    }
    Ok(Err(if file.is_empty() { format!("a unit ({load})") } else { file }))
}

async fn on_disk(
    machine: &Machine,
    bus: &Bus,
    unit: &UnitName,
) -> Result<Result<Place, String>, CallError> {
    if !is_on_disk(machine, unit, bus.unit_path().await?) {
        return Ok(Ok(Place::New));
    }
    match bus.manager::<_, String>("GetUnitFileState", &unit.as_str()).await {
        Ok(_) if leads_to_own(machine, unit, &machine.config.links.join(unit.as_str())) => {
            Ok(Ok(Place::New))
        }
        Ok(state) => Ok(Err(format!("a unit file ({state})"))),
        Err(CallError::Refused { .. }) => Ok(Ok(Place::New)),
        Err(error) => Err(error),
    }
}

/// Whether there is anything at all under the name of a unit, or of its template, where systemd
/// looks for files. For most units there is not, and systemd need not be asked what it is.
fn is_on_disk(machine: &Machine, unit: &UnitName, folders: &[PathBuf]) -> bool {
    let is_there = |file: &Path| file.symlink_metadata().is_ok();
    let template = unit.template();
    folders.iter().any(|folder| {
        let file = folder.join(unit.as_str());
        let is_own = *folder == machine.config.links && leads_to_own(machine, unit, &file);
        (!is_own && is_there(&file))
            || template.as_ref().is_some_and(|it| is_there(&folder.join(it.as_str())))
    })
}

/// Whether a definition in memory is one that fleet gave, and may have taken away since.
fn is_own(machine: &Machine, unit: &UnitName, file: &Path) -> bool {
    let is_link = file.parent() == Some(&*machine.config.links);
    leads_to_own(machine, unit, file) || (is_link && file.symlink_metadata().is_err())
}

/// Whether a file is a unit's own, or a link to it.
fn leads_to_own(machine: &Machine, unit: &UnitName, file: &Path) -> bool {
    let text = machine.files.text(unit);
    file == text || std::fs::read_link(file).is_ok_and(|to| to == text)
}

//! Links unit files for systemd until the next boot, and removes the links.

use std::collections::BTreeMap;
use std::path::Path;

use fleet_unitfile::{UnitFile, UnitName, UnitType};

use super::bus::{Bus, CallError, LinkChange, UNIT};
use super::context::{ManagerContext, io_error, unavailable};
use super::refresh::BatchRole;
use super::{load, quadlet};
use crate::ServiceError;

const ONLY_TILL_BOOT: bool = true;
const OVER_OTHERS: bool = false;

/// Links a unit's file into systemd's search path, and enables the unit if it has an `[Install]`
/// section. A container is installed for podman's generator instead.
pub(crate) async fn install(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    file: &UnitFile,
) -> Result<(), ServiceError> {
    if unit.unit_type() == UnitType::Container {
        return quadlet::install(context, unit, file).await;
    }
    let text = context.files.text(unit);
    let linked = link(context, bus, &text.to_string_lossy()).await;
    linked.map_err(|error| refused(unit, 0, "link the unit's file", error))?;
    if file.has_section("Install") {
        enable(context, bus, unit, file).await?;
    }
    Ok(())
}

/// Links a file, in one call with those of other units.
async fn link(context: &ManagerContext, bus: &Bus, file: &str) -> Result<(), CallError> {
    let batch = match context.links.join(file).await {
        BatchRole::Answered(linked) => return linked,
        BatchRole::Leader(batch) => batch,
    };
    let files = batch.about();
    let mut refused = BTreeMap::new();
    // systemd links all of them or none, and does not say which one it refused.
    if let Err(error) = link_all(bus, &files).await {
        for file in &files {
            let alone = match &error {
                CallError::Refused { .. } if files.len() > 1 => link_all(bus, &[file]).await,
                _ => Err(error.clone()),
            };
            if let Err(error) = alone {
                refused.insert((*file).to_owned(), error);
            }
        }
    }
    batch.answer(|file| refused.get(file).map_or(Ok(()), |error| Err(error.clone())))
}

async fn link_all(bus: &Bus, files: &[&str]) -> Result<(), CallError> {
    let order = (files, ONLY_TILL_BOOT, OVER_OTHERS);
    bus.manager::<_, Vec<LinkChange>>("LinkUnitFiles", &order).await.map(drop)
}

async fn enable(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    file: &UnitFile,
) -> Result<(), ServiceError> {
    for option in file.values("Install", "Alias") {
        let line = file.location(option.span().start).line;
        check_alias(context, bus, unit, line, option.value()).await?;
    }
    let line = file.options().find(|option| option.section() == "Install");
    let line = line.map_or(0, |option| file.location(option.span().start).line);
    let order = (&[unit.as_str()][..], ONLY_TILL_BOOT, OVER_OTHERS);
    let enabled: Result<(bool, Vec<LinkChange>), _> = bus.manager("EnableUnitFiles", &order).await;
    let (_, changes) = enabled.map_err(|error| refused(unit, line, "enable it", error))?;
    require_reload_if_loaded(context, bus, &changes).await.map_err(unavailable)
}

/// Refuses an alias that is a unit of the machine itself.
async fn check_alias(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    line: usize,
    aliases: &str,
) -> Result<(), ServiceError> {
    for alias in aliases.split_whitespace().filter_map(|alias| UnitName::parse(alias).ok()) {
        let existing = load::find_existing(context, bus, &alias).await.map_err(unavailable)?;
        // An earlier alias of the unit is a link to its own file.
        let link = std::fs::canonicalize(context.config.links.join(alias.as_str()));
        if let (Err(what), false) = (existing, link.is_ok_and(|to| to == context.files.text(unit)))
        {
            let problem = format!(
                "Alias= cannot be {alias}: this machine has {what} with that name, not from fleet"
            );
            return Err(ServiceError::BadSetting { unit: unit.clone(), line, problem });
        }
    }
    Ok(())
}

/// Removes a unit's links. Missing links are no error.
pub(crate) async fn uninstall(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), ServiceError> {
    if unit.unit_type() == UnitType::Container {
        return quadlet::uninstall(context, unit);
    }
    // This is slow, because systemd reads the links of all units.
    if may_be_enabled(&context.files.text(unit)) {
        disable(context, bus, unit).await?;
    }
    // Whatever systemd reports, no link to the removed file may stay.
    let link = context.config.links.join(unit.as_str());
    match std::fs::read_link(&link) {
        Ok(to) if to == context.files.text(unit) => {
            std::fs::remove_file(&link).map_err(io_error(format!("unlink {}", link.display())))
        }
        _ => Ok(()),
    }
}

/// Removes the links of an enabled unit.
async fn disable(context: &ManagerContext, bus: &Bus, unit: &UnitName) -> Result<(), ServiceError> {
    let order = (&[unit.as_str()][..], ONLY_TILL_BOOT);
    match bus.manager::<_, Vec<LinkChange>>("DisableUnitFiles", &order).await {
        Ok(changes) => require_reload_if_loaded(context, bus, &changes).await.map_err(unavailable),
        Err(CallError::Refused { name, .. }) if name.ends_with(".NoSuchUnit") => Ok(()),
        Err(CallError::Refused { name, .. }) if name.ends_with(".FileNotFound") => Ok(()),
        Err(error) => Err(unavailable(error)),
    }
}

/// Whether a unit may have other links than the one to its file: its file has an `[Install]`
/// section, or cannot be read.
fn may_be_enabled(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).ok();
    let file = text.and_then(|text| UnitFile::parse(text).ok());
    file.is_none_or(|file| file.has_section("Install"))
}

/// Requires a reload if the dependencies of a unit in systemd's memory have changed. Without a
/// reload, systemd would use the old dependencies.
///
/// Active targets of the machine itself require no reload. Such a target uses the new dependencies
/// only at its next start, which hardly ever happens, and any reload before that start includes
/// them.
async fn require_reload_if_loaded(
    context: &ManagerContext,
    bus: &Bus,
    changes: &[LinkChange],
) -> Result<(), CallError> {
    for (_, link, _) in changes {
        let Some(pulled_in_by) = pulled_in_by(Path::new(link)) else { continue };
        let Some(path) = bus.loaded_path(&pulled_in_by).await? else { continue };
        let is_own =
            UnitName::parse(&pulled_in_by).is_ok_and(|unit| context.units.record(&unit).is_some());
        if pulled_in_by.ends_with(".target") && !is_own {
            let active: String = bus.property(&path, UNIT, "ActiveState").await?;
            if active == "active" {
                continue;
            }
        }
        context.reload.require();
    }
    Ok(())
}

/// Returns the unit that pulls in the target of a link.
fn pulled_in_by(link: &Path) -> Option<String> {
    let directory = link.parent()?.file_name()?.to_str()?;
    let suffixes = [".wants", ".requires", ".upholds"];
    suffixes.iter().find_map(|suffix| directory.strip_suffix(suffix)).map(str::to_owned)
}

/// Converts an error of a call that may concern the unit's file.
pub(crate) fn refused(
    unit: &UnitName,
    line: usize,
    action: &str,
    error: CallError,
) -> ServiceError {
    match error {
        CallError::Refused { name, message }
            if !name.contains("AccessDenied") && !name.contains("AuthorizationRequired") =>
        {
            let problem = format!("systemd cannot {action}: {message}");
            ServiceError::BadSetting { unit: unit.clone(), line, problem }
        }
        error => unavailable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_the_depending_unit() {
        let rows = [
            ("/run/systemd/system/a.service.wants/b.service", Some("a.service")),
            ("/run/systemd/system/a.target.requires/b.service", Some("a.target")),
            ("/run/systemd/system/b.service", None),
            ("b.service", None),
        ];
        for (link, expected) in rows {
            assert_eq!(pulled_in_by(Path::new(link)).as_deref(), expected, "{link}");
        }
    }
}

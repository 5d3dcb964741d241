//! Loads and unloads units, and reloads systemd if it would otherwise use old files. Also detects
//! units of the machine itself, which fleet must not touch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::{Epoch, KnownUnit, TargetState};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use zbus::wire::{OwnedVariant, Variant};

use super::bus::{Bus, CallError, UNIT, unit_path};
use super::context::{ManagerContext, io_error, unavailable};
use super::install::{install, uninstall};
use super::jobs::bad_file;
use super::operations::stop_and_wait;
use super::quadlet;
use super::record::Record;
use super::refresh::{refresh_details, refresh_unit};
use super::state::ObservedState;
use crate::ServiceError;

/// Loads a file, or only records the epoch if the file is unchanged.
pub(crate) async fn load(
    context: &ManagerContext,
    unit: &UnitName,
    file: &UnitFile,
    epoch: Epoch,
) -> Result<(), ServiceError> {
    let _turn = context.locks.lock_unit(unit).await;
    let bus = context.bus()?;
    let before = context.units.record(unit);
    if let Some(mut record) = before.clone().filter(|record| is_same(record, file)) {
        record.known.epoch = epoch;
        return context.remember(unit, record);
    }
    refuse_type(unit)?;
    refuse_namesake(context, unit)?;
    let existing = check_name(context, &bus, unit).await?;
    if existing == ExistingUnit::Stale {
        context.reload.require();
    }
    context.units.follow(unit, None);
    let mut record = record_for_new_file(before.as_ref(), file, epoch);
    let result = take_over(context, &bus, unit, file, &record, existing).await;
    if let Err(error) = result {
        roll_back(context, &bus, unit, before.is_some(), record).await;
        return Err(error);
    }
    if record.known.requested == TargetState::Inactive {
        record.known.requested = TargetState::Loaded;
    }
    context.remember(unit, record)?;
    match (existing, before) {
        (ExistingUnit::New, _) => context.units.mark_new(unit),
        (_, None) => discard_last_run(context, &bus, unit).await.map_err(unavailable)?,
        (_, Some(_)) => {}
    }
    Ok(())
}

/// Whether the known file is the same, and was loaded completely.
fn is_same(record: &Record, file: &UnitFile) -> bool {
    record.known.hash == file.hash() && record.known.requested != TargetState::Inactive
}

/// Returns the record of a unit with a new file. The record keeps the earlier requests for the
/// unit.
fn record_for_new_file(before: Option<&Record>, file: &UnitFile, epoch: Epoch) -> Record {
    let mut record = before.cloned().unwrap_or_else(|| Record::new(file.hash(), epoch));
    (record.known.hash, record.known.epoch) = (file.hash(), epoch);
    record
}

/// Refuses units of types that systemd does not read from files.
fn refuse_type(unit: &UnitName) -> Result<(), ServiceError> {
    let problem = match unit.unit_type() {
        UnitType::Busname | UnitType::Snapshot => "systemd no longer supports units of this type",
        UnitType::Scope => "systemd cannot run a scope from a file: write a service",
        _ if unit.is_template() => "a template cannot be run: name an instance",
        _ => return Ok(()),
    };
    Err(ServiceError::BadSetting { unit: unit.clone(), line: 0, problem: problem.to_owned() })
}

/// Refuses the second one of two units that systemd knows by the same name, such as `web.service`
/// and `web.container`.
fn refuse_namesake(context: &ManagerContext, unit: &UnitName) -> Result<(), ServiceError> {
    let Some(other) = context.units.namesake(unit) else { return Ok(()) };
    let problem = format!(
        "{other} is on this machine too, and both run as {}: rename one of them, or place them on \
         different machines",
        unit.systemd_name()
    );
    Err(ServiceError::BadSetting { unit: unit.clone(), line: 0, problem })
}

async fn take_over(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    file: &UnitFile,
    record: &Record,
    existing: ExistingUnit,
) -> Result<(), ServiceError> {
    if unit.unit_type() == UnitType::Container {
        // Before the record: the file of a container is a copy, which the record must not precede.
        install(context, bus, unit, file).await?;
    }
    let written = context.files.write_text(unit, file.source());
    let begun = written.and_then(|()| context.files.write_record(unit, record));
    begun.map_err(io_error(format!("write the unit file of {unit}")))?;
    if unit.unit_type() == UnitType::Container {
        // systemd gets the service by a reload.
        return Ok(());
    }
    install(context, bus, unit, file).await?;
    let states = refresh_unit(context, bus, unit).await.map_err(unavailable)?;
    match states.map(|states| states.load).as_deref() {
        // The definition in memory is still the old one.
        _ if existing == ExistingUnit::Stale => Ok(()),
        // systemd checks its directories by their modification times, which may be too coarse.
        Some("not-found") | None => {
            context.reload.require();
            Ok(())
        }
        Some("bad-setting" | "error" | "masked") => {
            let reason = why_not_loaded(bus, unit).await.map_err(unavailable)?;
            Err(bad_file(unit, file, format!("systemd refuses the file: {reason}")))
        }
        Some(_) => Ok(()),
    }
}

/// Discards the last run of a unit that is loaded again. The result of that run may still be in
/// systemd's memory, but it is no result of the unit that is loaded now.
async fn discard_last_run(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
) -> Result<(), CallError> {
    refresh_details(context, bus, unit).await?;
    context.units.on_start(unit, ObservedState::on_start_requested);
    Ok(())
}

/// Returns systemd's reason for refusing a file.
async fn why_not_loaded(bus: &Bus, unit: &UnitName) -> Result<String, CallError> {
    let path = unit_path(unit);
    let error = bus.property::<OwnedVariant>(&path, UNIT, "LoadError").await;
    let reason = match error.as_deref() {
        Ok(Variant::Structure(error)) => match error.fields() {
            [_, Variant::Str(message)] => message.to_string(),
            _ => String::new(),
        },
        Ok(_) => String::new(),
        Err(CallError::Refused { message, .. }) => message.clone(),
        Err(CallError::Lost(reason)) => return Err(CallError::Lost(reason.clone())),
    };
    let reason = reason.trim_end_matches('.').to_owned();
    Ok(if reason.is_empty() { "see its log for the reason".to_owned() } else { reason })
}

/// Undoes a failed load of a new unit. A unit that was known before may run, so it stays known, but
/// without a request. A new unit also stays known if the load cannot be undone.
async fn roll_back(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    was_known: bool,
    record: Record,
) {
    if !was_known {
        let undone = match uninstall(context, bus, unit).await {
            Ok(()) => context.files.remove(unit).map_err(io_error("remove a unit file")),
            Err(error) => Err(error),
        };
        match undone {
            Ok(()) => return context.units.forget(unit),
            Err(error) => tracing::warn!(
                %unit,
                error = &error as &dyn std::error::Error,
                "cannot remove the file of a unit whose load has failed"
            ),
        }
    }
    let known = KnownUnit { requested: TargetState::Inactive, ..record.known };
    if let Err(error) = context.remember(unit, Record { known, ..record }) {
        tracing::warn!(
            %unit,
            error = &error as &dyn std::error::Error,
            "cannot save that the load of a unit has failed"
        );
    }
}

/// Stops a unit and removes its files and links.
pub(crate) async fn unload(context: &ManagerContext, unit: &UnitName) -> Result<(), ServiceError> {
    let _turn = context.locks.lock_unit(unit).await;
    let bus = context.bus()?;
    let Some(record) = context.units.record(unit) else { return Ok(()) };
    stop_and_wait(context, &bus, unit, &record).await?;
    context.forget_requests(unit, record)?;
    uninstall(context, &bus, unit).await?;
    let removed = context.files.remove(unit);
    // systemd would otherwise remember the failure of a unit forever.
    let reset = bus.reset_failed(unit).await;
    removed.map_err(io_error(format!("remove the unit file of {unit}")))?;
    context.units.forget(unit);
    context.feed.report(unit);
    if let Err(error @ CallError::Lost(_)) = reset {
        return Err(unavailable(error));
    }
    if unit.unit_type() == UnitType::Container {
        // The service exists until podman's generator runs again.
        return reload(context, &bus).await.map_err(unavailable);
    }
    // A unit that refers to it keeps its old definition in memory.
    if bus.loaded_path(unit.as_str()).await.map_err(unavailable)?.is_some() {
        context.reload.require();
    }
    Ok(())
}

/// Makes systemd reload its unit files, but only if it would otherwise use old ones.
///
/// systemd reads a unit from its file when the unit is needed and not in memory. So a new unit
/// needs no reload. A reload is needed in three cases:
///
/// - systemd has an older definition of a unit in memory.
/// - systemd has not noticed the file of a unit.
/// - systemd has a unit in memory (for example a target), and another unit was then enabled as a
///   dependency of it (`WantedBy=`).
#[derive(Debug, Default)]
pub(crate) struct Reload {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    required: bool,
    unverified: BTreeSet<UnitName>,
}

impl Reload {
    /// Records that systemd has an outdated definition in memory.
    pub(crate) fn require(&self) {
        self.lock().required = true;
    }

    /// Records units of which systemd may have read an older definition.
    pub(crate) fn mark_unverified(&self, units: impl IntoIterator<Item = UnitName>) {
        self.lock().unverified.extend(units);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reloads if needed; when this returns, systemd uses the current files.
pub(crate) async fn reload(context: &ManagerContext, bus: &Bus) -> Result<(), CallError> {
    let _turn = context.reload.turn.lock().await;
    let State { required, unverified } = std::mem::take(&mut *context.reload.lock());
    let result = match required || is_behind(bus, &unverified).await.unwrap_or(true) {
        true => bus.manager("Reload", &()).await,
        false => Ok(()),
    };
    if result.is_err() {
        context.reload.require();
    }
    result
}

/// Whether systemd uses an old definition of one of the units.
async fn is_behind(bus: &Bus, units: &BTreeSet<UnitName>) -> Result<bool, CallError> {
    for unit in units {
        let Some(path) = bus.loaded_path(unit.systemd_name().as_str()).await? else { continue };
        let load = bus.property::<String>(&path, UNIT, "LoadState").await?;
        if load == "not-found" || bus.property(&path, UNIT, "NeedDaemonReload").await? {
            return Ok(true);
        }
    }
    Ok(false)
}

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
    match bus.loaded_path(unit.systemd_name().as_str()).await? {
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
    if unit.unit_type() == UnitType::Container {
        let source: String = bus.property(path, UNIT, "SourcePath").await?;
        if Path::new(&source) == quadlet::path(context, unit) {
            return Ok(Ok(ExistingUnit::Stale));
        }
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
    let in_systemd = unit.systemd_name();
    match bus.manager::<_, String>("GetUnitFileState", &in_systemd.as_str()).await {
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
    let in_systemd = unit.systemd_name();
    let template = in_systemd.template();
    folders.iter().any(|folder| {
        let file = folder.join(in_systemd.as_str());
        let is_own = (*folder == context.config.links && leads_to_own(context, unit, &file))
            || quadlet::is_generated(context, unit, &file);
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

//! Loads and unloads units, and reloads systemd if it would otherwise use old files.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_core::{Epoch, KnownUnit, TargetState};
use fleet_unitfile::{UnitFile, UnitName, UnitType};
use zbus::wire::{OwnedVariant, Variant};

use super::bus::{Bus, CallError, UNIT, unit_path};
use super::context::{ManagerContext, io_error, unavailable};
use super::install::{install, uninstall};
use super::jobs::bad_file;
use super::name_conflict::{ExistingUnit, check_name};
use super::operations::stop_and_wait;
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

async fn take_over(
    context: &ManagerContext,
    bus: &Bus,
    unit: &UnitName,
    file: &UnitFile,
    record: &Record,
    existing: ExistingUnit,
) -> Result<(), ServiceError> {
    let written = context.files.write_text(unit, file.source());
    let begun = written.and_then(|()| context.files.write_record(unit, record));
    begun.map_err(io_error(format!("write the unit file of {unit}")))?;
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
            Err(bad_file(unit, file, &reason))
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
    let path = unit_path(unit.as_str());
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
    let reset: Result<(), _> = bus.manager("ResetFailedUnit", &unit.as_str()).await;
    removed.map_err(io_error(format!("remove the unit file of {unit}")))?;
    context.units.forget(unit);
    context.feed.report(unit);
    if let Err(error @ CallError::Lost(_)) = reset {
        return Err(unavailable(error));
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
        let Some(path) = bus.loaded_path(unit.as_str()).await? else { continue };
        let load = bus.property::<String>(&path, UNIT, "LoadState").await?;
        if load == "not-found" || bus.property(&path, UNIT, "NeedDaemonReload").await? {
            return Ok(true);
        }
    }
    Ok(false)
}

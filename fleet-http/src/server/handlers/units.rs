//! Lists, reads, destroys and restarts units.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::ETAG;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use fleet_core::{Generation, Revision, Snapshot, TargetState, Unit};
use fleet_store::RegistryError;
use fleet_unitfile::UnitName;

use super::extract::{Condition, Name, Params, dry_run};
use super::listings::UnitFilter;
use super::openapi::{self as path, DryRun, DryRunResult, Failures, Page};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::extract;
use crate::wire;
use crate::wire::{RestartResponse, UnitEntity, UnitPage};

/// List units with their desired and current states.
///
/// Page tokens do not contain the filters, so repeat the filters in the request for each page.
#[utoipa::path(
    get,
    path = "/units",
    operation_id = "listUnits",
    tag = "units",
    params(
        Page,
        ("machineID" = Option<String>, Query, description = "Only units placed on this machine"),
        (
            "desiredState" = Option<String>, Query, pattern = "^(inactive|loaded|launched)$",
            description = "Only units with this desired state",
        ),
        (
            "currentState" = Option<String>, Query, pattern = "^(inactive|loaded|launched)$",
            description = "Only units with this current state",
        ),
        ("template" = Option<String>, Query, description = "Only instances of this template"),
        (
            "metadata" = Option<Vec<String>>, Query,
            description = "Only units placed on machines with this metadata, KEY=VALUE or KEY",
        ),
    ),
    responses(
        (status = 200, body = UnitPage, description = "A page of units, without their sources"),
        Failures,
    ),
)]
pub(crate) async fn list(
    State(api): State<SharedApi>,
    params: Params,
) -> Result<Json<UnitPage>, Failure> {
    let listing = api.listing(&params)?;
    let snapshot = &listing.snapshot;
    let filter = UnitFilter::read(&params)?;
    let first = listing.first.as_deref().and_then(|name| UnitName::parse(name).ok());
    let from = entries(snapshot, first.as_ref());
    let wanted = from.filter(|entry| entry.is_wanted(&filter, snapshot));
    let name = |entry: Entry<'_>| entry.name().to_string();
    let (entries, next_page_token) = api.page(&listing, first.is_some(), wanted, Entry::size, name);
    let units =
        entries.into_iter().map(|entry| with_unknown_for(&api, entry.show(snapshot))).collect();
    Ok(Json(UnitPage { next_page_token, units }))
}

/// Get a unit with its source.
///
/// Returns 304 if the unit has not changed since the server sent one of the tags in
/// `If-None-Match`.
#[utoipa::path(
    get,
    path = "/units/{name}",
    operation_id = "getUnit",
    tag = "units",
    params(
        path::UnitName,
        (
            "If-None-Match" = Option<String>, Header,
            description = "Entity tags of earlier responses",
        ),
    ),
    responses(
        (status = 200, body = UnitEntity, description = "The unit with its source"),
        (status = 304, description = "The unit is unchanged"),
        Failures,
    ),
)]
pub(crate) async fn get(
    State(api): State<SharedApi>,
    Name(name): Name,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let snapshot = api.view()?;
    let unit = show_unit(&api, &snapshot, &name)?;
    let tagged = [(ETAG, extract::etag_of(&api.mirror, snapshot.revision))];
    // The time since an absent machine was last seen changes continuously, and jobs and schedules
    // change without their units.
    let changes = unit.unknown_for.is_some() || unit.job.is_some() || unit.schedule.is_some();
    if !changes && extract::etag_is_known(&headers, &api.mirror, &snapshot, &name) {
        return Ok((StatusCode::NOT_MODIFIED, tagged).into_response());
    }
    Ok((tagged, Json(unit)).into_response())
}

/// Returns the error for a conditional write to a unit that was modified or does not exist. First
/// waits until reads show `modified`, the revision of that modification, because the response
/// contains the unit's current state.
pub(crate) async fn precondition_failed(
    api: &SharedApi,
    name: &UnitName,
    modified: Revision,
) -> Failure {
    api.wait_until_visible(modified).await;
    match api.view() {
        Ok(now) => precondition_failed_at(api, &now, name),
        Err(failure) => failure,
    }
}

/// Returns the error for a conditional write whose condition was compared with the unit in `now`
/// and not met. The error contains the unit as it is in `now`, if it exists there.
pub(crate) fn precondition_failed_at(api: &SharedApi, now: &Snapshot, name: &UnitName) -> Failure {
    let unit = show_unit(api, now, name.as_str()).ok();
    Failure::precondition_failed(
        unit.map(|unit| (unit, extract::etag_of(&api.mirror, now.revision))),
    )
}

/// Returns a unit with its source, or with its decoding error.
pub(crate) fn show_unit(
    api: &SharedApi,
    snapshot: &Snapshot,
    name: &str,
) -> Result<UnitEntity, Failure> {
    if let Some(unit) = snapshot.unit(name) {
        return Ok(with_unknown_for(api, wire::unit_with_source(snapshot, unit)));
    }
    let name = UnitName::parse(name).map_err(|_| Failure::no_unit())?;
    let fault = snapshot.fault(name.as_str()).ok_or_else(Failure::no_unit)?;
    Ok(wire::faulty_unit(&name, fault))
}

/// Destroy a unit.
///
/// With `dryRun=1` nothing is changed, and the response is the plan with status 200.
#[utoipa::path(
    delete,
    path = "/units/{name}",
    operation_id = "destroyUnit",
    tag = "units",
    params(
        path::UnitName,
        DryRun,
        (
            "If-Match" = Option<String>, Header,
            description = "Entity tag; the write fails if the unit was modified since",
        ),
    ),
    responses(
        DryRunResult,
        (status = 204, description = "The unit was destroyed"),
        Failures,
    ),
)]
pub(crate) async fn delete(
    State(api): State<SharedApi>,
    Name(name): Name,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let name = UnitName::parse(&name).map_err(|_| Failure::no_unit())?;
    let condition = Condition::read(&headers, &api.mirror);
    if params.dry_run()? {
        let known = api.view()?;
        let is_there = known.unit(name.as_str()).is_some() || known.fault(name.as_str()).is_some();
        if !is_there && condition == Condition::None {
            return Err(Failure::no_unit());
        }
        if !condition.holds(&api.mirror, &known, &name) {
            return Err(precondition_failed_at(&api, &known, &name));
        }
        return dry_run(&known, |after| after.remove_unit(name.as_str())).await;
    }
    let destroyed = match condition {
        Condition::None | Condition::Exists => api.registry.destroy(&name, &api.mirror).await,
        Condition::UnchangedSince(seen) => {
            api.registry.destroy_if_unchanged(&name, &api.mirror, seen).await
        }
        Condition::Never => return Err(precondition_failed_at(&api, &*api.view()?, &name)),
    };
    let revision = match destroyed {
        Err(RegistryError::Changed { modified, .. }) => {
            return Err(precondition_failed(&api, &name, modified).await);
        }
        // A conditional request gets the error of its condition.
        Err(RegistryError::NotFound { .. }) if condition != Condition::None => {
            return Err(precondition_failed_at(&api, &*api.view()?, &name));
        }
        destroyed => destroyed?,
    };
    api.wait_until_visible(revision).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Restart a unit.
///
/// Starts a unit whose desired state is `loaded`. With `dryRun=1` nothing is changed, and the
/// response is the plan with status 200.
#[utoipa::path(
    post,
    path = "/units/{name}/restart",
    operation_id = "restartUnit",
    tag = "units",
    params(path::UnitName, DryRun),
    responses(
        DryRunResult,
        (status = 202, body = RestartResponse, description = "The restart was requested"),
        Failures,
    ),
)]
pub(crate) async fn restart(
    State(api): State<SharedApi>,
    Name(name): Name,
    params: Params,
) -> Result<Response, Failure> {
    let refusal = |name: &UnitName, desired| match desired {
        TargetState::Inactive => {
            Some(format!("cannot restart {name}: its desired state is {desired}; start it instead"))
        }
        TargetState::Loaded | TargetState::Launched => None,
    };
    let request = async |name: &UnitName| api.registry.request_restart(name).await;
    change_run(&api, &name, &params, TargetState::Launched, refusal, request).await
}

/// Stop the run of a loaded unit.
///
/// A timer, a socket or another unit can start a unit whose desired state is `loaded`. This ends
/// such a run; the desired state stays. With `dryRun=1` nothing is changed, and the response is the
/// plan with status 200.
#[utoipa::path(
    post,
    path = "/units/{name}/stop",
    operation_id = "stopUnit",
    tag = "units",
    params(path::UnitName, DryRun),
    responses(
        DryRunResult,
        (status = 202, body = RestartResponse, description = "The stop was requested"),
        Failures,
    ),
)]
pub(crate) async fn stop(
    State(api): State<SharedApi>,
    Name(name): Name,
    params: Params,
) -> Result<Response, Failure> {
    let refusal = |name: &UnitName, desired| match desired {
        TargetState::Loaded => None,
        TargetState::Inactive | TargetState::Launched => Some(format!(
            "cannot stop a run of {name}: its desired state is {desired}; set it to loaded instead"
        )),
    };
    let request = async |name: &UnitName| api.registry.request_stop(name).await;
    change_run(&api, &name, &params, TargetState::Loaded, refusal, request).await
}

/// Requests the restart or stop of a unit, or with `dryRun` returns the plan for it. `desired` is
/// the unit's desired state afterwards, and `refusal` returns why a desired state does not permit
/// the request.
async fn change_run(
    api: &SharedApi,
    name: &str,
    params: &Params,
    desired: TargetState,
    refusal: impl FnOnce(&UnitName, TargetState) -> Option<String>,
    request: impl AsyncFnOnce(&UnitName) -> Result<(Revision, Generation), RegistryError>,
) -> Result<Response, Failure> {
    let is_dry = params.dry_run()?;
    let name = UnitName::parse(name).map_err(|_| Failure::no_unit())?;
    let snapshot = api.view()?;
    let unit = snapshot.unit(name.as_str());
    if let Some(message) = unit.and_then(|unit| refusal(&name, unit.desired)) {
        return Err(Failure::conflict(message));
    }
    if is_dry {
        let fault = snapshot.fault(name.as_str()).map(|fault| fault.message.clone());
        let Some(unit) = unit else {
            return Err(fault.map_or_else(Failure::no_unit, Failure::conflict));
        };
        let after = Unit { desired, ..Unit::clone(unit) };
        return dry_run(&snapshot, |planned| planned.put_unit(after)).await;
    }
    let (revision, generation) = request(&name).await?;
    api.wait_until_visible(revision).await;
    Ok((StatusCode::ACCEPTED, Json(RestartResponse { generation: generation.0 })).into_response())
}

/// Sets `unknown_for`, the time for which the unit's state has been unknown, if the unit's machine
/// is not present.
pub(crate) fn with_unknown_for(api: &SharedApi, mut unit: UnitEntity) -> UnitEntity {
    if !unit.machine_id.is_empty() {
        let absent = api.mirror.absent_for(&unit.machine_id);
        unit.unknown_for = absent.map(|absent| absent.as_secs());
    }
    unit
}

/// A unit, decodable or not.
pub(crate) enum Entry<'a> {
    Unit(&'a Unit),
    Faulty(&'a UnitName, &'a fleet_core::snapshot::Fault),
}

impl Entry<'_> {
    pub(crate) fn name(&self) -> &UnitName {
        match self {
            Self::Unit(unit) => &unit.name,
            Self::Faulty(name, _) => name,
        }
    }

    fn is_wanted(&self, filter: &UnitFilter, snapshot: &Snapshot) -> bool {
        match self {
            Self::Unit(unit) => filter.matches(snapshot, unit),
            Self::Faulty(name, _) => filter.matches_faulty(name),
        }
    }

    /// Estimates the size of the unit in a list, in bytes.
    fn size(&self) -> usize {
        const UNIT: usize = 512;
        const OPTION: usize = 40;
        match self {
            Self::Unit(unit) => {
                let sections = unit.file.options().map(|it| OPTION + it.section().len());
                UNIT + unit.file.source().len() + sections.sum::<usize>()
            }
            Self::Faulty(..) => UNIT,
        }
    }

    fn show(&self, snapshot: &Snapshot) -> UnitEntity {
        match self {
            Self::Unit(unit) => wire::unit(snapshot, unit),
            Self::Faulty(name, fault) => wire::faulty_unit(name, fault),
        }
    }
}

/// Returns all units in the order of their names, beginning with `first`, or with the first unit if
/// `first` is `None`. Units that cannot be decoded are included.
pub(crate) fn entries<'a>(
    snapshot: &'a Snapshot,
    first: Option<&UnitName>,
) -> Box<dyn Iterator<Item = Entry<'a>> + 'a> {
    let unit = |unit: &'a Arc<Unit>| (&unit.name, Entry::Unit(unit));
    let faulty = |(name, fault): (&'a UnitName, &'a Arc<fleet_core::snapshot::Fault>)| {
        (name, Entry::Faulty(name, fault))
    };
    match first {
        None => {
            let (units, faults) = (snapshot.units().map(unit), snapshot.faults().map(faulty));
            Box::new(merge(units.peekable(), faults.peekable()))
        }
        Some(first) => {
            let units = snapshot.units_from(first.clone()).map(unit);
            let faults = snapshot.faults_from(first.clone()).map(faulty);
            Box::new(merge(units.peekable(), faults.peekable()))
        }
    }
}

fn merge<K: Ord, V>(
    mut left: Peekable<impl Iterator<Item = (K, V)>>,
    mut right: Peekable<impl Iterator<Item = (K, V)>>,
) -> impl Iterator<Item = V> {
    let next = move || {
        let order = match (left.peek(), right.peek()) {
            (Some((l, _)), Some((r, _))) => l.cmp(r),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let taken = if order == Ordering::Less { left.next() } else { right.next() };
        taken.map(|(_, value)| value)
    };
    std::iter::from_fn(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_the_order() {
        let cases: [(&[u8], &[u8]); 5] =
            [(&[1, 3, 5], &[2, 4]), (&[], &[1]), (&[1], &[]), (&[], &[]), (&[4], &[1, 2, 9])];
        for (left, right) in cases {
            let keyed = |numbers: &[u8]| {
                numbers.iter().map(|&n| (n, n)).collect::<Vec<_>>().into_iter().peekable()
            };
            let mut expected = [left, right].concat();
            expected.sort_unstable();
            let merged: Vec<u8> = merge(keyed(left), keyed(right)).collect();
            assert_eq!(merged, expected);
        }
    }
}

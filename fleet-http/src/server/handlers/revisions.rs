//! `GET /units/<name>/revisions`: earlier files of a unit. `GET /units/<name>/history`: its events.

use axum::Json;
use axum::extract::State;
use fleet_unitfile::UnitName;

use super::extract::Name;
use super::openapi::{self as path, Failures};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{UnitHistoryEntity, UnitRevisionEntity, UnitRevisions};

/// List the revisions of a unit.
///
/// Returns the last ten files of the unit with the numbers and times of their writes. The last one
/// is the current one. Large files are kept for fewer revisions.
#[utoipa::path(
    get,
    path = "/units/{name}/revisions",
    operation_id = "listUnitRevisions",
    tag = "units",
    params(path::UnitName),
    responses(
        (status = 200, body = UnitRevisions, description = "The revisions in their order"),
        Failures,
    ),
)]
pub(crate) async fn list(
    State(api): State<SharedApi>,
    Name(name): Name,
) -> Result<Json<UnitRevisions>, Failure> {
    let name = UnitName::parse(&name).map_err(|_| Failure::no_unit())?;
    let revisions = api.registry.revisions(&name).await?;
    let revisions = revisions.into_iter().map(UnitRevisionEntity::from);
    Ok(Json(UnitRevisions { revisions: revisions.collect() }))
}

/// Get the history of a unit.
///
/// Returns the last 32 events of the unit with their times and causes, as the leader recorded them.
/// An event appears about a second after it has happened.
#[utoipa::path(
    get,
    path = "/units/{name}/history",
    operation_id = "getUnitHistory",
    tag = "units",
    params(path::UnitName),
    responses(
        (status = 200, body = UnitHistoryEntity, description = "The events in their order"),
        Failures,
    ),
)]
pub(crate) async fn history(
    State(api): State<SharedApi>,
    Name(name): Name,
) -> Result<Json<UnitHistoryEntity>, Failure> {
    let name = UnitName::parse(&name).map_err(|_| Failure::no_unit())?;
    let snapshot = api.view()?;
    if snapshot.unit(name.as_str()).is_none() && snapshot.fault(name.as_str()).is_none() {
        return Err(Failure::no_unit());
    }
    Ok(Json(api.registry.history(&name).await?.into()))
}

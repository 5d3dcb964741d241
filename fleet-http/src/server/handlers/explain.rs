//! `GET /units/<name>/explain`: each machine's verdict on a unit.

use axum::Json;
use axum::extract::State;
use fleet_unitfile::UnitName;

use super::extract::Name;
use super::openapi::{self as path, Failures};
use super::planning::run_planner;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{self, PlacementExplanation};

/// Explain a unit's placement.
///
/// Returns each machine's verdict on the unit, for the current state of the cluster: the unit is
/// placed there, would be accepted, or is refused.
#[utoipa::path(
    get,
    path = "/units/{name}/explain",
    operation_id = "explainUnit",
    tag = "units",
    params(path::UnitName),
    responses(
        (status = 200, body = PlacementExplanation, description = "Verdicts of all machines"),
        Failures,
    ),
)]
pub(crate) async fn explain(
    State(api): State<SharedApi>,
    Name(name): Name,
) -> Result<Json<PlacementExplanation>, Failure> {
    let snapshot = api.view()?;
    let name = UnitName::parse(&name).map_err(|_| Failure::no_unit())?;
    if let Some(fault) = snapshot.fault(name.as_str()) {
        return Err(Failure::conflict(format!(
            "cannot explain the placement of {name}: {}",
            fault.message
        )));
    }
    let explained = run_planner(move || fleet_scheduler::explain(&snapshot, name.as_str())).await?;
    explained.map(|explanation| Json(wire::explanation(&explanation))).ok_or_else(Failure::no_unit)
}

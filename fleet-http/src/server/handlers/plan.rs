//! `POST /plan` and `GET /units/<name>/explain`. The planner runs on blocking threads, so that a
//! long run does not delay other requests.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use fleet_core::{Snapshot, Unit};
use fleet_unitfile::UnitName;
use tokio::sync::Semaphore;

use super::extract::{Name, plan_report, read_body, tag_of};
use super::openapi::{self as path, Failures};
use super::put::desired_state;
use crate::clock::wall_time;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::handlers::put;
use crate::wire;
use crate::wire::{PlacementExplanation, PlanReport, PlanRequest, PutUnit, decode_plan};

/// Plan several writes without carrying them out.
///
/// Validates the units in order, as if they were sent one by one. Each unit is checked against a
/// cluster that already contains the preceding units.
#[utoipa::path(
    post,
    path = "/plan",
    operation_id = "plan",
    tag = "cluster",
    request_body = PlanRequest,
    responses(
        (status = 200, body = PlanReport, description = "The resulting plan; nothing was changed"),
        Failures,
    ),
)]
pub(crate) async fn plan(
    State(api): State<SharedApi>,
    request: Request,
) -> Result<Json<PlanReport>, Failure> {
    let (head, body) = request.into_parts();
    let request_body = decode_plan(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    let known = api.view()?;
    let mut after = Snapshot::clone(&known);
    let mut written = Vec::new();
    for entity in &request_body.units {
        let unit = unit(&api, entity, &after).map_err(|it| it.with_context(&name_of(entity)))?;
        let known = after.unit(unit.name.as_str());
        if known.is_none_or(|known| known.hash() != unit.hash()) {
            written.push(unit.name.clone());
        }
        after.put_unit(unit);
    }
    put::check_start_order(&after, &written)?;
    for name in &request_body.destroy {
        if after.unit(name).is_none() && after.fault(name).is_none() {
            return Err(Failure::no_unit().with_context(name));
        }
        after.remove_unit(name);
    }
    let revision = tag_of(&api.mirror, known.revision);
    Ok(Json(PlanReport { revision, ..plan_report(after).await? }))
}

/// Returns the unit as it would be after the write. If the write contains no unit file, the unit
/// must already exist, and keeps its file.
fn unit(api: &SharedApi, entity: &PutUnit, after: &Snapshot) -> Result<Unit, Failure> {
    let name = UnitName::parse(&name_of(entity)).map_err(Failure::bad_request)?;
    let desired = desired_state(&name, entity)?;
    match put::validated_file(entity)? {
        Some(sent) => {
            let checks = (api.strictness, wall_time());
            put::validated_unit(&name, &sent.file, desired, checks, after)
        }
        None => {
            let known = after.unit(name.as_str()).ok_or_else(Failure::no_unit)?;
            Ok(Unit { desired: desired.unwrap_or(known.desired), ..Unit::clone(known) })
        }
    }
}

fn name_of(entity: &PutUnit) -> String {
    entity.name.clone().unwrap_or_default()
}

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

/// Limits the number of concurrent planner runs in this process to two; further runs wait.
static PLANNER_SLOTS: Semaphore = Semaphore::const_new(2);

/// Runs a planner function in a free slot.
pub(crate) async fn run_planner<T: Send + 'static>(
    plan: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let slot = PLANNER_SLOTS.acquire().await;
    // An abandoned run still completes and keeps its slot until then.
    let in_slot = move || {
        let _slot = slot;
        plan()
    };
    tokio::task::spawn_blocking(in_slot).await.map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the planner failed: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn abandoned_plan_keeps_its_slot_until_done() {
        let (start, started) = oneshot::channel();
        let (end, ended) = mpsc::channel::<()>();
        let given_up = tokio::spawn(run_planner(move || {
            start.send(()).unwrap();
            // Returns an error when the other end is dropped, even by a panic of this test.
            let _end = ended.recv();
        }));
        started.await.unwrap();
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        assert_eq!(PLANNER_SLOTS.available_permits(), 1);
        drop(end);
        drop(PLANNER_SLOTS.acquire_many(2).await.unwrap());
    }
}

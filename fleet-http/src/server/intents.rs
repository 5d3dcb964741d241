//! What is to become of machines: to cordon, uncordon and drain them, and how far a drain has come.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::{Intent, Machine, MachineId, Snapshot};

use super::api::Shared;
use super::drain_report::drain_report;
use super::extract::{Name, Params};
use super::failure::Failure;
use super::openapi::{self as path, DryRun, Failures, Tried};
use super::planning::planned;
use super::trial::trial;
use crate::wire::DrainReport;

/// Has a machine take no more units.
///
/// It also ends a drain, so that who is left there stays. With `dryRun=1` nothing is done, and 200
/// tells the plan.
#[utoipa::path(
    post,
    path = "/machines/{id}/cordon",
    operation_id = "cordonMachine",
    tag = "machines",
    params(path::Machine, DryRun),
    responses(
        Tried,
        (status = 204, description = "It takes no more units"),
        Failures,
    ),
)]
pub(super) async fn cordon(
    State(api): State<Shared>,
    Name(id): Name,
    params: Params,
) -> Result<Response, Failure> {
    let (is_dry, known) = (params.dry_run()?, api.view()?);
    let machine = present(&known, &id)?.clone().with_intent(Intent::Cordoned);
    if is_dry {
        return trial(&known, |after| after.put_machine(machine)).await;
    }
    Ok(intend(&api, &machine.id, machine.intent).await?.into_response())
}

/// Has a machine take units again.
///
/// One that is away can be uncordoned as well, so that nothing is left behind of one that never
/// comes back. With `dryRun=1` nothing is done, and 200 tells the plan.
#[utoipa::path(
    post,
    path = "/machines/{id}/uncordon",
    operation_id = "uncordonMachine",
    tag = "machines",
    params(path::Machine, DryRun),
    responses(
        Tried,
        (status = 204, description = "It takes units again"),
        Failures,
    ),
)]
pub(super) async fn uncordon(
    State(api): State<Shared>,
    Name(id): Name,
    params: Params,
) -> Result<Response, Failure> {
    let id: MachineId = id.parse().map_err(Failure::bad)?;
    if !params.dry_run()? {
        return Ok(intend(&api, &id, None).await?.into_response());
    }
    let known = api.view()?;
    let freed = known.machine(id.as_str()).map(|machine| Machine {
        cordoned: false,
        intent: None,
        ..Machine::clone(machine)
    });
    trial(&known, |after| freed.into_iter().for_each(|machine| after.put_machine(machine))).await
}

/// Has a machine emptied, and tells what will be done first.
///
/// With `dryRun=1` nothing is done.
#[utoipa::path(
    post,
    path = "/machines/{id}/drain",
    operation_id = "drainMachine",
    tag = "machines",
    params(
        path::Machine,
        DryRun,
        (
            "keepUp" = Option<u32>, Query,
            description = "How many instances of a template must be up at any time",
        ),
    ),
    responses(
        (status = 200, body = DrainReport, description = "What will be done first"),
        Failures,
    ),
)]
pub(super) async fn drain(
    State(api): State<Shared>,
    Name(id): Name,
    params: Params,
) -> Result<Json<DrainReport>, Failure> {
    let (keep_up, is_dry) = (number(&params, "keepUp")?, params.dry_run()?);
    let snapshot = api.view()?;
    let intent = Intent::Drained { keep_up };
    let machine = present(&snapshot, &id)?.clone().with_intent(intent);
    let id = machine.id.clone();
    if !is_dry {
        intend(&api, &id, Some(intent)).await?;
    }
    let mut planned = Snapshot::clone(&snapshot);
    planned.put_machine(machine);
    report(planned, id, keep_up).await
}

/// What is left to be done to empty a machine.
#[utoipa::path(
    get,
    path = "/machines/{id}/drain",
    operation_id = "getDrain",
    tag = "machines",
    params(path::Machine),
    responses(
        (status = 200, body = DrainReport, description = "What is left to be done"),
        Failures,
    ),
)]
pub(super) async fn progress(
    State(api): State<Shared>,
    Name(id): Name,
) -> Result<Json<DrainReport>, Failure> {
    let snapshot = api.view()?;
    let machine = present(&snapshot, &id)?;
    let Some(keep_up) = machine.intent.and_then(Intent::keep_up) else {
        return Err(Failure::not_found(format!("machine {id} is not drained")));
    };
    let id = machine.id.clone();
    report(Snapshot::clone(&snapshot), id, keep_up).await
}

/// The machine of that ID, if it is present.
pub(super) fn present<'a>(snapshot: &'a Snapshot, id: &str) -> Result<&'a Machine, Failure> {
    let machine = snapshot.machine(id).map(AsRef::as_ref);
    machine.ok_or_else(|| Failure::not_found(format!("no machine {id:?} is present")))
}

async fn intend(
    api: &Shared,
    id: &MachineId,
    intent: Option<Intent>,
) -> Result<StatusCode, Failure> {
    let revision = api.registry.set_intent(id, intent).await?;
    api.settle(revision).await;
    Ok(StatusCode::NO_CONTENT)
}

async fn report(
    snapshot: Snapshot,
    id: MachineId,
    keep_up: u32,
) -> Result<Json<DrainReport>, Failure> {
    planned(move || drain_report(&snapshot, &id, keep_up)).await.map(Json)
}

/// A number that is zero unless it is given.
fn number(params: &Params, name: &str) -> Result<u32, Failure> {
    let Some(text) = params.given(name) else { return Ok(0) };
    let bad = |_| Failure::bad(format!("{name} cannot be {text:?}: write a number such as 2"));
    text.parse().map_err(bad)
}

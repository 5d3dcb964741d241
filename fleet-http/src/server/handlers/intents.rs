//! Cordon, uncordon and drain machines, and report the progress of a drain.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::{Intent, Machine, MachineId, Snapshot};

use super::drain_report::drain_report;
use super::dry_run::dry_run;
use super::extract::{Name, Params};
use super::openapi::{self as path, DryRun, DryRunResult, Failures};
use super::planning::run_planner;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::DrainReport;

/// Cordon a machine, so that it takes no more units.
///
/// If the machine is being drained, the drain ends, and the remaining units stay. With `dryRun=1`
/// nothing is changed, and the response is the plan with status 200.
#[utoipa::path(
    post,
    path = "/machines/{id}/cordon",
    operation_id = "cordonMachine",
    tag = "machines",
    params(path::Machine, DryRun),
    responses(
        DryRunResult,
        (status = 204, description = "The machine was cordoned"),
        Failures,
    ),
)]
pub(crate) async fn cordon(
    State(api): State<SharedApi>,
    Name(id): Name,
    params: Params,
) -> Result<Response, Failure> {
    let (is_dry, known) = (params.dry_run()?, api.view()?);
    let machine = present_machine(&known, &id)?.clone().with_intent(Intent::Cordoned);
    if is_dry {
        return dry_run(&known, |after| after.put_machine(machine)).await;
    }
    Ok(set_intent(&api, &machine.id, machine.intent).await?.into_response())
}

/// Uncordon a machine, so that it takes units again.
///
/// The machine need not be present, so that its intent can be removed even if it never returns.
/// With `dryRun=1` nothing is changed, and the response is the plan with status 200.
#[utoipa::path(
    post,
    path = "/machines/{id}/uncordon",
    operation_id = "uncordonMachine",
    tag = "machines",
    params(path::Machine, DryRun),
    responses(
        DryRunResult,
        (status = 204, description = "The machine was uncordoned"),
        Failures,
    ),
)]
pub(crate) async fn uncordon(
    State(api): State<SharedApi>,
    Name(id): Name,
    params: Params,
) -> Result<Response, Failure> {
    let id: MachineId = id.parse().map_err(Failure::bad_request)?;
    if !params.dry_run()? {
        return Ok(set_intent(&api, &id, None).await?.into_response());
    }
    let known = api.view()?;
    let freed = known.machine(id.as_str()).map(|machine| Machine {
        cordoned: false,
        intent: None,
        ..Machine::clone(machine)
    });
    dry_run(&known, |after| freed.into_iter().for_each(|machine| after.put_machine(machine))).await
}

/// Drain a machine, and return the first steps.
///
/// With `dryRun=1` nothing is changed.
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
            description = "Minimum number of instances of each template that must stay up",
        ),
    ),
    responses(
        (status = 200, body = DrainReport, description = "First steps of the drain"),
        Failures,
    ),
)]
pub(crate) async fn drain(
    State(api): State<SharedApi>,
    Name(id): Name,
    params: Params,
) -> Result<Json<DrainReport>, Failure> {
    let (min_available, is_dry) = (number(&params, "keepUp")?, params.dry_run()?);
    let snapshot = api.view()?;
    let intent = Intent::Drained { min_available };
    let machine = present_machine(&snapshot, &id)?.clone().with_intent(intent);
    let id = machine.id.clone();
    if !is_dry {
        set_intent(&api, &id, Some(intent)).await?;
    }
    let mut planned = Snapshot::clone(&snapshot);
    planned.put_machine(machine);
    report(planned, id, min_available).await
}

/// Remaining work of a drain.
#[utoipa::path(
    get,
    path = "/machines/{id}/drain",
    operation_id = "getDrain",
    tag = "machines",
    params(path::Machine),
    responses(
        (status = 200, body = DrainReport, description = "Remaining work of the drain"),
        Failures,
    ),
)]
pub(crate) async fn progress(
    State(api): State<SharedApi>,
    Name(id): Name,
) -> Result<Json<DrainReport>, Failure> {
    let snapshot = api.view()?;
    let machine = present_machine(&snapshot, &id)?;
    let Some(min_available) = machine.intent.and_then(Intent::min_available) else {
        return Err(Failure::not_found(format!("machine {id} is not being drained")));
    };
    let id = machine.id.clone();
    report(Snapshot::clone(&snapshot), id, min_available).await
}

/// Returns the machine with that ID if it is present.
pub(crate) fn present_machine<'a>(
    snapshot: &'a Snapshot,
    id: &str,
) -> Result<&'a Machine, Failure> {
    let machine = snapshot.machine(id).map(AsRef::as_ref);
    machine.ok_or_else(|| Failure::not_found(format!("machine {id:?} is not present")))
}

async fn set_intent(
    api: &SharedApi,
    id: &MachineId,
    intent: Option<Intent>,
) -> Result<StatusCode, Failure> {
    let revision = api.registry.set_intent(id, intent).await?;
    api.wait_until_visible(revision).await;
    Ok(StatusCode::NO_CONTENT)
}

async fn report(
    snapshot: Snapshot,
    id: MachineId,
    min_available: u32,
) -> Result<Json<DrainReport>, Failure> {
    run_planner(move || drain_report(&snapshot, &id, min_available)).await.map(Json)
}

/// Returns the value of a numeric parameter; zero if absent.
fn number(params: &Params, name: &str) -> Result<u32, Failure> {
    let Some(text) = params.non_empty(name) else { return Ok(0) };
    let bad = |_| {
        Failure::bad_request(format!(
            "query parameter {name:?}: {text:?} is not a number such as 2"
        ))
    };
    text.parse().map_err(bad)
}

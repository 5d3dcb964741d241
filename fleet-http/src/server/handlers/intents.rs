//! Cordon, uncordon and drain machines, and report the progress of a drain.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::{Intent, Machine, MachineId, Snapshot};
use fleet_scheduler::{Cluster, Drain, DrainPlan, Policy, Step, StepAction, share};

use super::extract::{Name, Params, dry_run};
use super::openapi::{self as path, DryRun, DryRunResult, Failures};
use super::plan::run_planner;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{DrainReport, HeldUnit, UnitMove};

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

/// Returns the remaining work of a drain in progress. Without one, returns the first steps of a
/// drain with the given parameters, which is not carried out.
pub(crate) async fn drain_preview(
    api: &SharedApi,
    id: &str,
    params: &Params,
) -> Result<DrainReport, Failure> {
    let snapshot = api.view()?;
    let machine = present_machine(&snapshot, id)?;
    let min_available = match machine.intent.and_then(Intent::min_available) {
        Some(min_available) => min_available,
        None => number(params, "keepUp")?,
    };
    let machine = machine.clone().with_intent(Intent::Drained { min_available });
    let id = machine.id.clone();
    let mut planned = Snapshot::clone(&snapshot);
    planned.put_machine(machine);
    report(planned, id, min_available).await.map(|Json(report)| report)
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

/// Reports the remaining work of a drain on one machine. The moves are taken from a plan that
/// covers all machines being drained.
pub(crate) fn drain_report(snapshot: &Snapshot, id: &MachineId, min_available: u32) -> DrainReport {
    let drain = Drain::from_intents(snapshot, snapshot.machines().map(AsRef::as_ref));
    let plan = drain.map(|drain| Cluster::load(Policy::default(), snapshot).drain(&drain));
    let (moves, held) = plan.map(|plan| of_machine(&plan, snapshot, id)).unwrap_or_default();
    let global = share(snapshot, id).units.into_values().filter(|(unit, _)| unit.is_global());
    DrainReport {
        global: global.map(|(unit, _)| unit.name.to_string()).collect(),
        held,
        min_available,
        leaving: leaving(snapshot, id),
        machine_id: id.to_string(),
        moves,
    }
}

/// Returns the units that move away from a machine next, and the units that cannot move yet, each
/// with the reason.
fn of_machine(
    plan: &DrainPlan,
    snapshot: &Snapshot,
    id: &MachineId,
) -> (Vec<UnitMove>, Vec<HeldUnit>) {
    let away = |step: &Step| match &step.action {
        StepAction::Move { from, to } if from == id => {
            Some(UnitMove { to: to.to_string(), unit: step.unit.to_string() })
        }
        _ => None,
    };
    let on_it = plan.held.iter().filter(|(unit, _)| {
        snapshot.placement(unit.as_str()).is_some_and(|placement| placement.machine == *id)
    });
    let held =
        on_it.map(|(unit, why)| HeldUnit { reason: why.to_string(), unit: unit.to_string() });
    (plan.plan.steps.iter().filter_map(away).collect(), held.collect())
}

/// Returns the units that are still active on a machine although the machine should no longer run
/// them.
fn leaving(snapshot: &Snapshot, id: &MachineId) -> Vec<String> {
    let belongs = share(snapshot, id).units;
    let states = snapshot.states().filter(|state| state.machine == *id);
    let leaving = states.filter(|state| {
        let placed = snapshot.placement(state.unit.as_str());
        let is_here = placed.is_some_and(|placement| placement.machine == *id);
        !state.systemd.active.has_ended() && !is_here && !belongs.contains_key(&state.unit)
    });
    leaving.map(|state| state.unit.to_string()).collect()
}

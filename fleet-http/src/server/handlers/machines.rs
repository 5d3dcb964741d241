//! Machines and their metadata.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use fleet_core::{MachineId, Snapshot};
use fleet_store::registry::MetadataChange;

use super::extract::{Name, Params, dry_run, read_body};
use super::intents::present_machine;
use super::listings::MachineFilter;
use super::openapi::{self as path, DryRun, DryRunResult, Failures, Page};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::server::stream::journal::open_failure;
use crate::server::stream::journal_source::machine_usage;
use crate::wire;
use crate::wire::{MachineEntity, MachinePage, MachineUsage, MetadataOp, decode_patch};

/// List machines.
///
/// The filter `metadata=KEY=VALUE` or `metadata=KEY` may be repeated. With `absent=1`, lists the
/// machines that this daemon has seen leave, and that are still absent.
#[utoipa::path(
    get,
    path = "/machines",
    operation_id = "listMachines",
    tag = "machines",
    params(
        Page,
        (
            "metadata" = Option<Vec<String>>, Query,
            description = "Only machines with this metadata, KEY=VALUE or KEY",
        ),
        (
            "absent" = Option<bool>, Query,
            description = "1: only absent machines, with the time since each was present",
        ),
    ),
    responses(
        (status = 200, body = MachinePage, description = "A page of machines"),
        Failures,
    ),
)]
pub(crate) async fn list(
    State(api): State<SharedApi>,
    params: Params,
) -> Result<Json<MachinePage>, Failure> {
    let listing = api.listing(&params)?;
    if params.flag("absent")? {
        return Ok(Json(absent_machines(&api)));
    }
    let filter = MachineFilter::read(&params);
    let first = listing.first.as_deref().and_then(|id| id.parse().ok());
    let wanted = from(&listing.snapshot, first.as_ref()).filter(|machine| filter.matches(machine));
    let id = |machine: &Arc<fleet_core::Machine>| machine.id.to_string();
    let (page, next_page_token) = api.page(&listing, first.is_some(), wanted, |_| 0, id);
    let machines = page.into_iter().map(|machine| wire::machine(machine)).collect();
    Ok(Json(MachinePage { machines, next_page_token }))
}

fn absent_machines(api: &SharedApi) -> MachinePage {
    let absent = api.mirror.absent_machines().into_iter().map(|(id, duration)| MachineEntity {
        id: id.to_string(),
        absent_for: Some(duration.as_secs()),
        ..MachineEntity::default()
    });
    MachinePage { machines: absent.collect(), next_page_token: String::new() }
}

/// Returns all machines from the first one on.
fn from<'a>(
    snapshot: &'a Snapshot,
    first: Option<&MachineId>,
) -> Box<dyn Iterator<Item = &'a Arc<fleet_core::Machine>> + 'a> {
    match first {
        None => Box::new(snapshot.machines()),
        Some(first) => Box::new(snapshot.machines_from(first.clone())),
    }
}

/// Get a machine that is present.
#[utoipa::path(
    get,
    path = "/machines/{id}",
    operation_id = "getMachine",
    tag = "machines",
    params(path::Machine),
    responses(
        (status = 200, body = MachineEntity, description = "The machine"),
        Failures,
    ),
)]
pub(crate) async fn get(
    State(api): State<SharedApi>,
    Name(id): Name,
) -> Result<Json<MachineEntity>, Failure> {
    Ok(Json(wire::machine(present_machine(&*api.view()?, &id)?)))
}

/// Get the resources that a machine and its units use.
///
/// Reads them on the machine. Waits at most three seconds for its daemon.
#[utoipa::path(
    get,
    path = "/machines/{id}/usage",
    operation_id = "getUsage",
    tag = "machines",
    params(path::Machine),
    responses(
        (status = 200, body = MachineUsage, description = "Resources in use"),
        Failures,
    ),
)]
pub(crate) async fn usage(
    State(api): State<SharedApi>,
    Name(id): Name,
    request: Parts,
) -> Result<Json<MachineUsage>, Failure> {
    let snapshot = api.view()?;
    let machine = &present_machine(&snapshot, &id)?.id;
    let usage = machine_usage(&api, machine, &request).await;
    Ok(Json(usage.map_err(|error| open_failure(&snapshot, error))?))
}

/// Change the metadata of machines.
///
/// Either all operations are applied, or none. With `dryRun=1` nothing is changed, and the response
/// is the plan with status 200.
#[utoipa::path(
    patch,
    path = "/machines",
    operation_id = "patchMachines",
    tag = "machines",
    params(DryRun),
    request_body = Vec<MetadataOp>,
    responses(
        DryRunResult,
        (status = 204, description = "All operations were applied"),
        Failures,
    ),
)]
pub(crate) async fn patch(
    State(api): State<SharedApi>,
    params: Params,
    request: Request,
) -> Result<Response, Failure> {
    let is_dry = params.dry_run()?;
    let (head, body) = request.into_parts();
    let body = read_body(&head, body).await?;
    let changes = decode_patch(&body).map_err(Failure::bad_request)?;
    if is_dry {
        let change = |after: &mut Snapshot| changes.iter().for_each(|one| apply(after, one));
        return dry_run(&*api.view()?, change).await;
    }
    if !changes.is_empty() {
        let revision = api.registry.patch_metadata(&changes).await?;
        api.wait_until_visible(revision).await;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Applies a metadata change to a snapshot. Ignores the change if the machine is not present,
/// because an absent machine gets no units in the plan.
fn apply(after: &mut Snapshot, change: &MetadataChange) {
    let (machine, key, value) = match change {
        MetadataChange::Set { machine, key, value } => (machine, key, value.as_str()),
        MetadataChange::Remove { machine, key } => (machine, key, ""),
    };
    let Some(known) = after.machine(machine.as_str()) else { return };
    let mut machine = fleet_core::Machine::clone(known);
    match value {
        "" => machine.metadata.remove(key),
        value => machine.metadata.insert(key.clone(), value.to_owned()),
    };
    after.put_machine(machine);
}

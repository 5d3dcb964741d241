//! `POST /plan`: plans several writes without carrying them out.

use axum::extract::{Request, State};
use axum::response::Response;
use fleet_core::{Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::dry_run::dry_run;
use super::extract::read_body;
use super::openapi::Failures;
use super::put::desired_state;
use super::validate;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{PlanReport, PlanRequest, PutUnit, decode_plan};

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
) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let request_body = decode_plan(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    let known = api.view()?;
    let mut after = Snapshot::clone(&known);
    for entity in &request_body.units {
        let unit = unit(&api, entity, &after).map_err(|it| it.with_context(&name_of(entity)))?;
        after.put_unit(unit);
    }
    for name in &request_body.destroy {
        if after.unit(name).is_none() && after.fault(name).is_none() {
            return Err(Failure::no_unit().with_context(name));
        }
        after.remove_unit(name);
    }
    dry_run(&after, |_| {}).await
}

/// Returns the unit as it would be after the write. If the write contains no unit file, the unit
/// must already exist, and keeps its file.
fn unit(api: &SharedApi, entity: &PutUnit, after: &Snapshot) -> Result<Unit, Failure> {
    let name = UnitName::parse(&name_of(entity)).map_err(Failure::bad_request)?;
    let desired = desired_state(&name, entity)?;
    match validate::unit_file(entity)? {
        Some(sent) => validate::unit(&name, &sent.file, desired, api.strictness, after),
        None => {
            let known = after.unit(name.as_str()).ok_or_else(Failure::no_unit)?;
            Ok(Unit { desired: desired.unwrap_or(known.desired), ..Unit::clone(known) })
        }
    }
}

fn name_of(entity: &PutUnit) -> String {
    entity.name.clone().unwrap_or_default()
}

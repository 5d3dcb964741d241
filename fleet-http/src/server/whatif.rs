//! `POST /plan`: what an engine would do after several writes together, none of which is carried
//! out.

use axum::extract::{Request, State};
use axum::response::Response;
use fleet_core::{Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::api::Shared;
use super::extract::read_body;
use super::failure::Failure;
use super::openapi::Failures;
use super::put::desired_state;
use super::trial::trial;
use super::validate;
use crate::wire::{Plan, PlanRequest, PutUnit, decode_plan};

/// What an engine would do after several writes together, none of which is carried out.
///
/// Units are judged one after the other, each beside those before it, as if they were sent so.
#[utoipa::path(
    post,
    path = "/plan",
    operation_id = "plan",
    tag = "cluster",
    request_body = PlanRequest,
    responses(
        (status = 200, body = Plan, description = "What would be done; nothing is"),
        Failures,
    ),
)]
pub(super) async fn plan(State(api): State<Shared>, request: Request) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let asked = decode_plan(&read_body(&head, body).await?).map_err(Failure::bad)?;
    let known = api.view()?;
    let mut after = Snapshot::clone(&known);
    for entity in &asked.units {
        let unit = unit(&api, entity, &after).map_err(|it| it.about(&name_of(entity)))?;
        after.put_unit(unit);
    }
    for name in &asked.destroy {
        if after.unit(name).is_none() && after.fault(name).is_none() {
            return Err(Failure::no_unit().about(name));
        }
        after.remove_unit(name);
    }
    trial(&after, |_| {}).await
}

/// The unit as it would be. One without a file is there, and keeps the file that it has.
fn unit(api: &Shared, entity: &PutUnit, after: &Snapshot) -> Result<Unit, Failure> {
    let name = UnitName::parse(&name_of(entity)).map_err(Failure::bad)?;
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

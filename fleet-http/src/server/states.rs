//! What the machines report of their units.

use axum::Json;
use axum::extract::State;

use super::api::Shared;
use super::extract::{Name, Params};
use super::failure::Failure;
use super::openapi::{self as path, Failures, Page};
use crate::wire::{self, UnitState, UnitStatePage};

/// What the machines report of their units.
///
/// The filters are no part of a page token: who lists on repeats them.
#[utoipa::path(
    get,
    path = "/state",
    operation_id = "listStates",
    tag = "state",
    params(
        Page,
        ("machineID" = Option<String>, Query, description = "Only what that machine reports"),
        ("unitName" = Option<String>, Query, description = "Only what is reported of that unit"),
    ),
    responses(
        (status = 200, body = UnitStatePage, description = "A page of states"),
        Failures,
    ),
)]
pub(super) async fn list(
    State(api): State<Shared>,
    params: Params,
) -> Result<Json<UnitStatePage>, Failure> {
    let listing = api.listing(&params)?;
    let (machine, unit) = (params.given("machineID"), params.given("unitName"));
    let states = &listing.snapshot;
    let on_it = |state: &&std::sync::Arc<fleet_core::UnitState>| {
        machine.is_none_or(|machine| state.machine.as_str() == machine)
    };
    let (page, next_page_token) = match unit {
        // Who waits for a unit asks again and again.
        Some(unit) => api.page(&listing, states.states_of(unit).filter(on_it)),
        None => api.page(&listing, states.states().filter(on_it)),
    };
    let states = page.into_iter().map(|state| wire::state(state)).collect();
    Ok(Json(UnitStatePage { next_page_token, states }))
}

/// The state of one unit.
///
/// It is the one on the machine that the unit is placed on, or else on the first machine that
/// reports one.
#[utoipa::path(
    get,
    path = "/state/{name}",
    operation_id = "getState",
    tag = "state",
    params(path::UnitName),
    responses(
        (status = 200, body = UnitState, description = "The state where the unit is placed"),
        Failures,
    ),
)]
pub(super) async fn get(
    State(api): State<Shared>,
    Name(name): Name,
) -> Result<Json<UnitState>, Failure> {
    let snapshot = api.view()?;
    let placed = snapshot.placement(&name).map(|placement| placement.machine.as_str());
    let state = placed
        .and_then(|machine| snapshot.state(&name, machine))
        .or_else(|| snapshot.states_of(&name).next())
        .ok_or_else(|| Failure::not_found("unit state does not exist"))?;
    Ok(Json(wire::state(state)))
}

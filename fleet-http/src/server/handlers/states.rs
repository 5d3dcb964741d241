//! Unit states reported by machines.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fleet_core::{MachineId, Snapshot};
use fleet_unitfile::UnitName;

use super::extract::{Name, Params};
use super::listings::StateFilter;
use super::openapi::{self as path, Failures, Page};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire;
use crate::wire::{UnitStateEntity, UnitStatePage};

/// A state in a list.
type StateRef<'a> = &'a Arc<fleet_core::UnitState>;

/// List unit states.
///
/// Page tokens do not contain the filters, so repeat the filters in the request for each page.
#[utoipa::path(
    get,
    path = "/state",
    operation_id = "listStates",
    tag = "state",
    params(
        Page,
        ("machineID" = Option<String>, Query, description = "Only states reported by this machine"),
        ("unitName" = Option<String>, Query, description = "Only states of this unit"),
        ("template" = Option<String>, Query, description = "Only instances of this template"),
        (
            "systemdActiveState" = Option<String>, Query,
            description = "Only states with this ActiveState, such as failed",
        ),
        (
            "metadata" = Option<Vec<String>>, Query,
            description = "Only states reported by machines with this metadata, KEY=VALUE or KEY",
        ),
    ),
    responses(
        (status = 200, body = UnitStatePage, description = "A page of states"),
        Failures,
    ),
)]
pub(crate) async fn list(
    State(api): State<SharedApi>,
    params: Params,
) -> Result<Json<UnitStatePage>, Failure> {
    let listing = api.listing(&params)?;
    let (filter, unit) = (StateFilter::read(&params)?, params.non_empty("unitName"));
    let first = listing.first.as_deref().and_then(First::read);
    let snapshot = &listing.snapshot;
    let is_wanted = |state: &StateRef<'_>| filter.matches(snapshot, state);
    let wanted = from(snapshot, unit, first.as_ref()).filter(is_wanted);
    let (page, next_page_token) = api.page(&listing, first.is_some(), wanted, |_| 0, First::write);
    let states = page.into_iter().map(|state| wire::state(state)).collect();
    Ok(Json(UnitStatePage { next_page_token, states }))
}

/// Reference to a page's first state.
struct First {
    unit: UnitName,
    machine: MachineId,
}

impl First {
    fn read(text: &str) -> Option<Self> {
        let (unit, machine) = text.split_once('/')?;
        Some(Self { unit: unit.parse().ok()?, machine: machine.parse().ok()? })
    }

    fn write(state: &Arc<fleet_core::UnitState>) -> String {
        format!("{}/{}", state.unit, state.machine)
    }
}

/// Returns all states from the first one on, or those of one unit.
fn from<'a>(
    snapshot: &'a Snapshot,
    unit: Option<&'a str>,
    first: Option<&'a First>,
) -> Box<dyn Iterator<Item = StateRef<'a>> + 'a> {
    match (unit, first) {
        (None, None) => Box::new(snapshot.states()),
        (None, Some(First { unit, machine })) => {
            Box::new(snapshot.states_from(unit.clone(), machine))
        }
        // Clients that wait for a unit poll this, so it must be fast.
        (Some(unit), None) => Box::new(snapshot.states_of(unit)),
        (Some(unit), Some(First { machine, .. })) => {
            Box::new(snapshot.states_of(unit).filter(move |state| state.machine >= *machine))
        }
    }
}

/// Get the state of a unit.
///
/// Returns the state on the machine that the unit is placed on. If that machine reports no state,
/// or the unit has no placement, returns the state on the first machine that reports one.
#[utoipa::path(
    get,
    path = "/state/{name}",
    operation_id = "getState",
    tag = "state",
    params(path::UnitName),
    responses(
        (status = 200, body = UnitStateEntity, description = "The unit's state"),
        Failures,
    ),
)]
pub(crate) async fn get(
    State(api): State<SharedApi>,
    Name(name): Name,
) -> Result<Json<UnitStateEntity>, Failure> {
    let snapshot = api.view()?;
    let placed = snapshot.placement(&name).map(|placement| placement.machine.as_str());
    let state = placed
        .and_then(|machine| snapshot.state(&name, machine))
        .or_else(|| snapshot.states_of(&name).next())
        .ok_or_else(|| Failure::not_found("unit state does not exist"))?;
    Ok(Json(wire::state(state)))
}

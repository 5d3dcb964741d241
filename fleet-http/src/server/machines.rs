//! The machines that are present, and their metadata.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::api::Shared;
use super::extract::{Name, Params, read_body};
use super::failure::Failure;
use super::filters::MachineFilter;
use super::intents::present;
use crate::wire::{self, Machine, MachinePage, decode_patch};

/// `GET /machines`, with the filter `metadata=KEY=VALUE` or `metadata=KEY`, which may be repeated.
pub(super) async fn list(
    State(api): State<Shared>,
    params: Params,
) -> Result<Json<MachinePage>, Failure> {
    let listing = api.listing(&params)?;
    let filter = MachineFilter::read(&params);
    let wanted = listing.snapshot.machines().filter(|machine| filter.wants(machine));
    let (page, next_page_token) = api.page(&listing, wanted);
    let machines = page.into_iter().map(|machine| wire::machine(machine)).collect();
    Ok(Json(MachinePage { machines, next_page_token }))
}

/// `GET /machines/<id>`
pub(super) async fn get(
    State(api): State<Shared>,
    Name(id): Name,
) -> Result<Json<Machine>, Failure> {
    Ok(Json(wire::machine(present(&*api.view()?, &id)?)))
}

/// `PATCH /machines`: all operations in one transaction, or none.
pub(super) async fn patch(
    State(api): State<Shared>,
    request: Request,
) -> Result<StatusCode, Failure> {
    let (head, body) = request.into_parts();
    let body = read_body(&head, body).await?;
    let changes = decode_patch(&body).map_err(Failure::bad)?;
    if !changes.is_empty() {
        let revision = api.registry.patch_metadata(&changes).await?;
        api.settle(revision).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

//! `POST /import`: what a cluster that comes in hands over beside its units and metadata.

use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::api::Shared;
use super::extract::{Params, read_body};
use super::failure::Failure;
use super::openapi::Failures;
use crate::wire::{HandOver, decode_hand_over};

/// Takes over what another cluster hands over beside units and metadata.
///
/// What is placed from now on comes after all that machines may remember of the other cluster, and
/// the machines that were to take no units there take none here. It is asked before units come in,
/// and can be repeated.
#[utoipa::path(
    post,
    path = "/import",
    operation_id = "importCluster",
    tag = "cluster",
    request_body = HandOver,
    responses(
        (status = 204, description = "Epochs and intents are taken over"),
        Failures,
    ),
)]
pub(super) async fn import(
    State(api): State<Shared>,
    params: Params,
    request: Request,
) -> Result<StatusCode, Failure> {
    if params.dry_run()? {
        return Err(Failure::bad(
            "what an import hands over cannot be tried out: leave dryRun out",
        ));
    }
    let (head, body) = request.into_parts();
    let body = read_body(&head, body).await?;
    let (epochs, intents) = decode_hand_over(&body).map_err(Failure::bad)?;
    api.registry.raise_epochs(epochs).await?;
    for (machine, intent) in intents {
        let revision = api.registry.set_intent(&machine, Some(intent)).await?;
        api.settle(revision).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

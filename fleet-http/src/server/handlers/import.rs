//! `POST /import`: prepares the import of another cluster.

use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::extract::{Params, read_body};
use super::openapi::Failures;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{ImportRequest, decode_import};

/// Prepare an import.
///
/// Call this operation before you create the imported units. Afterwards, new placements supersede
/// all placements of the imported cluster that machines still remember. The machines in `intents`
/// are cordoned or drained, as they were in the imported cluster. The operation can be repeated.
#[utoipa::path(
    post,
    path = "/import",
    operation_id = "importCluster",
    tag = "cluster",
    request_body = ImportRequest,
    responses(
        (status = 204, description = "The import was prepared"),
        Failures,
    ),
)]
pub(crate) async fn import(
    State(api): State<SharedApi>,
    params: Params,
    request: Request,
) -> Result<StatusCode, Failure> {
    if params.dry_run()? {
        return Err(Failure::bad_request("an import cannot be a dry run: omit dryRun"));
    }
    let (head, body) = request.into_parts();
    let body = read_body(&head, body).await?;
    let (epochs, intents) = decode_import(&body).map_err(Failure::bad_request)?;
    api.registry.raise_epochs(epochs).await?;
    for (machine, intent) in intents {
        let revision = api.registry.set_intent(&machine, Some(intent)).await?;
        api.wait_until_visible(revision).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

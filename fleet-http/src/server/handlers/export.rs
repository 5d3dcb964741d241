//! `GET /export`: the whole cluster at one revision, as a portable file. `POST /import`: prepares
//! the import of another cluster.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use fleet_core::Strictness;
use fleet_store::transfer::ExportLines;
use futures_util::stream;

use super::extract::{Params, read_body};
use super::openapi::Failures;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::STRICTNESS;
use crate::wire::{ImportRequest, decode_import};

/// Size in bytes at which a chunk is sent. A chunk may be larger, because it contains only whole
/// lines.
const CHUNK_SIZE: usize = 64 << 10;

/// Export the cluster.
///
/// Returns the lines of a portable file, generated from one snapshot. If the daemon cannot reach
/// its store, returns 503, because the snapshot may be outdated and the file would not show its
/// age.
#[utoipa::path(
    get,
    path = "/export",
    operation_id = "exportCluster",
    tag = "cluster",
    responses(
        (
            status = 200, body = String, content_type = "application/x-ndjson",
            description = "The export",
        ),
        Failures,
    ),
)]
pub(crate) async fn export(State(api): State<SharedApi>) -> Result<Response, Failure> {
    let export = api.mirror.export()?;
    let export = export
        .ok_or_else(|| api.without_store("the daemon cannot reach its store: retry later"))?;
    let mut lines = export.lines();
    let chunks = std::iter::from_fn(move || chunk(&mut lines).map(Ok::<_, Infallible>));
    let strictness = match api.strictness {
        Strictness::Refuse => "refuse",
        Strictness::Warn => "warn",
    };
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (STRICTNESS, strictness)];
    Ok((headers, Body::from_stream(stream::iter(chunks))).into_response())
}

/// Returns the next chunk of lines.
fn chunk(lines: &mut ExportLines) -> Option<Bytes> {
    let mut chunk = lines.next()?;
    while chunk.len() < CHUNK_SIZE {
        let Some(line) = lines.next() else { break };
        chunk.extend(line);
    }
    Some(chunk.into())
}

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

//! `GET /export`: the whole cluster at one revision, as a portable file.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use fleet_core::Strictness;
use fleet_store::transfer::ExportLines;
use futures_util::stream;

use super::openapi::Failures;
use crate::headers::STRICTNESS;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;

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

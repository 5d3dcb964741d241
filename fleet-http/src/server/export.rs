//! `GET /export`: the whole cluster at one revision, as the lines of a portable file.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use fleet_core::Strictness;
use fleet_store::ExportLines;
use futures_util::stream;

use super::api::Shared;
use super::failure::Failure;
use super::openapi::Failures;
use crate::STRICTNESS;

/// How much is sent at once, in bytes; a line may be longer.
const PIECE: usize = 64 << 10;

/// The whole cluster as the lines of a portable file.
///
/// It is made as it is sent, from one snapshot. What is not known to be the present state of the
/// cluster is not exported: nobody sees later how old it was.
#[utoipa::path(
    get,
    path = "/export",
    operation_id = "exportCluster",
    tag = "cluster",
    responses(
        (
            status = 200, body = String, content_type = "application/x-ndjson",
            description = "The cluster at one revision",
        ),
        Failures,
    ),
)]
pub(super) async fn export(State(api): State<Shared>) -> Result<Response, Failure> {
    let export = api.mirror.export()?.ok_or_else(|| {
        Failure::unavailable("the daemon does not see its store just now: export again later")
    })?;
    let mut lines = export.lines();
    let pieces = std::iter::from_fn(move || piece(&mut lines).map(Ok::<_, Infallible>));
    let strictness = match api.strictness {
        Strictness::Refuse => "refuse",
        Strictness::Warn => "warn",
    };
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (STRICTNESS, strictness)];
    Ok((headers, Body::from_stream(stream::iter(pieces))).into_response())
}

/// The next lines, as many as are sent at once.
fn piece(lines: &mut ExportLines) -> Option<Bytes> {
    let mut piece = lines.next()?;
    while piece.len() < PIECE {
        let Some(line) = lines.next() else { break };
        piece.extend(line);
    }
    Some(piece.into())
}

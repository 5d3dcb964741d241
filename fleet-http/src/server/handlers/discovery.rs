//! The discovery document, a description of the API for client generators.

use super::openapi::Failures;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// Description of the API in the format of Google's discovery service. The `rootUrl` is a
/// placeholder that clients replace with the API's URL.
const DOCUMENT: &str = include_str!("../../discovery.json");

/// Discovery document.
#[utoipa::path(
    get,
    path = "/discovery",
    operation_id = "getDiscovery",
    tag = "daemon",
    responses(
        (
            status = 200, body = Object,
            description = "The API in the format of Google's discovery service",
        ),
        Failures,
    ),
)]
pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}

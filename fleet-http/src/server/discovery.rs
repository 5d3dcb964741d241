//! The discovery document: the API described for programs that generate clients.

use super::openapi::Failures;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// In the format of Google's discovery service. Its `rootUrl` is unusable on purpose: a client has
/// to set it to where it found the API.
const DOCUMENT: &str = include_str!("../discovery.json");

/// The discovery document.
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
pub(super) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}

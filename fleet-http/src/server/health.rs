//! Whether the daemon lives, whether it can be relied on, and which version it is.

use axum::Json;
use axum::extract::State;

use super::api::Shared;
use super::failure::Failure;
use super::openapi::Failures;
use crate::wire::Version;

/// Whether the process answers.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "getHealth",
    tag = "daemon",
    responses(
        (
            status = 200, body = String, content_type = "text/plain",
            description = "The process answers",
        ),
        Failures,
    ),
)]
pub(super) async fn alive() -> &'static str {
    "ok"
}

/// Whether what it answers is the present state of the cluster.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "getReadiness",
    tag = "daemon",
    responses(
        (
            status = 200, body = String, content_type = "text/plain",
            description = "What it answers is the present state",
        ),
        Failures,
    ),
)]
pub(super) async fn ready(State(api): State<Shared>) -> Result<&'static str, Failure> {
    if api.mirror.is_current() {
        return Ok("ok");
    }
    Err(Failure::unavailable("the mirror of the store is not current"))
}

/// The version of the daemon.
#[utoipa::path(
    get,
    path = "/version",
    operation_id = "getVersion",
    tag = "daemon",
    responses(
        (status = 200, body = Version, description = "The version of the daemon"),
        Failures,
    ),
)]
pub(super) async fn version(State(api): State<Shared>) -> Json<Version> {
    Json(Version { version: api.version.clone() })
}

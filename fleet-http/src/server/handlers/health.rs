//! Liveness, readiness and version of the daemon.

use axum::Json;
use axum::extract::State;

use super::openapi::Failures;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::VersionResponse;

/// Check that the daemon is alive.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "getHealth",
    tag = "daemon",
    responses(
        (
            status = 200, body = String, content_type = "text/plain",
            description = "The daemon is alive",
        ),
        Failures,
    ),
)]
pub(crate) async fn alive() -> &'static str {
    "ok"
}

/// Check that responses show the current state of the cluster, and that the store accepts writes.
///
/// A refused write is reported for a minute, unless a later write succeeds.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "getReadiness",
    tag = "daemon",
    responses(
        (
            status = 200, body = String, content_type = "text/plain",
            description = "Responses are current, and writes are accepted",
        ),
        Failures,
    ),
)]
pub(crate) async fn ready(State(api): State<SharedApi>) -> Result<&'static str, Failure> {
    if api.mirror.is_current() {
        return match api.metrics.writes().problem() {
            None => Ok("ok"),
            Some(problem) => {
                Err(Failure::unavailable(format!("the store refuses writes: {problem}")))
            }
        };
    }
    Err(api.without_store(
        "the daemon has no contact with its store: its view of the cluster is outdated",
    ))
}

/// Version of the daemon, and whether its machine has joined the cluster.
#[utoipa::path(
    get,
    path = "/version",
    operation_id = "getVersion",
    tag = "daemon",
    responses(
        (status = 200, body = VersionResponse, description = "The version of the daemon"),
        Failures,
    ),
)]
pub(crate) async fn version(State(api): State<SharedApi>) -> Json<VersionResponse> {
    Json(VersionResponse { version: api.version.clone(), join_problem: (api.join_problem)() })
}

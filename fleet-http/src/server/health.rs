//! Whether the daemon lives, whether it can be relied on, and which version it is.

use axum::Json;
use axum::extract::State;

use super::api::Shared;
use super::failure::Failure;
use crate::wire::Version;

/// `GET /healthz`: the process answers.
pub(super) async fn alive() -> &'static str {
    "ok"
}

/// `GET /readyz`: what it answers is the present state of the cluster.
pub(super) async fn ready(State(api): State<Shared>) -> Result<&'static str, Failure> {
    if api.mirror.is_current() {
        return Ok("ok");
    }
    Err(Failure::unavailable("the mirror of the store is not current"))
}

/// `GET /version`
pub(super) async fn version(State(api): State<Shared>) -> Json<Version> {
    Json(Version { version: api.version.clone() })
}

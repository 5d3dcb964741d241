//! What a write would lead to, without carrying it out.

use axum::Json;
use axum::response::{IntoResponse, Response};
use fleet_core::Snapshot;

use super::failure::Failure;
use super::planning::planned;
use crate::wire;

/// The answer to a write with `dryRun=1`: the plan for the cluster as it would be after it.
///
/// What would happen without the write is in it, too, if the engine has not done it yet.
pub(super) async fn trial(
    known: &Snapshot,
    write: impl FnOnce(&mut Snapshot),
) -> Result<Response, Failure> {
    let mut after = known.clone();
    write(&mut after);
    let plan = planned(move || fleet_scheduler::plan(&after)).await?;
    Ok(Json(wire::plan(&plan)).into_response())
}

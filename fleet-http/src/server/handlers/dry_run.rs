//! Dry runs of writes.

use axum::Json;
use axum::response::{IntoResponse, Response};
use fleet_core::Snapshot;

use super::planning::run_planner;
use crate::server::failure::Failure;
use crate::wire;

/// Responds to a write with `dryRun=1`: returns the plan that would result from the write, without
/// carrying it out.
///
/// The plan contains all pending steps, even those that are unrelated to the write.
pub(crate) async fn dry_run(
    known: &Snapshot,
    write: impl FnOnce(&mut Snapshot),
) -> Result<Response, Failure> {
    let mut after = known.clone();
    write(&mut after);
    let plan = run_planner(move || fleet_scheduler::plan(&after)).await?;
    Ok(Json(wire::plan(&plan)).into_response())
}

//! Orders, reports and cancels a rebalancing.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::{RebalanceLimits, Rebalancing, Snapshot};

use super::dry_run::dry_run;
use super::extract::Params;
use super::openapi::{DryRun, DryRunResult, Failures};
use super::planning::run_planner;
use super::rebalance_report::rebalance_report;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::RebalanceReport;

/// Rebalance the cluster: move units from loaded machines to less loaded ones.
///
/// The engine moves units step by step, and waits until the moved units are up before it moves
/// more. It does not move global units, or units that no other machine accepts.
///
/// The order stays in effect until no further move is worthwhile. Repeating the order changes
/// nothing. An order with other limits replaces the earlier limits. If no move is worthwhile from
/// the beginning, no order is recorded, and `reason` in the response explains it.
///
/// With `dryRun=1` nothing is changed.
#[utoipa::path(
    post,
    path = "/rebalance",
    operation_id = "rebalance",
    tag = "cluster",
    params(
        DryRun,
        (
            "atOnce" = Option<u32>, Query, minimum = 1, maximum = 100,
            description = "Maximum number of units that move at the same time; 1 by default",
        ),
        (
            "most" = Option<u32>, Query, minimum = 1,
            description = "Maximum number of moves in total; unlimited by default",
        ),
        (
            "gain" = Option<u32>, Query,
            description = "Required gain of a move, in units; 0 by default",
        ),
        (
            "keepUp" = Option<u32>, Query,
            description = "Minimum number of instances of each template that must stay up",
        ),
    ),
    responses(
        (status = 200, body = RebalanceReport, description = "The planned moves"),
        Failures,
    ),
)]
pub(crate) async fn rebalance(
    State(api): State<SharedApi>,
    params: Params,
) -> Result<Json<RebalanceReport>, Failure> {
    let (limits, is_dry) = (limits(&params)?, params.dry_run()?);
    let snapshot = api.view()?;
    let before = snapshot.rebalancing.clone();
    let order = match &before {
        Some(before) if before.limits == limits => Rebalancing::clone(before),
        Some(before) => Rebalancing { moves: before.moves.clone(), ..Rebalancing::new(limits) },
        None => Rebalancing::new(limits),
    };
    let report = report(Snapshot::clone(&snapshot), Arc::new(order)).await?;
    // An earlier order ends if nothing is left to do within the new limits.
    if !is_dry && (!report.is_over() || before.is_some()) {
        let revision = api.registry.request_rebalancing(limits).await?;
        api.wait_until_visible(revision).await;
    }
    Ok(Json(report))
}

/// Remaining work of the rebalancing.
#[utoipa::path(
    get,
    path = "/rebalance",
    operation_id = "getRebalance",
    tag = "cluster",
    responses(
        (status = 200, body = RebalanceReport, description = "Remaining work of the rebalancing"),
        Failures,
    ),
)]
pub(crate) async fn progress(
    State(api): State<SharedApi>,
) -> Result<Json<RebalanceReport>, Failure> {
    let snapshot = api.view()?;
    let Some(order) = snapshot.rebalancing.clone() else {
        return Err(Failure::not_found("the cluster is not being rebalanced"));
    };
    report(Snapshot::clone(&snapshot), order).await.map(Json)
}

/// Cancel the rebalancing.
///
/// Units that were moved stay where they are. With `dryRun=1` nothing is changed, and the response
/// is the plan with status 200.
#[utoipa::path(
    delete,
    path = "/rebalance",
    operation_id = "endRebalance",
    tag = "cluster",
    params(DryRun),
    responses(
        DryRunResult,
        (status = 204, description = "The rebalancing was cancelled"),
        Failures,
    ),
)]
pub(crate) async fn end(State(api): State<SharedApi>, params: Params) -> Result<Response, Failure> {
    if params.dry_run()? {
        return dry_run(&*api.view()?, |after| after.rebalancing = None).await;
    }
    let revision = api.registry.end_rebalancing().await?;
    api.wait_until_visible(revision).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn report(
    mut snapshot: Snapshot,
    order: Arc<Rebalancing>,
) -> Result<RebalanceReport, Failure> {
    snapshot.rebalancing = Some(order.clone());
    run_planner(move || rebalance_report(&snapshot, &order)).await
}

fn limits(params: &Params) -> Result<RebalanceLimits, Failure> {
    let usual = RebalanceLimits::default();
    let at_once = number(params, "atOnce", 1..=RebalanceLimits::MAX_IN_FLIGHT)?;
    Ok(RebalanceLimits {
        max_in_flight: at_once.unwrap_or(usual.max_in_flight),
        gain: number(params, "gain", 0..=u32::MAX)?.unwrap_or(usual.gain),
        min_available: number(params, "keepUp", 0..=u32::MAX)?.unwrap_or(usual.min_available),
        max_moves: number(params, "most", 1..=u32::MAX)?,
    })
}

fn number(
    params: &Params,
    name: &str,
    allowed: RangeInclusive<u32>,
) -> Result<Option<u32>, Failure> {
    let Some(text) = params.non_empty(name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    let (least, most) = allowed.into_inner();
    number.map(Some).ok_or_else(|| {
        Failure::bad_request(format!(
            "query parameter {name:?}: {text:?} is not a number from {least} to {most}"
        ))
    })
}

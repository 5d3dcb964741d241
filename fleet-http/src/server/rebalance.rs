//! To spread the units of a cluster more evenly: the order to do so, and how far it has come.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::{BalanceTerms, Rebalancing, Snapshot};

use super::api::Shared;
use super::extract::Params;
use super::failure::Failure;
use super::openapi::{DryRun, Failures, Tried};
use super::planning::planned;
use super::rebalance_report::rebalance_report;
use super::trial::trial;
use crate::wire::RebalanceReport;

/// Has units moved from full machines to emptier ones, and tells which.
///
/// The engine moves them step by step, and waits until those under way are up before it moves more.
/// Global units, and those that no other machine takes, stay. The order stays until no move is
/// worth it; to give it again changes nothing, and other terms take the place of those before.
/// Where no move is worth it, no order is given, and `reason` tells why. With `dryRun=1` nothing
/// is done.
#[utoipa::path(
    post,
    path = "/rebalance",
    operation_id = "rebalance",
    tag = "cluster",
    params(
        DryRun,
        (
            "atOnce" = Option<u32>, Query, minimum = 1, maximum = 100,
            description = "How many units may be under way at the same time; 1 unless it is given",
        ),
        (
            "most" = Option<u32>, Query, minimum = 1,
            description = "How many units may be moved in all; as many as it takes by default",
        ),
        (
            "gain" = Option<u32>, Query,
            description = "By how many units more than one the machine that is left must be fuller",
        ),
        (
            "keepUp" = Option<u32>, Query,
            description = "How many instances of a template must be up at any time",
        ),
    ),
    responses(
        (status = 200, body = RebalanceReport, description = "What is to be done, as things stand"),
        Failures,
    ),
)]
pub(super) async fn rebalance(
    State(api): State<Shared>,
    params: Params,
) -> Result<Json<RebalanceReport>, Failure> {
    let (terms, is_dry) = (terms(&params)?, params.dry_run()?);
    let snapshot = api.view()?;
    let before = snapshot.rebalancing.clone();
    let order = match &before {
        Some(before) if before.terms == terms => Rebalancing::clone(before),
        Some(before) => Rebalancing { moving: before.moving.clone(), ..Rebalancing::new(terms) },
        None => Rebalancing::new(terms),
    };
    let report = report(Snapshot::clone(&snapshot), Arc::new(order)).await?;
    // What was ordered before ends where by these terms nothing is to be done.
    if !is_dry && (!report.is_over() || before.is_some()) {
        let revision = api.registry.order_rebalancing(terms).await?;
        api.settle(revision).await;
    }
    Ok(Json(report))
}

/// What is left to be done for the order to rebalance.
#[utoipa::path(
    get,
    path = "/rebalance",
    operation_id = "getRebalance",
    tag = "cluster",
    responses(
        (status = 200, body = RebalanceReport, description = "What is left to be done"),
        Failures,
    ),
)]
pub(super) async fn progress(State(api): State<Shared>) -> Result<Json<RebalanceReport>, Failure> {
    let snapshot = api.view()?;
    let Some(order) = snapshot.rebalancing.clone() else {
        return Err(Failure::not_found("the cluster is not being rebalanced"));
    };
    report(Snapshot::clone(&snapshot), order).await.map(Json)
}

/// Takes the order to rebalance back, if there is one.
///
/// Who was moved stays where it is now. With `dryRun=1` nothing is done, and 200 tells the plan.
#[utoipa::path(
    delete,
    path = "/rebalance",
    operation_id = "endRebalance",
    tag = "cluster",
    params(DryRun),
    responses(
        Tried,
        (status = 204, description = "Nobody is moved for it any more"),
        Failures,
    ),
)]
pub(super) async fn end(State(api): State<Shared>, params: Params) -> Result<Response, Failure> {
    if params.dry_run()? {
        return trial(&*api.view()?, |after| after.rebalancing = None).await;
    }
    let revision = api.registry.end_rebalancing().await?;
    api.settle(revision).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn report(
    mut snapshot: Snapshot,
    order: Arc<Rebalancing>,
) -> Result<RebalanceReport, Failure> {
    snapshot.rebalancing = Some(order.clone());
    planned(move || rebalance_report(&snapshot, &order)).await
}

fn terms(params: &Params) -> Result<BalanceTerms, Failure> {
    let usual = BalanceTerms::default();
    let at_once = number(params, "atOnce", 1..=BalanceTerms::MOST_AT_ONCE)?;
    Ok(BalanceTerms {
        at_once: at_once.unwrap_or(usual.at_once),
        gain: number(params, "gain", 0..=u32::MAX)?.unwrap_or(usual.gain),
        keep_up: number(params, "keepUp", 0..=u32::MAX)?.unwrap_or(usual.keep_up),
        most: number(params, "most", 1..=u32::MAX)?,
    })
}

fn number(
    params: &Params,
    name: &str,
    allowed: RangeInclusive<u32>,
) -> Result<Option<u32>, Failure> {
    let Some(text) = params.given(name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    let (least, most) = allowed.into_inner();
    number.map(Some).ok_or_else(|| {
        Failure::bad(format!("{name} cannot be {text:?}: write a number from {least} to {most}"))
    })
}

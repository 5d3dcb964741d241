//! Orders, reports and cancels a rebalancing. The report says what the rebalancing waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
use fleet_core::{ActiveState, Machine, MachineId, Snapshot};
use fleet_scheduler::{
    Cluster, Drain, HoldReason, Policy, Rebalance, Step, StepAction, StepCause, share,
};
use fleet_unitfile::UnitName;

use super::extract::{Params, dry_run};
use super::openapi::{DryRun, DryRunResult, Failures};
use super::plan::run_planner;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire;
use crate::wire::{MachineLoad, PendingMove, RebalanceMove, RebalanceReport};

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

/// Maximum number of awaited units named in a message.
const MAX_NAMED: usize = 3;

/// Reports the remaining work of a rebalancing. The report lists all remaining moves, although the
/// engine carries them out a few at a time.
pub(crate) fn rebalance_report(snapshot: &Snapshot, order: &Rebalancing) -> RebalanceReport {
    let rebalance = Rebalance::remaining(snapshot).unwrap_or_default();
    let mut cluster = Cluster::load(Policy::default(), snapshot);
    let mut moves = balance_moves(&mut cluster, &rebalance);
    let once_up = rebalance.assuming_recovery(snapshot).filter(|_| moves.is_empty());
    if let Some(once_up) = &once_up {
        moves = balance_moves(&mut cluster, once_up);
    }
    let machines = loads(snapshot, &moves);
    let under_way =
        order.in_flight(snapshot).map(|(unit, moving)| pending_move(snapshot, unit, moving));
    let under_way: Vec<PendingMove> = under_way.collect();
    let mut report = RebalanceReport {
        order: wire::rebalance_order(order),
        machines,
        moves,
        under_way,
        ..RebalanceReport::default()
    };
    if report.is_over() {
        return RebalanceReport { reason: no_move_reason(order, &report.machines), ..report };
    }
    let once_up = once_up.filter(|_| !report.moves.is_empty());
    let awaited =
        once_up.map(|once_up| rebalance.down.difference(&once_up.down).cloned().collect());
    let ups = || awaited.map(|awaited| wait_for_instances(snapshot, &report.moves, &awaited));
    let wait = wait_for_drain(snapshot, &mut cluster).or_else(ups);
    let waits_alone = order.moves_allowed(snapshot) == 0 || report.moves.is_empty();
    let all_failed = order.in_flight(snapshot).all(|(unit, _)| has_failed(snapshot, unit));
    report.stuck = all_failed && wait.as_ref().map_or(waits_alone, |wait| wait.stuck);
    report.waits = wait.map(|wait| wait.why).unwrap_or_default();
    report
}

/// Reason why no further move can start now. `stuck` is `true` if the reason cannot go away without
/// intervention.
struct Wait {
    why: String,
    stuck: bool,
}

/// Returns the reason to wait if a drain must be completed first. This applies in two cases:
///
/// - A drain can move units now. This wait is never stuck.
/// - A drain can move a unit once more instances of its template are up. This wait is stuck if all
///   instances of that template that are not up have failed.
///
/// Otherwise returns `None`, for example if no other machine accepts the remaining units.
fn wait_for_drain(snapshot: &Snapshot, cluster: &mut Cluster) -> Option<Wait> {
    let drain = Drain::from_intents(snapshot, snapshot.machines().map(AsRef::as_ref))?;
    let plan = cluster.drain(&drain);
    let machines: Vec<&str> = drain.machines.iter().map(MachineId::short).collect();
    let first = format!("{} must be drained first", machines.join(", "));
    let steps = plan.plan.steps.len();
    if steps > 0 {
        return Some(Wait { why: format!("{first}: {steps} units are to move"), stuck: false });
    }
    let is_short = |held: &HoldReason| matches!(held, HoldReason::MinAvailable { .. });
    let (unit, held) = plan.held.iter().find(|(_, held)| is_short(held))?;
    let may_come = |unit: &UnitName| !has_failed(snapshot, unit);
    let stuck = !drain.down.iter().any(|unit| is_instance_of(unit, held) && may_come(unit));
    Some(Wait { why: format!("{first}, but {unit} stays for now: {held}"), stuck })
}

fn is_instance_of(unit: &UnitName, held: &HoldReason) -> bool {
    let HoldReason::MinAvailable { template, .. } = held else { return false };
    unit.template().as_ref() == Some(template)
}

/// Returns the reason to wait if `moves` cannot begin because too few instances of the moved units'
/// templates are up. `down` contains the units that are not up but may still come up.
fn wait_for_instances(
    snapshot: &Snapshot,
    moves: &[RebalanceMove],
    down: &BTreeSet<UnitName>,
) -> Wait {
    let units = moves.iter().filter_map(|it| it.unit.parse::<UnitName>().ok());
    let templates: BTreeSet<UnitName> = units.filter_map(|unit| unit.template()).collect();
    let has_template = |unit: &&UnitName| unit.template().is_some_and(|it| templates.contains(&it));
    let awaited: Vec<&UnitName> = down.iter().filter(has_template).collect();
    let stuck = awaited.iter().all(|unit| has_failed(snapshot, unit));
    let statuses = awaited.iter().take(MAX_NAMED).filter_map(|unit| {
        let at = &snapshot.placement(unit.as_str())?.machine;
        Some(format!("{unit} is not up on {}: {}", at.short(), current_status(snapshot, unit, at)))
    });
    let statuses = statuses.collect::<Vec<_>>().join("; ");
    Wait { why: format!("too few instances are up; {statuses}"), stuck }
}

/// Returns whether a unit has failed where it is placed: its machine reports a failed state or an
/// error for the current placement. Such a unit comes up only after intervention.
fn has_failed(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let Some(placement) = snapshot.placement(unit.as_str()) else { return false };
    let state = snapshot.state(unit.as_str(), placement.machine.as_str());
    state.is_some_and(|state| {
        let failed = state.systemd.active == ActiveState::Failed || state.problem.is_some();
        state.epoch == placement.epoch && failed
    })
}

fn balance_moves(cluster: &mut Cluster, rebalance: &Rebalance) -> Vec<RebalanceMove> {
    let steps = cluster.rebalance(rebalance).steps;
    let moves = steps.iter().filter(|step| step.cause == StepCause::Rebalanced);
    moves.filter_map(balance_move).collect()
}

fn balance_move(step: &Step) -> Option<RebalanceMove> {
    let StepAction::Move { from, to } = &step.action else { return None };
    let unit = step.unit.to_string();
    Some(RebalanceMove { from: from.to_string(), to: to.to_string(), unit })
}

/// Returns the load of each machine before and after the moves.
fn loads(snapshot: &Snapshot, moves: &[RebalanceMove]) -> Vec<MachineLoad> {
    let mut changes: BTreeMap<&str, i64> = BTreeMap::new();
    for it in moves {
        *changes.entry(&it.from).or_default() -= 1;
        *changes.entry(&it.to).or_default() += 1;
    }
    let load = |machine: &Machine| {
        let units = u32::try_from(share(snapshot, &machine.id).units.len()).unwrap_or(u32::MAX);
        let change = changes.get(machine.id.as_str()).copied().unwrap_or(0);
        let after = u32::try_from(i64::from(units) + change).unwrap_or(0);
        MachineLoad { after, machine_id: machine.id.to_string(), units }
    };
    snapshot.machines().map(|machine| load(machine)).collect()
}

/// Returns the reason that no unit is to move.
fn no_move_reason(order: &Rebalancing, machines: &[MachineLoad]) -> String {
    if order.moves_left() == 0 {
        return format!("the limit of {} moves is reached", order.moved);
    }
    let loads = machines.iter().map(|machine| machine.units);
    match (loads.clone().min(), loads.max()) {
        (Some(least), Some(most)) if machines.len() > 1 && least == most => {
            format!("each machine has {most} units")
        }
        (Some(least), Some(most)) if machines.len() > 1 => format!(
            "the machines have {least} to {most} units, and no allowed move would improve the \
             balance"
        ),
        _ => "there is no other machine".to_owned(),
    }
}

fn pending_move(snapshot: &Snapshot, unit: &UnitName, moving: &RecentMove) -> PendingMove {
    let reason = current_status(snapshot, unit, &moving.to);
    PendingMove { reason, to: moving.to.to_string(), unit: unit.to_string() }
}

fn current_status(snapshot: &Snapshot, unit: &UnitName, machine: &MachineId) -> String {
    let Some(state) = snapshot.state(unit.as_str(), machine.as_str()) else {
        return "its machine has not reported it yet".to_owned();
    };
    let systemd = &state.systemd;
    match &state.problem {
        Some(problem) => problem.clone(),
        None => format!("it is {} ({})", systemd.active, systemd.sub),
    }
}

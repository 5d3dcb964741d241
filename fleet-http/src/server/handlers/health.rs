//! Liveness, readiness, version and metrics of the daemon.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use fleet_core::{Reason, Snapshot, TargetState};
use fleet_store::Mirror;
use fleet_store::mirror::MirrorStatus;
use fleet_unitfile::UnitName;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::openapi::Failures;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire;
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

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics in the OpenMetrics text format.
///
/// The metrics are available even if the daemon cannot reach its store.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "daemon",
    responses(
        (
            status = 200, body = String, content_type = "application/openmetrics-text",
            description = "Metrics for Prometheus",
        ),
        Failures,
    ),
)]
pub(crate) async fn metrics(State(api): State<SharedApi>) -> Result<Response, Failure> {
    let now = now(&api.mirror, api.hub().subscribers());
    let text = api.metrics.text(&now).map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write metrics: {error}"))
    })?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

type Counts = BTreeMap<Vec<(&'static str, String)>, i64>;

fn now(mirror: &Mirror, subscribers: usize) -> Registry {
    let snapshot = mirror.snapshot();
    let behind = match mirror.status() {
        MirrorStatus::Synced => 0,
        MirrorStatus::Behind { duration } => duration.as_secs(),
    };
    let mut registry = Registry::with_prefix("fleet");
    let mut number = |name: &str, help: &str, value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value.try_into().unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    };
    let help = "Seconds since the daemon lost contact with its store; 0 if it has contact";
    number("mirror_behind_seconds", help, behind);
    number("mirror_revision", "Revision of the daemon's mirror of the store", snapshot.revision.0);
    number("mirror_resyncs", "Number of full reads of the store", mirror.resyncs());
    number("event_subscribers", "Clients that follow events of this daemon", subscribers as u64);
    number("machines", "Machines that are present", snapshot.machines().len() as u64);
    number("placements", "Units that are placed on a machine", snapshot.placements().len() as u64);
    let help = "Stored units that cannot be decoded";
    number("invalid_units", help, snapshot.faults().len() as u64);
    table(&mut registry, "units", "Units by desired state", units(&snapshot));
    let help = "Units without a machine by kind of reason";
    table(&mut registry, "unplaced_units", help, unplaced(&snapshot));
    let help = "Machines that refuse unplaced units, by the first rule that refused";
    table(&mut registry, "refusals", help, refusals(&snapshot));
    registry
}

fn table(registry: &mut Registry, name: &str, help: &str, counts: Counts) {
    let family = Family::<Vec<(&'static str, String)>, Gauge>::default();
    for (labels, count) in counts {
        family.get_or_create_owned(&labels).set(count);
    }
    registry.register(name, help, family);
}

fn units(snapshot: &Snapshot) -> Counts {
    let states = [TargetState::Inactive, TargetState::Loaded, TargetState::Launched];
    let labels = |state: TargetState| vec![("desired", state.to_string())];
    let mut counts: Counts = states.map(|state| (labels(state), 0)).into();
    let mut found = [0; 3];
    for unit in snapshot.units() {
        let at = states.iter().position(|state| *state == unit.desired);
        at.into_iter().for_each(|at| found[at] += 1);
    }
    counts.extend(states.map(labels).into_iter().zip(found));
    counts
}

fn unplaced(snapshot: &Snapshot) -> Counts {
    let mut counts = Counts::new();
    // Some reasons belong to units that are still placed on an absent machine.
    let has_none = |name: &UnitName| snapshot.placement(name.as_str()).is_none();
    for (_, reason) in snapshot.reasons().filter(|(name, _)| has_none(name)) {
        *counts.entry(vec![("reason", wire::reason_detail(reason).kind)]).or_default() += 1;
    }
    counts
}

fn refusals(snapshot: &Snapshot) -> Counts {
    let mut counts = Counts::new();
    for (_, reason) in snapshot.reasons() {
        let (Reason::NoMachineFits { tallies, .. } | Reason::NoMachineFitsGroup { tallies, .. }) =
            reason.as_ref()
        else {
            continue;
        };
        for tally in tallies {
            let labels = vec![("rule", tally.refusal.rule_name().to_owned())];
            *counts.entry(labels).or_default() += i64::from(tally.machines);
        }
    }
    counts
}

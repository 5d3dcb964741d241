//! `POST /units`: writes of several units that are made together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fleet_core::{Revision, Snapshot, TargetState, Unit};
use fleet_store::RegistryError;
use fleet_store::registry::{BulkError, BulkWrite, NewUnit, PlacementsUnchanged, UnitWrite};
use fleet_unitfile::UnitName;

use super::extract::{Params, plan_report, read_body, revision_of, tag_of};
use super::openapi::{DryRun, DryRunResult, Failures};
use super::put::{check_start_order, desired_state, validated_file, validated_unit};
use super::rollouts::{SplitWrites, split};
use crate::clock::wall_time;
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{BulkReport, BulkRequest, PlanReport, PutUnit, WrittenUnit, decode_bulk};

/// Maximum number of attempts when other writers change the units concurrently.
const MAX_ATTEMPTS: usize = 10;

/// Number of attempts that require the latest placements of destroyed units to be known.
const STRICT_ATTEMPTS: usize = 7;

/// Time to wait in each attempt for the change of another writer to be visible.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of changes that an error lists.
const MAX_LISTED: usize = 5;

/// Write several units together.
///
/// Validates the units in order, as if they were sent one by one, then destroys and restarts
/// others. Writes all or nothing. More than thirty units can take several steps, each of which
/// is made entirely or not at all.
///
/// With `rollout`, the daemon that leads the cluster updates the units in batches.
///
/// With `dryRun=1` nothing is changed, and the response is the plan.
#[utoipa::path(
    post,
    path = "/units",
    operation_id = "writeUnits",
    tag = "units",
    params(DryRun),
    request_body = BulkRequest,
    responses(
        DryRunResult,
        (status = 202, body = BulkReport, description = "All units were written"),
        Failures,
    ),
)]
pub(crate) async fn write(
    State(api): State<SharedApi>,
    params: Params,
    request: Request,
) -> Result<Response, Failure> {
    let is_dry = params.dry_run()?;
    let (head, body) = request.into_parts();
    let request = decode_bulk(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    if is_dry {
        return Ok(Json(preview(&api, &request).await?).into_response());
    }
    Ok((StatusCode::ACCEPTED, Json(carry_out(&api, request).await?)).into_response())
}

/// Returns the plan that would result from the writes, without making them.
pub(crate) async fn preview(api: &SharedApi, request: &BulkRequest) -> Result<PlanReport, Failure> {
    check_names(request)?;
    let known = api.view()?;
    check_unchanged(api, request)?;
    let Prepared { after, .. } = prepare(api, request, &known)?;
    let revision = tag_of(&api.mirror, known.revision);
    Ok(PlanReport { revision, ..plan_report(after).await? })
}

/// Makes the writes, and waits until reads on this server show them.
pub(crate) async fn carry_out(
    api: &SharedApi,
    mut request: BulkRequest,
) -> Result<BulkReport, Failure> {
    check_names(&request)?;
    let names: BTreeSet<String> = names(&request).map(str::to_owned).collect();
    for attempt in 1..=MAX_ATTEMPTS {
        match write_once(api, &request, attempt > STRICT_ATTEMPTS).await {
            Ok((revision, rollout)) => {
                api.wait_until_visible(revision).await;
                return Ok(BulkReport { rollout, ..report(&*api.view()?, &names) });
            }
            Err(AttemptError::Final(failure)) => {
                return Err(with_progress(failure, names.len(), &request));
            }
            Err(AttemptError::Outdated { written, visible }) => {
                remove_written(&mut request, written);
                wait_for(api, visible).await;
            }
        }
    }
    Err(with_progress(RegistryError::Conflict.into(), names.len(), &request))
}

/// Error of one attempt.
enum AttemptError {
    Final(Failure),
    /// Another writer has changed the cluster after `written` writes of the request. The view of it
    /// is recent enough at revision `visible`.
    Outdated {
        written: usize,
        visible: Revision,
    },
}

impl From<Failure> for AttemptError {
    fn from(failure: Failure) -> Self {
        Self::Final(failure)
    }
}

/// Prepares and makes all writes of the request. Returns the revision of the last write and, if
/// units are updated by a rollout, its number.
async fn write_once(
    api: &SharedApi,
    request: &BulkRequest,
    any_placement: bool,
) -> Result<(Revision, Option<u64>), AttemptError> {
    // The condition is older than the snapshot, so it covers every later placement.
    let placements = PlacementsUnchanged::since_now(&api.mirror);
    let known = api.view()?;
    check_unchanged(api, request)?;
    let Prepared { writes, after } = prepare(api, request, &known)?;
    let (writes, rollout) = match &request.rollout {
        Some(options) => {
            let strategy = options.strategy().map_err(Failure::bad_request)?;
            let SplitWrites { rollout, others } =
                split(writes, strategy, (&known, &after), &api.mirror)?;
            (others, rollout)
        }
        None => (writes, None),
    };
    let placements = request.if_unchanged_since.is_some().then_some(placements);
    let bulk = BulkWrite { seen: &known, writes, rollout, placements, any_placement };
    let BulkError { error, written } = match api.registry.write_units(&bulk, &api.mirror).await {
        Ok((revision, rollout)) => return Ok((revision, rollout.map(|id| id.0))),
        Err(error) => error,
    };
    match error {
        // A second attempt would find the units in the rollout of the first one.
        error if written > 0 && request.rollout.is_some() => Err(AttemptError::Final(error.into())),
        RegistryError::Changed { modified, .. } if modified > known.revision => {
            Err(AttemptError::Outdated { written, visible: modified })
        }
        RegistryError::NotFound { .. } | RegistryError::Conflict => {
            Err(AttemptError::Outdated { written, visible: known.revision.next() })
        }
        error => Err(AttemptError::Final(error.into())),
    }
}

/// Removes the first writes, which were made, from a request.
fn remove_written(request: &mut BulkRequest, mut written: usize) {
    if written == 0 {
        return;
    }
    let done: Vec<String> = names(request).take(written).map(str::to_owned).collect();
    done.iter().for_each(|name| drop(request.expected_hashes.remove(name)));
    // The plan was carried out in part, so the cluster has changed since.
    request.if_unchanged_since = None;
    let units = written.min(request.units.len());
    request.units.drain(..units);
    written -= units;
    for list in [&mut request.destroy, &mut request.restart] {
        let count = written.min(list.len());
        list.drain(..count);
        written -= count;
    }
}

/// Adds to an error how many of `total` units were written.
fn with_progress(failure: Failure, total: usize, left: &BulkRequest) -> Failure {
    match total - names(left).count() {
        0 => failure,
        written => failure.with_context(&format!("only {written} of {total} units were written")),
    }
}

/// Returns the names of the units in the order of their writes.
fn names(request: &BulkRequest) -> impl Iterator<Item = &str> {
    let units = request.units.iter().map(|entity| entity.name.as_deref().unwrap_or_default());
    units.chain(request.destroy.iter().chain(&request.restart).map(String::as_str))
}

async fn wait_for(api: &SharedApi, revision: Revision) {
    // A timeout is no error: the next attempt finds out whether the view is recent enough.
    drop(tokio::time::timeout(VISIBILITY_TIMEOUT, api.mirror.wait_for(revision)).await);
}

/// Returns the generations of the units that exist.
fn report(known: &Snapshot, names: &BTreeSet<String>) -> BulkReport {
    let units = names.iter().filter_map(|name| known.unit(name));
    let written = |unit: &Arc<Unit>| WrittenUnit {
        generation: unit.generation.0,
        name: unit.name.to_string(),
    };
    BulkReport { units: units.map(written).collect(), ..BulkReport::default() }
}

/// Checks that nothing has changed since the plan of the request.
fn check_unchanged(api: &SharedApi, request: &BulkRequest) -> Result<(), Failure> {
    let Some(text) = &request.if_unchanged_since else { return Ok(()) };
    let refused = |message: String| Failure::new(StatusCode::PRECONDITION_FAILED, message);
    let changes = revision_of(text, &api.mirror)
        .and_then(|revision| api.mirror.delta_since(revision).changes)
        .ok_or_else(|| refused("the plan is too old to carry out: plan again".to_owned()))?;
    if changes.is_empty() {
        return Ok(());
    }
    let units = changes.units.iter().map(ToString::to_string);
    let machines = changes.machines.iter().map(|machine| format!("machine {machine}"));
    let moved = changes.placements.difference(&changes.units);
    let placements = moved.map(|unit| format!("the placement of {unit}"));
    let rebalancing = changes.rebalancing.then(|| "the rebalancing request".to_owned());
    let all: Vec<String> = units.chain(machines).chain(placements).chain(rebalancing).collect();
    let (listed, more) = all.split_at(all.len().min(MAX_LISTED));
    let more = match more.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Err(refused(format!(
        "since the plan was made, {}{more} changed: plan again",
        listed.join(", ")
    )))
}

/// Validated writes, and the cluster after them.
struct Prepared {
    writes: Vec<UnitWrite>,
    after: Snapshot,
}

fn prepare(api: &SharedApi, request: &BulkRequest, known: &Snapshot) -> Result<Prepared, Failure> {
    check_hashes(request, known)?;
    let mut prepared = Prepared { writes: Vec::new(), after: Snapshot::clone(known) };
    for entity in &request.units {
        let name = entity.name.as_deref().unwrap_or_default();
        put(api, entity, &mut prepared).map_err(|failure| failure.with_context(name))?;
    }
    let files = prepared.writes.iter().filter(|write| matches!(write, UnitWrite::Put(_)));
    check_start_order(&prepared.after, files.map(UnitWrite::name))?;
    for text in &request.destroy {
        let name = existing(&prepared.after, text)?;
        prepared.after.remove_unit(name.as_str());
        prepared.writes.push(UnitWrite::Destroy(name));
    }
    for text in &request.restart {
        let name = existing(&prepared.after, text)?;
        let unit = prepared.after.unit(name.as_str()).ok_or_else(Failure::no_unit);
        let unit = Unit::clone(unit.map_err(|failure| failure.with_context(text))?);
        if unit.desired == TargetState::Inactive {
            return Err(Failure::conflict(format!(
                "cannot restart {name}: its desired state is inactive; start it instead"
            )));
        }
        prepared.after.put_unit(Unit { desired: TargetState::Launched, ..unit });
        prepared.writes.push(UnitWrite::Restart(name));
    }
    Ok(prepared)
}

/// Checks that no unit is written twice, because only one of the writes could take effect.
fn check_names(request: &BulkRequest) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match names(request).find(|name| !seen.insert(*name)) {
        Some(twice) => Err(Failure::bad_request(format!(
            "{twice} is in the request twice: name each unit once"
        ))),
        None => Ok(()),
    }
}

fn check_hashes(request: &BulkRequest, known: &Snapshot) -> Result<(), Failure> {
    for (name, expected) in &request.expected_hashes {
        let hash = known.unit(name).map(|unit| unit.hash().to_string());
        let is_there = hash.is_some() || known.fault(name).is_some();
        if hash.unwrap_or_default() == *expected && is_there != expected.is_empty() {
            continue;
        }
        let change = match (expected.is_empty(), is_there) {
            (true, _) => "was created",
            (false, true) => "was changed",
            (false, false) => "was destroyed",
        };
        return Err(Failure::new(
            StatusCode::PRECONDITION_FAILED,
            format!(
                "nothing was written: {name} {change} by another client: read it again and retry"
            ),
        ));
    }
    Ok(())
}

/// Adds the write of a unit.
fn put(api: &SharedApi, entity: &PutUnit, prepared: &mut Prepared) -> Result<(), Failure> {
    let name = UnitName::parse(entity.name.as_deref().unwrap_or_default());
    let name = name.map_err(Failure::bad_request)?;
    if entity.generation.is_some() {
        return Err(Failure::bad_request("only a PUT of one unit can set its generation"));
    }
    let desired = desired_state(&name, entity)?;
    let known = prepared.after.unit(name.as_str()).map(|unit| Unit::clone(unit));
    let Some(sent) = validated_file(entity)? else {
        let desired = desired.ok_or_else(|| {
            Failure::bad_request("there is neither a unit file nor a desired state: give one")
        })?;
        let known = known.ok_or_else(Failure::no_unit)?;
        prepared.after.put_unit(Unit { desired, ..known });
        prepared.writes.push(UnitWrite::SetDesired(name, desired));
        return Ok(());
    };
    let desired = desired.or(known.as_ref().map(|unit| unit.desired));
    let checks = (api.strictness, wall_time());
    let mut unit = validated_unit(&name, &sent.file, desired, checks, &prepared.after)?;
    if let Some(known) = known {
        unit.generation = known.generation;
        if sent.matches(&known.file) {
            unit.file = known.file;
        }
    }
    let new = NewUnit { name, file: unit.file.clone(), desired: unit.desired };
    prepared.after.put_unit(unit);
    prepared.writes.push(UnitWrite::Put(new));
    Ok(())
}

/// Returns the name of a unit that must exist.
fn existing(known: &Snapshot, text: &str) -> Result<UnitName, Failure> {
    let is_there = known.unit(text).is_some() || known.fault(text).is_some();
    let name = UnitName::parse(text).ok().filter(|_| is_there);
    name.ok_or_else(|| Failure::no_unit().with_context(text))
}

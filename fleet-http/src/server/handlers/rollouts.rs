//! Rollouts: made from a write of several units, listed, and controlled.

use axum::Json;
use axum::extract::{Request, State};
use fleet_core::rollout::{
    Member, MemberId, OnFailure, Rollout, RolloutId, RolloutStrategy, UnitTarget,
};
use fleet_core::{Generation, Snapshot, TargetState, Unit};
use fleet_store::registry::{
    DeferredFile, MemberFiles, NewRollout, NewUnit, RolloutFiles, UnitWrite,
};
use fleet_store::{Mirror, Registry};
use fleet_unitfile::UnitFile;

use super::extract::{Name, read_body};
use super::openapi::{self as path, Failures};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{RolloutCommand, RolloutEntity, RolloutList};

/// List the rollouts.
///
/// Includes the last ten that have ended.
#[utoipa::path(
    get,
    path = "/rollouts",
    operation_id = "listRollouts",
    tag = "units",
    responses(
        (status = 200, body = RolloutList, description = "The rollouts in their order"),
        Failures,
    ),
)]
pub(crate) async fn list(State(api): State<SharedApi>) -> Result<Json<RolloutList>, Failure> {
    let known = api.view()?;
    let rollouts = known.rollouts().map(|record| RolloutEntity::of(record, &known));
    Ok(Json(RolloutList { rollouts: rollouts.collect() }))
}

/// Get a rollout.
#[utoipa::path(
    get,
    path = "/rollouts/{id}",
    operation_id = "getRollout",
    tag = "units",
    params(path::Rollout),
    responses(
        (status = 200, body = RolloutEntity, description = "The rollout"),
        Failures,
    ),
)]
pub(crate) async fn get(
    State(api): State<SharedApi>,
    Name(id): Name,
) -> Result<Json<RolloutEntity>, Failure> {
    let known = api.view()?;
    let record = known.rollout(parse(&id)?).ok_or_else(|| no_rollout(&id))?;
    Ok(Json(RolloutEntity::of(record, &known)))
}

/// Pause, resume, abort or roll back a rollout.
///
/// A paused rollout neither writes nor judges. After an abort, each member keeps the version that
/// it has.
#[utoipa::path(
    post,
    path = "/rollouts/{id}",
    operation_id = "requestRollout",
    tag = "units",
    params(path::Rollout),
    request_body = RolloutCommand,
    responses(
        (status = 200, body = RolloutEntity, description = "The rollout after the request"),
        Failures,
    ),
)]
pub(crate) async fn request(
    State(api): State<SharedApi>,
    Name(id): Name,
    request: Request,
) -> Result<Json<RolloutEntity>, Failure> {
    let id = parse(&id)?;
    let (head, body) = request.into_parts();
    let command: RolloutCommand =
        serde_json::from_slice(&read_body(&head, body).await?).map_err(Failure::bad_request)?;
    let request = command.request().ok_or_else(|| {
        let text = "write \"pause\", \"resume\", \"abort\" or \"rollback\"";
        Failure::bad_request(format!("request: {:?} is unknown: {text}", command.request))
    })?;
    let (record, revision) = api.registry.request_rollout(id, request).await?;
    api.wait_until_visible(revision).await;
    Ok(Json(RolloutEntity::of(&record, &*api.view()?)))
}

fn parse(id: &str) -> Result<RolloutId, Failure> {
    id.parse().map_err(|_| no_rollout(id))
}

fn no_rollout(id: &str) -> Failure {
    Failure::not_found(format!("rollout {id} does not exist"))
}

/// A write of several units, split into a rollout and the writes to make at once.
pub(crate) struct SplitWrites {
    /// `None` if no unit has to be updated step by step.
    pub(crate) rollout: Option<NewRollout>,
    /// Writes to make at once: new templates, changes of desired states and removals.
    pub(crate) others: Vec<UnitWrite>,
}

/// Splits writes that were prepared for a snapshot. `after` is the cluster after all writes.
pub(crate) fn split(
    writes: Vec<UnitWrite>,
    mut strategy: RolloutStrategy,
    (known, after): (&Snapshot, &Snapshot),
    mirror: &Mirror,
) -> Result<SplitWrites, Failure> {
    let (mut members, mut files) = (Vec::new(), RolloutFiles::default());
    let (mut deferred, mut others) = (Vec::new(), Vec::new());
    for write in writes {
        let name = write.name();
        let before = known.unit(name.as_str()).map(|unit| &**unit);
        let after = after.unit(name.as_str()).map(|unit| &**unit);
        let Some(unit) = after.filter(|unit| is_rolled(before, unit)) else {
            let keeps_state = before.map(|unit| unit.desired) == after.map(|unit| unit.desired);
            let is_job = after.is_some_and(|unit| unit.requirements.job.is_some());
            if before.is_some() && keeps_state && !is_job && matches!(write, UnitWrite::Put(_)) {
                deferred.push(write);
            } else {
                others.push(write);
            }
            continue;
        };
        let generation = match (&write, before) {
            (UnitWrite::Restart(_), Some(before)) => {
                Registry::restart_generation(before, mirror, known.revision)
            }
            (_, before) => before.map_or(Generation::ZERO, |before| before.generation),
        };
        let to = UnitTarget { generation, ..UnitTarget::of(unit) };
        let from = before.map(UnitTarget::of);
        if from == Some(to) {
            others.push(write);
            continue;
        }
        if let Some(active) = known.rollout_of(name) {
            return Err(Failure::conflict(format!(
                "{name} is a member of rollout {}, which is {}: wait for its end, or abort it",
                active.id,
                active.rollout.phase.as_str()
            )));
        }
        let of_unit = members_of(unit, from, to, known);
        let file = |unit: &Unit| -> UnitFile { unit.file.clone() };
        let both = MemberFiles { from: before.map(file), to: file(unit) };
        files.members.extend(std::iter::repeat_n(both, of_unit.len()));
        members.extend(of_unit);
    }
    if members.is_empty() {
        others.extend(deferred);
        return Ok(SplitWrites { rollout: None, others });
    }
    for write in deferred {
        let UnitWrite::Put(NewUnit { name, file: to, .. }) = write else { continue };
        let before = known.unit(name.as_str()).map(|unit| unit.file.clone());
        files.deferred.extend(before.map(|from| DeferredFile { name, from, to }));
    }
    // Nothing can be restored after a restart.
    if members.iter().all(|member| member.from.is_some_and(|from| from.hash == member.to.hash)) {
        strategy.on_failure = OnFailure::Stop;
    }
    let rollout = Rollout::new(members, strategy).map_err(Failure::bad_request)?;
    Ok(SplitWrites { rollout: Some(NewRollout { rollout, files }), others })
}

/// Returns whether a unit is updated step by step. A job, a new global unit, and a unit that
/// becomes global or is global no longer, is not.
fn is_rolled(before: Option<&Unit>, after: &Unit) -> bool {
    let was_global = before.map(Unit::is_global);
    after.desired == TargetState::Launched
        && after.is_wanted()
        && !after.is_job()
        && was_global.unwrap_or(false) == after.is_global()
}

/// Returns the members of a unit: itself or, if it is global, one for each machine.
fn members_of(
    unit: &Unit,
    from: Option<UnitTarget>,
    to: UnitTarget,
    known: &Snapshot,
) -> Vec<Member> {
    let id = MemberId::from(unit.name.clone());
    if !unit.is_global() {
        return vec![Member::new(id, from, to)];
    }
    let machines = known.machines().filter(|machine| unit.requirements.admits(machine));
    let member = |machine: &std::sync::Arc<fleet_core::Machine>| {
        let id = MemberId { machine: Some(machine.id.clone()), ..id.clone() };
        Member::new(id, from, to)
    };
    machines.map(member).collect()
}

//! Jobs, schedules and failed units: the leader advances each one when something about it has
//! changed, or when its next time has come.

use std::time::Duration;

use fleet_core::job::{JobAction, JobRecord};
use fleet_core::{Snapshot, TargetState, Timestamp, Unit};
use fleet_store::registry::{Leadership, RecordUpdate, UnitWrite};
use fleet_store::{RegistryError, StoreError};
use fleet_unitfile::UnitName;
use futures_util::stream::{self, StreamExt as _};

use super::agenda::{Agenda, Pass};
use super::schedules::decide_schedule;
use super::{Engine, REPORT_INTERVAL, RETRY, TermEnd, warn};
use crate::clock::wait_until;

/// Wait before a write that the store has refused is tried again.
const POSTPONED: Duration = Duration::from_secs(10);

/// Wait before a decision is repeated whose write was refused because of another write. Usually the
/// mirror shows the other write earlier, and the wait ends. An unreadable record is never shown.
const CONFLICT: Duration = Duration::from_secs(1);

/// Number of writes in flight.
const CONCURRENT: usize = 16;

/// The next state of a job or schedule.
pub(super) struct Decision<T> {
    /// The record to store; `None` for no record.
    pub(super) next: Option<T>,
    /// Writes of units in the same step.
    pub(super) writes: Vec<UnitWrite>,
    /// Whether the record changes with time or with observations.
    pub(super) is_active: bool,
    /// Time by the wall clock at which to decide again at the latest.
    pub(super) due: Option<Timestamp>,
}

impl<T> Decision<T> {
    /// Returns the decision to keep no record.
    pub(super) fn none() -> Self {
        Self { next: None, writes: Vec::new(), is_active: false, due: None }
    }
}

impl Engine {
    /// Advances the jobs, schedules and failed units of a term. Cancel-safe, as
    /// [`run_term`](Self::run_term) is.
    pub(super) async fn run_jobs(&self, leadership: &Leadership) -> TermEnd {
        let (mirror, clock) = (&self.config.mirror, &*self.config.clock);
        if mirror.wait_for(leadership.elected()).await.is_err() {
            return TermEnd::Shutdown;
        }
        let mut progress = mirror.subscribe();
        let mut agenda = Agenda::default();
        loop {
            // Marked as seen before the changes are read, so that no change is missed.
            progress.borrow_and_update();
            let pass = self.advance_jobs(leadership, &mut agenda);
            let next = match self.heartbeat.busy(pass).await {
                Ok(()) => agenda.next_pass(clock.now(), clock.wall()),
                Err(RegistryError::Deposed { .. }) => return TermEnd::Deposed,
                Err(RegistryError::Store(StoreError::Unknown(_))) => return TermEnd::Doubt,
                Err(error) => {
                    warn("cannot advance a job or a failed unit: trying again", &error);
                    Some(clock.now().after(RETRY))
                }
            };
            tokio::select! {
                biased;
                changed = progress.changed() => if changed.is_err() { return TermEnd::Shutdown },
                () = wait_until(clock, next) => {}
            }
            if !agenda.is_empty() {
                // Machines may report many states in a short time.
                clock.sleep(REPORT_INTERVAL).await;
            }
        }
    }

    /// Advances the jobs, schedules and failed units about which something has changed.
    async fn advance_jobs(
        &self,
        leadership: &Leadership,
        agenda: &mut Agenda,
    ) -> Result<(), RegistryError> {
        let delta = self.config.mirror.full_delta_since(agenda.seen());
        // An uncertain view is no reason to judge an attempt.
        if !delta.inputs.is_current {
            return Ok(());
        }
        let now = self.config.clock.wall();
        agenda.note_changes(&delta.inputs, delta.results.as_ref(), now);
        let snapshot = &*delta.inputs.snapshot;
        let mut passes = stream::iter(agenda.next_units(snapshot))
            .map(async |unit| (self.advance_records(leadership, &unit, snapshot, now).await, unit))
            .buffer_unordered(CONCURRENT);
        let mut written = None;
        while let Some((pass, unit)) = passes.next().await {
            match pass {
                Ok(pass) => {
                    written = written.max(pass.written);
                    agenda.finish(&unit, pass);
                }
                Err(RegistryError::Conflict | RegistryError::Changed { .. }) => {
                    agenda.postpone(&unit, now.after(CONFLICT));
                }
                Err(error) if is_of_one_unit(&error) => {
                    warn(&format!("cannot advance {unit}: trying again later"), &error);
                    agenda.postpone(&unit, now.after(POSTPONED));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(revision) = written {
            self.wait_visible(revision).await;
        }
        Ok(())
    }

    /// Advances the job, the schedule and the counted failures of a unit.
    async fn advance_records(
        &self,
        leadership: &Leadership,
        name: &UnitName,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Pass, RegistryError> {
        let mirror = &self.config.mirror;
        // A unit that cannot be read may still be a job, so its records are left alone.
        if snapshot.fault(name.as_str()).is_some() {
            return Ok(Pass::default());
        }
        let unit = snapshot.unit(name.as_str()).map(|unit| &**unit);
        let seen = snapshot.job(name.as_str()).map(|record| &**record);
        let job = decide_job(unit, seen, snapshot, now);
        let mut written = None;
        if job.next.as_ref() != seen || !job.writes.is_empty() {
            if let Some(next) = &job.next {
                tracing::info!(unit = %name, phase = %next.state.phase, "advancing a job");
            }
            let (next, writes) = (job.next.as_ref(), &job.writes[..]);
            let update = RecordUpdate { unit: name, seen, next, writes, snapshot };
            written = Some(leadership.advance_job(&update, mirror).await?);
        }
        let seen = snapshot.schedule(name.as_str()).map(|record| &**record);
        let schedule = decide_schedule(name, unit, seen, snapshot, now);
        if schedule.next.as_ref() != seen || !schedule.writes.is_empty() {
            let (next, writes) = (schedule.next.as_ref(), &schedule.writes[..]);
            let update = RecordUpdate { unit: name, seen, next, writes, snapshot };
            written = written.max(Some(leadership.advance_schedule(&update, mirror).await?));
        }
        let failures = self.advance_failures(leadership, name, snapshot, now).await?;
        let runs = schedule.next.iter().flat_map(|record| &record.state.runs);
        Ok(Pass {
            written: written.max(failures.written),
            runs: runs.filter_map(|run| run.id.unit_name(name).ok()).collect(),
            is_active: job.is_active || schedule.is_active || failures.is_active,
            due: [job.due, schedule.due, failures.due].into_iter().flatten().min(),
        })
    }
}

/// Whether an error concerns one unit only, so that the leader goes on with the others.
fn is_of_one_unit(error: &RegistryError) -> bool {
    match error {
        RegistryError::Deposed { .. } => false,
        RegistryError::Store(error) => matches!(error, StoreError::Invalid(_)),
        _ => true,
    }
}

/// Decides the next state of the job of a unit, which may not exist.
fn decide_job(
    unit: Option<&Unit>,
    seen: Option<&JobRecord>,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Decision<JobRecord> {
    let Some(unit) = unit.filter(|unit| unit.is_job() && !unit.name.is_template()) else {
        return Decision::none();
    };
    let Some(definition) = &unit.requirements.job else { return Decision::none() };
    let mut next = match seen {
        Some(seen) if !seen.is_outdated(unit) => seen.clone(),
        None if unit.desired != TargetState::Launched => return Decision::none(),
        Some(_) | None => JobRecord::new(unit, snapshot.revision, now),
    };
    let observed = next.observe(unit, snapshot);
    let step = next.state.advance(&definition.settings, &observed, now);
    let is_over = step.actions.contains(&JobAction::Remove);
    // The end is stored first, so that the schedule of a run sees it.
    if is_over && seen == Some(&next) {
        let writes = vec![UnitWrite::Destroy(unit.name.clone())];
        return Decision { writes, ..Decision::none() };
    }
    let has_ended = next.state.outcome().is_some();
    let mut writes = Vec::new();
    // The scheduler then removes the placement, and the agent stops what still runs.
    if has_ended && unit.desired != TargetState::Inactive {
        writes.push(UnitWrite::SetDesired(unit.name.clone(), TargetState::Inactive));
    }
    let due = if is_over { Some(now) } else { step.next };
    let is_active = !has_ended || due.is_some();
    Decision { next: Some(next), writes, is_active, due }
}

//! Jobs, schedules and failed units: the leader advances each one when something about it has
//! changed, or when its next time has come.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::job::{JobAction, JobRecord};
use fleet_core::schedule::ScheduleRecord;
use fleet_core::{Revision, Snapshot, TargetState, Timestamp, Unit};
use fleet_store::mirror::{FullDelta, ResultChange};
use fleet_store::registry::{Leadership, RecordUpdate, UnitWrite};
use fleet_store::{RegistryError, StoreError};
use fleet_unitfile::UnitName;

use super::schedules::decide_schedule;
use super::{Engine, REPORT_INTERVAL, RETRY, TermEnd, warn};
use crate::clock::wait_until;

/// Maximum wait for a time of the wall clock, which may be set forward meanwhile.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// Wait before a write that the store has refused is tried again.
const POSTPONED: Duration = Duration::from_secs(10);

/// Units with a job, a schedule or counted failures that this leader has to look at again.
#[derive(Default)]
struct Agenda {
    /// Revision of the last evaluated snapshot.
    seen: Revision,
    /// Unfinished jobs, schedules and failed units, with the time by the wall clock at which each
    /// one changes by itself.
    due: BTreeMap<UnitName, Option<Timestamp>>,
    /// Units to evaluate in the next pass.
    pending: BTreeSet<UnitName>,
    /// The schedule of each unfinished run.
    schedules: BTreeMap<UnitName, UnitName>,
}

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
            if !agenda.due.is_empty() {
                // Machines may report many states in a short time.
                clock.sleep(REPORT_INTERVAL).await;
            }
        }
    }

    /// Advances each job, schedule and failed unit about which something has changed.
    async fn advance_jobs(
        &self,
        leadership: &Leadership,
        agenda: &mut Agenda,
    ) -> Result<(), RegistryError> {
        let delta = self.config.mirror.full_delta_since(agenda.seen);
        // An uncertain view is no reason to judge an attempt.
        if !delta.inputs.is_current {
            return Ok(());
        }
        let now = self.config.clock.wall();
        agenda.note_changes(&delta, now);
        let mut written = None;
        for unit in agenda.pending.clone() {
            let [job, schedule, failures] =
                match self.advance_records(leadership, agenda, &unit, &delta, now).await {
                    Ok(revisions) => revisions,
                    // Another writer has changed the unit, so it is evaluated again.
                    Err(RegistryError::Conflict | RegistryError::Changed { .. }) => continue,
                    Err(error) if is_of_one_unit(&error) => {
                        warn(&format!("cannot advance {unit}: trying again later"), &error);
                        agenda.postpone(unit, now);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
            agenda.pending.remove(&unit);
            let schedule_of_run = agenda.schedules.get(&unit).filter(|_| job.is_some()).cloned();
            agenda.pending.extend(schedule_of_run);
            if schedule.is_some() {
                agenda.pending.insert(unit);
            }
            written = written.max(job).max(schedule).max(failures);
        }
        if let Some(revision) = written {
            self.wait_visible(revision).await;
        }
        Ok(())
    }

    /// Advances the job, the schedule and the counted failures of a unit. Returns the revisions of
    /// the writes.
    async fn advance_records(
        &self,
        leadership: &Leadership,
        agenda: &mut Agenda,
        name: &UnitName,
        delta: &FullDelta,
        now: Timestamp,
    ) -> Result<[Option<Revision>; 3], RegistryError> {
        let (mirror, snapshot) = (&self.config.mirror, &*delta.inputs.snapshot);
        // A unit that cannot be read may still be a job, so its records are left alone.
        if snapshot.fault(name.as_str()).is_some() {
            return Ok([None; 3]);
        }
        let unit = snapshot.unit(name.as_str()).map(|unit| &**unit);
        let seen = snapshot.job(name.as_str()).map(|record| &**record);
        let job = decide_job(unit, seen, snapshot, now);
        let mut revisions = [None; 3];
        if job.next.as_ref() != seen || !job.writes.is_empty() {
            if let Some(next) = &job.next {
                tracing::info!(unit = %name, phase = %next.state.phase, "advancing a job");
            }
            let (next, writes) = (job.next.as_ref(), &job.writes[..]);
            let update = RecordUpdate { unit: name, seen, next, writes, snapshot };
            revisions[0] = Some(leadership.advance_job(&update, mirror).await?);
        }
        let seen = snapshot.schedule(name.as_str()).map(|record| &**record);
        let schedule = decide_schedule(name, unit, seen, snapshot, now);
        if schedule.next.as_ref() != seen || !schedule.writes.is_empty() {
            let (next, writes) = (schedule.next.as_ref(), &schedule.writes[..]);
            let update = RecordUpdate { unit: name, seen, next, writes, snapshot };
            revisions[1] = Some(leadership.advance_schedule(&update, mirror).await?);
        }
        let failures = self.advance_failures(leadership, name, snapshot, now).await?;
        revisions[2] = failures.written;
        agenda.note_runs(name, schedule.next.as_ref());
        agenda.due.remove(name);
        if job.is_active || schedule.is_active || failures.is_active {
            let due = [job.due, schedule.due, failures.due].into_iter().flatten().min();
            agenda.due.insert(name.clone(), due);
        }
        Ok(revisions)
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

impl Agenda {
    /// Evaluates a unit again after a while, because the store has refused its write.
    fn postpone(&mut self, unit: UnitName, now: Timestamp) {
        self.pending.remove(&unit);
        self.due.insert(unit, Some(now.after(POSTPONED)));
    }

    /// Adds the units to evaluate: those with a change since the last pass, and those that are due.
    fn note_changes(&mut self, delta: &FullDelta, now: Timestamp) {
        let snapshot = &delta.inputs.snapshot;
        self.seen = snapshot.revision;
        let concerns = |unit: &UnitName| {
            let name = unit.as_str();
            let has_record = snapshot.job(name).is_some()
                || snapshot.schedule(name).is_some()
                || snapshot.failures_of(name).is_some();
            let wants = snapshot.unit(name).map(|unit| &unit.requirements);
            has_record
                || wants.is_some_and(|it| it.job.is_some() || it.move_after_failures.is_some())
        };
        let Some((changes, results)) = delta.inputs.changes.as_ref().zip(delta.results.as_ref())
        else {
            let units = snapshot.units().map(|unit| &unit.name);
            let units = units.filter(|unit| concerns(unit));
            let jobs = snapshot.jobs().map(|(unit, _)| unit);
            let schedules = snapshot.schedules().map(|(unit, _)| unit);
            let failures = snapshot.failures().map(|(unit, _)| unit);
            let all = units.chain(jobs).chain(schedules).chain(failures);
            return self.pending.extend(all.cloned());
        };
        let reported = results.iter().filter_map(|change| match change {
            ResultChange::State(unit, _) => Some(unit),
            ResultChange::Reason(_) => None,
        });
        let changed = changes.units.iter().chain(&changes.placements).chain(reported);
        for unit in changed.filter(|unit| concerns(unit)) {
            self.pending.extend(self.schedules.get(unit).cloned());
            self.pending.insert(unit.clone());
        }
        // No change of a unit comes with a request to a schedule.
        let is_requested = |record: &ScheduleRecord| record.requests.run_now > record.state.run_now;
        let requested = snapshot.schedules().filter(|(_, record)| is_requested(record));
        self.pending.extend(requested.map(|(unit, _)| unit.clone()));
        // Any of them may run on one of these machines.
        let all = !changes.machines.is_empty();
        let is_due = |due: &Option<Timestamp>| all || due.is_some_and(|due| due <= now);
        self.pending.extend(self.due.iter().filter(|(_, due)| is_due(due)).map(|(u, _)| u.clone()));
    }

    /// Records the units of the unfinished runs of a schedule.
    fn note_runs(&mut self, schedule: &UnitName, record: Option<&ScheduleRecord>) {
        self.schedules.retain(|_, of| of != schedule);
        for run in record.iter().flat_map(|record| &record.state.runs) {
            if let Ok(unit) = run.id.unit_name(schedule) {
                self.schedules.insert(unit, schedule.clone());
            }
        }
    }

    /// Returns the time of the next pass if nothing changes.
    fn next_pass(&self, now: Timestamp, wall: Timestamp) -> Option<Timestamp> {
        if !self.pending.is_empty() {
            return Some(now.after(REPORT_INTERVAL));
        }
        let due = self.due.values().flatten().min()?;
        Some(now.after(due.since(wall).min(CLOCK_INTERVAL)))
    }
}

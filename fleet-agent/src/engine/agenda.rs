//! Units that the leader has to look at because of a job, a schedule or counted failures. A pass
//! examines all of them only if a machine has changed, or if the mirror does not know the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::{Revision, Snapshot, Timestamp};
use fleet_store::mirror::{Delta, ResultChange};
use fleet_unitfile::UnitName;

use super::REPORT_INTERVAL;

/// Maximum wait for a time of the wall clock, which may be set forward meanwhile.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of units with a schedule, and of others, in one pass. So schedules never wait for
/// many jobs.
const MAX_UNITS: usize = 256;

/// Units with a job, a schedule or counted failures that the leader evaluates again.
#[derive(Default)]
pub(super) struct Agenda {
    /// Revision of the last evaluated snapshot.
    seen: Revision,
    /// Units with unfinished jobs, schedules or failures, with the time by the wall clock at which
    /// each one changes by itself.
    active: BTreeMap<UnitName, Option<Timestamp>>,
    /// The times in `active`, in order.
    due: BTreeSet<(Timestamp, UnitName)>,
    /// Units to evaluate in the next passes.
    pending: BTreeSet<UnitName>,
    /// The last units of the former pass: one with a schedule, and another one. The next pass
    /// begins after them, so that each unit gets its turn.
    last: [Option<UnitName>; 2],
    /// The units of the unfinished runs of each schedule.
    runs: BTreeMap<UnitName, Vec<UnitName>>,
    /// The schedule of each unfinished run.
    schedules: BTreeMap<UnitName, UnitName>,
}

/// Result of the evaluation of a unit.
#[derive(Default)]
pub(super) struct Pass {
    /// Revision of the last write, if anything was written.
    pub(super) written: Option<Revision>,
    /// Units of the unfinished runs, if the unit has a schedule.
    pub(super) runs: Vec<UnitName>,
    /// Whether the unit changes with time or with observations.
    pub(super) is_active: bool,
    /// Time by the wall clock at which to evaluate the unit again at the latest.
    pub(super) due: Option<Timestamp>,
}

impl Agenda {
    /// Returns the revision of the last evaluated snapshot.
    pub(super) fn seen(&self) -> Revision {
        self.seen
    }

    /// Whether no unit changes with time or with observations.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Adds the units to evaluate: those with a change since the last pass, and those that are due.
    pub(super) fn note_changes(
        &mut self,
        delta: &Delta,
        results: Option<&BTreeSet<ResultChange>>,
        now: Timestamp,
    ) {
        let snapshot = &delta.snapshot;
        self.seen = snapshot.revision;
        let Some((changes, results)) = delta.changes.as_ref().zip(results) else {
            let units = snapshot.units().map(|unit| &unit.name);
            let units = units.filter(|unit| concerns(unit, snapshot));
            let jobs = snapshot.jobs().map(|(unit, _)| unit);
            let schedules = snapshot.schedules().map(|(unit, _)| unit);
            let failures = snapshot.failures().map(|(unit, _)| unit);
            let all = units.chain(jobs).chain(schedules).chain(failures);
            return self.pending.extend(all.cloned());
        };
        let reported = results.iter().filter_map(|change| match change {
            ResultChange::State(unit, _) | ResultChange::Progress(unit) => Some(unit),
            ResultChange::Reason(_) => None,
        });
        for unit in changes.units.iter().chain(&changes.placements).chain(reported) {
            self.pending.extend(self.schedules.get(unit).cloned());
            if concerns(unit, snapshot) {
                self.pending.insert(unit.clone());
            }
        }
        if changes.machines.is_empty() {
            let due = self.due.iter().take_while(|(due, _)| *due <= now);
            self.pending.extend(due.map(|(_, unit)| unit.clone()));
        } else {
            // Any of the units may run on one of these machines.
            self.pending.extend(self.active.keys().cloned());
        }
    }

    /// Returns the units of the next pass: a limited number with a schedule, and then of others.
    pub(super) fn next_units(&mut self, snapshot: &Snapshot) -> Vec<UnitName> {
        let mut all = Vec::new();
        for (last, schedules) in self.last.iter_mut().zip([true, false]) {
            let is_it = |unit: &&UnitName| snapshot.schedule(unit.as_str()).is_some() == schedules;
            let is_later = |unit: &&UnitName| last.as_ref().is_none_or(|last| *unit > last);
            let (later, earlier): (Vec<_>, Vec<_>) =
                self.pending.iter().filter(is_it).partition(is_later);
            let units = later.into_iter().chain(earlier).take(MAX_UNITS).cloned();
            let before = all.len();
            all.extend(units);
            *last = all[before..].last().cloned();
        }
        all
    }

    /// Records the result of the evaluation of a unit.
    pub(super) fn finish(&mut self, unit: &UnitName, pass: Pass) {
        self.set_active(unit, pass.is_active.then_some(pass.due));
        for run in self.runs.remove(unit).iter().flatten() {
            self.schedules.remove(run);
        }
        if !pass.runs.is_empty() {
            self.schedules.extend(pass.runs.iter().map(|run| (run.clone(), unit.clone())));
            self.runs.insert(unit.clone(), pass.runs);
        }
    }

    /// Evaluates a unit again at this time, because its write was refused.
    pub(super) fn postpone(&mut self, unit: &UnitName, until: Timestamp) {
        self.set_active(unit, Some(Some(until)));
    }

    fn set_active(&mut self, unit: &UnitName, active: Option<Option<Timestamp>>) {
        self.pending.remove(unit);
        let before = match active {
            Some(due) => self.active.insert(unit.clone(), due),
            None => self.active.remove(unit),
        };
        if let Some(before) = before.flatten() {
            self.due.remove(&(before, unit.clone()));
        }
        self.due.extend(active.flatten().map(|due| (due, unit.clone())));
    }

    /// Returns the time of the next pass if nothing changes.
    pub(super) fn next_pass(&self, now: Timestamp, wall: Timestamp) -> Option<Timestamp> {
        if !self.pending.is_empty() {
            return Some(now.after(REPORT_INTERVAL));
        }
        let (due, _) = self.due.first()?;
        Some(now.after(due.since(wall).min(CLOCK_INTERVAL)))
    }
}

/// Whether a unit has or needs a job, a schedule or counted failures.
fn concerns(unit: &UnitName, snapshot: &Snapshot) -> bool {
    let name = unit.as_str();
    let has_record = snapshot.job(name).is_some()
        || snapshot.schedule(name).is_some()
        || snapshot.failures_of(name).is_some();
    let wants = snapshot.unit(name).map(|unit| &unit.requirements);
    has_record || wants.is_some_and(|it| it.job.is_some() || it.move_after_failures.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fleet_core::schedule::{ScheduleRecord, ScheduleRequests, ScheduleState};
    use fleet_store::mirror::ChangeSet;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn name(unit: &str) -> UnitName {
        unit.parse().expect("it is a name")
    }

    fn pass(due: Option<u64>) -> Pass {
        Pass { is_active: true, due: due.map(at), ..Pass::default() }
    }

    #[test]
    fn units_with_a_schedule_come_first_and_others_are_limited() {
        let mut snapshot = Snapshot::default();
        let state = ScheduleState::new(at(0));
        let (event, requests) = ("daily".to_owned(), ScheduleRequests::default());
        snapshot.put_schedule(name("z.service"), ScheduleRecord { event, requests, state });
        let mut agenda = Agenda::default();
        let jobs = (0..1000).map(|number| name(&format!("job-{number}.service")));
        agenda.pending.extend(jobs.chain([name("z.service")]));
        let units = agenda.next_units(&snapshot);
        assert_eq!((units[0].as_str(), units.len()), ("z.service", MAX_UNITS + 1));
        let next = agenda.next_units(&snapshot);
        assert!(next[1..].iter().all(|unit| !units[1..].contains(unit)), "others have their turn");
    }

    #[test]
    fn next_pass_is_at_the_first_due_time() {
        let (mut agenda, now) = (Agenda::default(), at(100));
        assert_eq!(agenda.next_pass(now, at(10)), None);
        agenda.finish(&name("late.service"), pass(Some(40)));
        agenda.finish(&name("never.service"), pass(None));
        agenda.finish(&name("soon.service"), pass(Some(20)));
        assert_eq!(agenda.next_pass(now, at(10)), Some(at(110)));
        agenda.finish(&name("soon.service"), pass(Some(50)));
        assert_eq!(agenda.next_pass(now, at(10)), Some(at(130)));
        agenda.finish(&name("late.service"), Pass::default());
        assert_eq!(agenda.next_pass(now, at(10)), Some(at(140)));
        assert_eq!(agenda.next_pass(now, at(50)), Some(now));
    }

    /// Regression: a record that cannot be read refuses each write.
    #[test]
    fn refused_write_is_not_repeated_at_once() {
        let (mut agenda, job) = (Agenda::default(), name("job.service"));
        agenda.pending.insert(job.clone());
        agenda.postpone(&job, at(11));
        assert!(agenda.pending.is_empty());
        assert_eq!(agenda.next_pass(at(100), at(10)), Some(at(101)));
    }

    #[test]
    fn change_of_a_run_concerns_its_schedule() {
        let mut agenda = Agenda::default();
        let runs = vec![name("s-1.service")];
        agenda.finish(&name("s.service"), Pass { runs, ..pass(None) });
        let mut changes = ChangeSet::default();
        changes.units.insert(name("s-1.service"));
        let (delta, results) = (Delta::new(Arc::default(), Some(changes)), BTreeSet::new());
        agenda.note_changes(&delta, Some(&results), at(10));
        assert_eq!(agenda.pending, [name("s.service")].into(), "the unit of the run is gone");
        agenda.pending.clear();
        agenda.finish(&name("s.service"), pass(None));
        agenda.note_changes(&delta, Some(&results), at(10));
        assert!(agenda.pending.is_empty(), "the run has ended");
    }
}

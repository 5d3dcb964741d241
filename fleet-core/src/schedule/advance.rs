//! Transitions of a schedule.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_unitfile::calendar::Zone;

use super::due::{self, Due};
use super::{
    CatchUp, ConcurrencyPolicy, HistoryEntry, OmissionReason, RunEnd, RunId, RunPhase, RunStatus,
    ScheduleAction, ScheduleRequests, ScheduleSettings, ScheduleState, ScheduleStep, ScheduledRun,
};
use crate::Timestamp;
use crate::job::JobOutcome;

impl ScheduleState {
    /// Delay up to which an elapse counts as handled in time. A change of the leader takes less.
    pub const MAX_DELAY: Duration = Duration::from_secs(60);

    /// Advances the schedule. The caller stores the state if it has changed, then takes the
    /// actions.
    ///
    /// `seen` has the status of each existing unit of a run in [`runs`](Self::runs), from the same
    /// snapshot as the state. `zone` is the time zone that the calendar event names, or UTC.
    ///
    /// First, runs end whose jobs have ended, and started runs whose unit is gone. Then all elapses
    /// up to now are decided. Only the last of them can run, if it is not older than
    /// [`MAX_DELAY`](Self::MAX_DELAY) or `CatchUp=once`. At last, a request to run now is handled,
    /// also while the schedule is paused.
    ///
    /// While the schedule is paused, no elapse changes the state, so that nothing has to be stored.
    /// The call after the pause records all of its elapses as skipped.
    ///
    /// Calling again with the same arguments changes nothing and returns the same step.
    pub fn advance(
        &mut self,
        settings: &ScheduleSettings,
        requests: ScheduleRequests,
        seen: &BTreeMap<RunId, RunStatus>,
        zone: &dyn Zone,
        now: Timestamp,
    ) -> ScheduleStep {
        self.settle(seen, now);
        if !(self.is_paused && requests.paused) {
            let is_paused = self.is_paused || requests.paused;
            if let Some(due) = due::between(&settings.calendar, zone, self.decided_until, now) {
                self.decided_until = due.last;
                self.decide(settings, is_paused, due, now);
            }
            self.is_paused = requests.paused;
        }
        if requests.run_now > self.run_now {
            self.run_now = requests.run_now;
            self.admit(settings, RunId::Manual(requests.run_now), now);
        }
        let after = self.decided_until.max(now);
        let next = due::next(&settings.calendar, zone, after).filter(|_| !self.is_paused);
        ScheduleStep { actions: self.actions(), next }
    }

    /// Records that the unit of a run exists. The caller stores the state in the transaction that
    /// creates the unit.
    ///
    /// Returns `false` if the run is not waiting for its start. The caller must not create the unit
    /// then.
    #[must_use]
    pub fn start(&mut self, run: RunId) -> bool {
        if self.runs.iter().any(|run| run.phase == RunPhase::Stopping) {
            return false;
        }
        let mut recorded = self.runs.iter_mut().filter(|it| it.phase == RunPhase::Recorded);
        let waiting = recorded.find(|it| it.id == run);
        if let Some(waiting) = waiting {
            waiting.phase = RunPhase::Started;
            return true;
        }
        false
    }

    /// Decides all elapses up to now without a run, as if they had been before the schedule was
    /// created. Call this function when the calendar event has changed: elapses of the new event
    /// before the change were never due.
    pub fn skip_until(&mut self, now: Timestamp) {
        self.decided_until = self.decided_until.max(now);
    }

    /// Updates the runs from their units.
    fn settle(&mut self, seen: &BTreeMap<RunId, RunStatus>, now: Timestamp) {
        for run in std::mem::take(&mut self.runs) {
            let result = match (seen.get(&run.id), run.phase) {
                // If the unit were that of this run, the phase would be `Started`.
                (Some(_), RunPhase::Recorded) => {
                    self.omit_run(run.id, OmissionReason::NameTaken);
                    continue;
                }
                (Some(RunStatus::Ended(JobOutcome::Stopped)), RunPhase::Stopping) => {
                    Some(RunEnd::Replaced)
                }
                (Some(RunStatus::Ended(outcome)), _) => Some(RunEnd::Ended(*outcome)),
                (None, RunPhase::Started | RunPhase::Stopping) => Some(RunEnd::Removed),
                (Some(RunStatus::Active), _) | (None, RunPhase::Recorded) => None,
            };
            match result {
                None => self.runs.push(run),
                Some(result) => {
                    let (id, recorded) = (run.id, run.recorded);
                    self.remember(HistoryEntry::Run { id, recorded, ended: now, result });
                }
            }
        }
    }

    /// Decides the elapses that are due.
    fn decide(&mut self, settings: &ScheduleSettings, is_paused: bool, due: Due, now: Timestamp) {
        let is_late = now.since(due.last) > Self::MAX_DELAY && settings.catch_up == CatchUp::None;
        let reason = match is_paused {
            true => OmissionReason::Paused,
            false => OmissionReason::Missed,
        };
        let runs = !is_paused && !is_late;
        if runs {
            if let Some(last) = due.before_last {
                let count = due.count - u64::from(!due.or_more);
                self.omit(due.first, last, count, due.or_more, reason);
            }
            self.admit(settings, RunId::Elapse(due.last), now);
        } else {
            self.omit(due.first, due.last, due.count, due.or_more, reason);
        }
    }

    /// Records a run, if the policy permits it.
    fn admit(&mut self, settings: &ScheduleSettings, id: RunId, now: Timestamp) {
        let refusal = match settings.concurrency {
            ConcurrencyPolicy::Forbid if !self.runs.is_empty() => Some(OmissionReason::Unfinished),
            ConcurrencyPolicy::Allow if self.runs.len() >= Self::MAX_RUNS => {
                Some(OmissionReason::TooManyRuns)
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            return self.omit_run(id, reason);
        }
        if settings.concurrency == ConcurrencyPolicy::Replace {
            self.replace_runs();
        }
        self.runs.push(ScheduledRun { id, recorded: now, phase: RunPhase::Recorded });
    }

    /// Stops all started runs, and drops the recorded one. Dropping is safe: its start would be a
    /// transaction on the state that is now replaced.
    fn replace_runs(&mut self) {
        for mut run in std::mem::take(&mut self.runs) {
            if run.phase == RunPhase::Recorded {
                self.omit_run(run.id, OmissionReason::Replaced);
            } else {
                run.phase = RunPhase::Stopping;
                self.runs.push(run);
            }
        }
    }

    /// Returns the actions for the unfinished runs. Nothing starts while a run is stopping.
    fn actions(&self) -> Vec<ScheduleAction> {
        let of_phase = |phase| self.runs.iter().filter(move |run| run.phase == phase);
        let stops: Vec<_> =
            of_phase(RunPhase::Stopping).map(|run| ScheduleAction::Stop { run: run.id }).collect();
        match stops.is_empty() {
            true => of_phase(RunPhase::Recorded)
                .map(|run| ScheduleAction::Start { run: run.id })
                .collect(),
            false => stops,
        }
    }

    fn omit_run(&mut self, run: RunId, reason: OmissionReason) {
        let (first, last) = (run, run);
        self.remember(HistoryEntry::Omitted { first, last, count: 1, or_more: false, reason });
    }

    fn omit(
        &mut self,
        first: Timestamp,
        last: Timestamp,
        count: u64,
        or_more: bool,
        reason: OmissionReason,
    ) {
        let (first, last) = (RunId::Elapse(first), RunId::Elapse(last));
        self.remember(HistoryEntry::Omitted { first, last, count, or_more, reason });
    }

    /// Adds an entry to the history, or adds it to the last entry if both are of the same kind.
    fn remember(&mut self, entry: HistoryEntry) {
        if self.history.back_mut().is_some_and(|last| last.merge(&entry)) {
            return;
        }
        self.history.push_back(entry);
        while self.history.len() > Self::MAX_HISTORY {
            self.history.pop_front();
        }
    }
}

impl HistoryEntry {
    /// Adds a later entry to this one. Returns `false` if the two are of different kinds.
    fn merge(&mut self, later: &Self) -> bool {
        let Self::Omitted { last, count, or_more, reason, .. } = self else {
            return false;
        };
        let Self::Omitted { last: to, count: more, or_more: or_even_more, reason: other, .. } =
            later
        else {
            return false;
        };
        let is_elapse = |id: &RunId| matches!(id, RunId::Elapse(_));
        if reason != other || is_elapse(last) != is_elapse(to) {
            return false;
        }
        *last = *to;
        *count = count.saturating_add(*more);
        *or_more |= *or_even_more;
        true
    }
}

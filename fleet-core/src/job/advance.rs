//! Transitions of a job.

use std::time::Duration;

use super::{
    AttemptEnd, AttemptProgress, AttemptRecord, JobAction, JobObservation, JobOutcome, JobPhase,
    JobSettings, JobState, JobStep, JobStopReason,
};
use crate::{MachineId, Timestamp};

/// Delay before the attempt that follows the first counted failure. Each further failure doubles
/// it, as in Kubernetes.
const FIRST_DELAY: Duration = Duration::from_secs(10);

/// Upper bound of the delay.
const MAX_DELAY: Duration = Duration::from_secs(360);

impl JobState {
    /// Advances the job. The caller stores the state if it has changed, then takes the actions.
    ///
    /// State and observation must come from one snapshot. Calling again with the same arguments
    /// changes nothing and returns the same step. For each phase, the first row that applies
    /// decides:
    ///
    /// | phase | observation | new phase |
    /// |---|---|---|
    /// | pending | lost machine is back, with unit and last attempt | running, as before |
    /// | running | attempt has succeeded | ended: succeeded |
    /// | running | attempt has failed, or could not be started | pending |
    /// | running | stop requested | ended: stopped |
    /// | running | deadline has passed | ended: deadline exceeded |
    /// | running | interrupted, machine lost, or placed elsewhere | pending |
    /// | pending | stop requested | ended: stopped |
    /// | pending | more counted failures than retries | ended: failed |
    /// | pending | deadline has passed | ended: deadline exceeded |
    /// | pending | an older attempt is active, the delay is not over, or no placement | pending |
    /// | pending | placed on a machine that is not lost | running, with the next number |
    pub fn advance(
        &mut self,
        settings: &JobSettings,
        seen: &JobObservation,
        now: Timestamp,
    ) -> JobStep {
        self.resume(seen);
        if let Some(end) = self.attempt_end(settings, seen, now) {
            self.end_attempt(end, seen, now);
        }
        if let JobPhase::Pending { since } = self.phase {
            if let Some(outcome) = self.pending_outcome(settings, seen, now) {
                self.phase = JobPhase::Ended { outcome, at: now };
            } else if self.may_begin(settings, seen, since, now) {
                self.begin(seen, now);
            }
        }
        JobStep { actions: self.actions(settings, seen, now), next: self.next_call(settings, now) }
    }

    /// Takes the last attempt up again if its machine was lost and is back before another attempt
    /// began. Otherwise a second attempt would replace a running one on the same machine.
    fn resume(&mut self, seen: &JobObservation) {
        let (JobPhase::Pending { .. }, Some(last)) = (&self.phase, self.attempts.last()) else {
            return;
        };
        let attempt = self.attempt(last.number);
        let is_back = last.how == AttemptEnd::MachineLost
            && seen.placed_on_present_machine() == Some(&last.machine)
            && seen.report_of(&last.machine).is_some_and(|report| report.attempt == attempt);
        if is_back {
            let AttemptRecord { number, machine, begin, .. } = last.clone();
            self.attempts.pop();
            self.interrupted = self.interrupted.saturating_sub(1);
            self.phase = JobPhase::Running { machine, attempt: number, since: begin };
        }
    }

    /// Returns the end of the running attempt; `None` if it goes on or none is running.
    fn attempt_end(
        &self,
        settings: &JobSettings,
        seen: &JobObservation,
        now: Timestamp,
    ) -> Option<AttemptEnd> {
        let JobPhase::Running { machine, attempt, .. } = &self.phase else {
            return None;
        };
        let attempt = self.attempt(*attempt);
        let report = seen.report_of(machine).filter(|report| report.attempt == attempt);
        match report.map(|report| &report.progress) {
            Some(&AttemptProgress::Exited { status, success }) => {
                return Some(AttemptEnd::Exited { status, success });
            }
            Some(AttemptProgress::NotStarted { reason }) => {
                let reason = truncated(reason, Self::MAX_REASON);
                return Some(AttemptEnd::NotStarted { reason });
            }
            Some(AttemptProgress::Active | AttemptProgress::Interrupted) | None => {}
        }
        if seen.stop_requested {
            return Some(AttemptEnd::Stopped);
        }
        if self.is_past_deadline(settings, now) {
            return Some(AttemptEnd::DeadlineExceeded);
        }
        if report.is_some_and(|report| report.progress == AttemptProgress::Interrupted) {
            return Some(AttemptEnd::Interrupted);
        }
        if seen.lost.contains(machine) {
            return Some(AttemptEnd::MachineLost);
        }
        (seen.placed.as_ref() != Some(machine)).then_some(AttemptEnd::Moved)
    }

    /// Returns the earliest begin of the next attempt after one that counts as failed; `None` if no
    /// attempt has to wait.
    #[must_use]
    pub fn retry_at(&self, settings: &JobSettings) -> Option<Timestamp> {
        let JobPhase::Pending { since } = self.phase else { return None };
        let delay = retry_delay(self.counted(settings));
        (!delay.is_zero()).then(|| since.after(delay))
    }

    fn end_attempt(&mut self, how: AttemptEnd, seen: &JobObservation, now: Timestamp) {
        let next = match &how {
            AttemptEnd::Exited { success: true, .. } => Some(JobOutcome::Succeeded),
            AttemptEnd::Stopped => Some(JobOutcome::Stopped),
            AttemptEnd::DeadlineExceeded => Some(JobOutcome::DeadlineExceeded),
            AttemptEnd::MachineLost | AttemptEnd::Interrupted | AttemptEnd::Moved => {
                self.interrupted = self.interrupted.saturating_add(1);
                None
            }
            AttemptEnd::Exited { .. } | AttemptEnd::NotStarted { .. } => {
                self.failed = self.failed.saturating_add(1);
                None
            }
        };
        let next = match next {
            Some(outcome) => JobPhase::Ended { outcome, at: now },
            None => JobPhase::Pending { since: now },
        };
        if let JobPhase::Running { machine, attempt: number, since: begin } =
            std::mem::replace(&mut self.phase, next)
        {
            let attempt = self.attempt(number);
            let report = seen.report_of(&machine).filter(|report| report.attempt == attempt);
            let output = report.map(|report| report.output.clone()).unwrap_or_default();
            self.attempts.push(AttemptRecord { number, machine, begin, end: now, how, output });
        }
        let excess = self.attempts.len().saturating_sub(Self::MAX_ATTEMPTS);
        self.attempts.drain(..excess);
    }

    /// Returns the outcome of a pending job that has no further attempt.
    fn pending_outcome(
        &self,
        settings: &JobSettings,
        seen: &JobObservation,
        now: Timestamp,
    ) -> Option<JobOutcome> {
        if seen.stop_requested {
            return Some(JobOutcome::Stopped);
        }
        if self.counted(settings) > settings.retries {
            return Some(JobOutcome::Failed);
        }
        self.is_past_deadline(settings, now).then_some(JobOutcome::DeadlineExceeded)
    }

    /// Whether the next attempt may begin as soon as there is a machine for it.
    fn may_begin(
        &self,
        settings: &JobSettings,
        seen: &JobObservation,
        since: Timestamp,
        now: Timestamp,
    ) -> bool {
        let delay = retry_delay(self.counted(settings));
        // If the wall clock was set back, the wait could become very long. It ends instead.
        let is_over = now < since || now >= since.after(delay);
        is_over && seen.active().next().is_none()
    }

    fn begin(&mut self, seen: &JobObservation, now: Timestamp) {
        if let Some(machine) = seen.placed_on_present_machine() {
            let attempt = self.next_attempt().number;
            self.last_attempt = attempt;
            self.phase = JobPhase::Running { machine: machine.clone(), attempt, since: now };
        }
    }

    fn actions(
        &self,
        settings: &JobSettings,
        seen: &JobObservation,
        now: Timestamp,
    ) -> Vec<JobAction> {
        let mut actions = self.stops(seen);
        match &self.phase {
            JobPhase::Pending { since } => {
                if self.may_begin(settings, seen, *since, now) {
                    actions.push(JobAction::Place { attempt: self.next_attempt() });
                }
            }
            JobPhase::Running { machine, attempt, .. } => {
                let (machine, attempt) = (machine.clone(), self.attempt(*attempt));
                // A machine that has recorded a higher attempt never starts this one.
                let known = |report: &super::AttemptReport| report.attempt >= attempt;
                if !seen.report_of(&machine).is_some_and(known) {
                    actions.push(JobAction::Start { machine, attempt });
                }
            }
            JobPhase::Ended { at, .. } => {
                let is_over = settings.keep_for.is_some_and(|keep| now >= at.after(keep));
                if is_over && seen.active().next().is_none() {
                    actions.push(JobAction::Remove);
                }
            }
        }
        actions
    }

    /// Returns a stop for each active attempt but the running one.
    fn stops(&self, seen: &JobObservation) -> Vec<JobAction> {
        let reason = match self.phase {
            JobPhase::Ended { outcome: JobOutcome::DeadlineExceeded, .. } => {
                JobStopReason::Deadline
            }
            JobPhase::Ended { outcome: JobOutcome::Stopped, .. } => JobStopReason::Requested,
            _ => JobStopReason::NotCurrent,
        };
        let running = match &self.phase {
            JobPhase::Running { machine, attempt, .. } => Some((machine, self.attempt(*attempt))),
            _ => None,
        };
        let others = seen.active().filter(|it| running != Some((&it.machine, it.attempt)));
        let stop = |it: &super::AttemptReport| {
            let (machine, attempt) = (it.machine.clone(), it.attempt);
            JobAction::Stop { machine, attempt, reason }
        };
        others.map(stop).collect()
    }

    /// Returns the next time at which the clock alone changes something.
    fn next_call(&self, settings: &JobSettings, now: Timestamp) -> Option<Timestamp> {
        let deadline = settings.deadline.map(|deadline| self.created.after(deadline));
        let next = match self.phase {
            JobPhase::Pending { since } => {
                let retry = since.after(retry_delay(self.counted(settings)));
                let retry = Some(retry).filter(|retry| now >= since && *retry > now);
                deadline.into_iter().chain(retry).min()
            }
            JobPhase::Running { .. } => deadline,
            JobPhase::Ended { at, .. } => settings.keep_for.map(|keep| at.after(keep)),
        };
        next.filter(|next| *next > now)
    }

    fn is_past_deadline(&self, settings: &JobSettings, now: Timestamp) -> bool {
        settings.deadline.is_some_and(|deadline| now >= self.created.after(deadline))
    }
}

impl JobObservation {
    fn placed_on_present_machine(&self) -> Option<&MachineId> {
        self.placed.as_ref().filter(|machine| !self.lost.contains(*machine))
    }

    fn report_of(&self, machine: &MachineId) -> Option<&super::AttemptReport> {
        self.reports.iter().find(|report| report.machine == *machine)
    }
}

/// Returns the delay before the next attempt.
fn retry_delay(counted: u32) -> Duration {
    match counted {
        0 => Duration::ZERO,
        _ => MAX_DELAY.min(FIRST_DELAY * 2_u32.pow((counted - 1).min(10))),
    }
}

/// Returns the text up to a number of bytes, cut between characters.
fn truncated(text: &str, most: usize) -> String {
    let end = (0..=text.len().min(most)).rfind(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_up_to_its_bound() {
        let seconds = [0, 1, 2, 3, 6, 7, 1000].map(|counted| retry_delay(counted).as_secs());
        assert_eq!(seconds, [0, 10, 20, 40, 320, 360, 360]);
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(["äb", "ab", ""].map(|text| truncated(text, 2)), ["ä", "ab", ""]);
        assert_eq!(truncated("aä", 2), "a");
    }
}

//! Histories of jobs, as text.

use std::fmt::Write;
use std::time::Duration;

use fleet_core::job::{
    AttemptEnd, AttemptId, AttemptProgress, AttemptReport, JobObservation, JobOutcome, JobPhase,
    JobSettings, JobState,
};
use fleet_core::unit::ExitStatus;
use fleet_core::{Revision, Timestamp};

/// A job that is observed and advanced step by step.
struct Story {
    settings: JobSettings,
    job: JobState,
    seen: JobObservation,
    text: String,
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

impl Story {
    fn new(settings: JobSettings) -> Self {
        let job = JobState::new(Revision(7), seconds(0));
        Self { settings, job, seen: JobObservation::default(), text: String::new() }
    }

    /// Advances the job and writes a line.
    fn at(&mut self, second: u64, event: &str) -> &mut Self {
        let step = self.job.advance(&self.settings, &self.seen, seconds(second));
        let again = self.job.clone().advance(&self.settings, &self.seen, seconds(second));
        assert_eq!(step, again, "{event}");
        let actions: Vec<String> = step.actions.iter().map(ToString::to_string).collect();
        let next = step.next.map_or("-".to_owned(), |at| format!("{}s", at.as_millis() / 1000));
        writeln!(
            self.text,
            "{second}s {event}: {}; {}; next {next}",
            self.job.phase,
            actions.join(", ")
        )
        .unwrap();
        self
    }

    fn placed(&mut self, machine: &str) -> &mut Self {
        self.seen.placed = Some(machine.parse().unwrap());
        self
    }

    fn report(&mut self, machine: &str, number: u32, progress: AttemptProgress) -> &mut Self {
        let attempt = AttemptId { origin: self.job.origin, number };
        let machine: fleet_core::MachineId = machine.parse().unwrap();
        self.seen.reports.retain(|report| report.machine != machine);
        self.seen.reports.push(AttemptReport { machine, attempt, progress, output: Vec::new() });
        self
    }

    fn active(&mut self, machine: &str, number: u32) -> &mut Self {
        self.report(machine, number, AttemptProgress::Active)
    }

    fn exited(&mut self, machine: &str, number: u32, code: i32) -> &mut Self {
        let status = ExitStatus::Code(code);
        self.report(machine, number, AttemptProgress::Exited { status, success: code == 0 })
    }

    fn lost(&mut self, machine: &str, is_lost: bool) -> &mut Self {
        let machine = machine.parse().unwrap();
        match is_lost {
            true => _ = self.seen.lost.insert(machine),
            false => _ = self.seen.lost.remove(&machine),
        }
        self
    }

    fn finish(&mut self) -> String {
        for attempt in &self.job.attempts {
            let (begin, end) = (attempt.begin.as_millis() / 1000, attempt.end.as_millis() / 1000);
            let (number, machine, how) = (attempt.number, &attempt.machine, &attempt.how);
            writeln!(self.text, "attempt {number} on {machine}, {begin}s to {end}s: {how}")
                .unwrap();
        }
        std::mem::take(&mut self.text)
    }
}

#[test]
fn job_succeeds_is_kept_and_removed() {
    let keep_for = Some(Duration::from_secs(100));
    let mut story = Story::new(JobSettings { keep_for, ..JobSettings::default() });
    story.at(0, "created");
    story.placed("m1").at(1, "placed").active("m1", 1).at(2, "active");
    story.exited("m1", 1, 0).at(9, "exited").at(108, "waiting").at(109, "kept long enough");
    insta::assert_snapshot!(story.finish(), @"
    0s created: pending; place attempt 1; next -
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    2s active: running on m1, attempt 1; ; next -
    9s exited: succeeded; ; next 109s
    108s waiting: succeeded; ; next 109s
    109s kept long enough: succeeded; remove the unit; next -
    attempt 1 on m1, 1s to 9s: exited with status 0
    ");
}

#[test]
fn failed_attempts_are_retried_with_delays() {
    let mut story = Story::new(JobSettings { retries: 2, ..JobSettings::default() });
    story.placed("m1").at(0, "placed").exited("m1", 1, 3).at(5, "exited").at(14, "waiting");
    story.at(15, "delay over");
    let reason = "unit file has a bad setting".to_owned();
    story.report("m1", 2, AttemptProgress::NotStarted { reason }).at(16, "not started");
    story.at(36, "delay over").exited("m1", 3, 1).at(40, "exited").at(999, "later");
    insta::assert_snapshot!(story.finish(), @"
    0s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    5s exited: pending; ; next 15s
    14s waiting: pending; ; next 15s
    15s delay over: running on m1, attempt 2; start attempt 2 on m1; next -
    16s not started: pending; ; next 36s
    36s delay over: running on m1, attempt 3; start attempt 3 on m1; next -
    40s exited: failed; ; next -
    999s later: failed; ; next -
    attempt 1 on m1, 0s to 5s: exited with status 3
    attempt 2 on m1, 15s to 16s: not started: unit file has a bad setting
    attempt 3 on m1, 36s to 40s: exited with status 1
    ");
}

#[test]
fn clock_set_back_ends_the_delay() {
    let mut story = Story::new(JobSettings { retries: 1, ..JobSettings::default() });
    story.placed("m1").at(1000, "placed").exited("m1", 1, 3).at(1001, "exited");
    story.at(5, "clock set back");
    assert!(matches!(story.job.phase, JobPhase::Running { attempt: 2, .. }));
}

#[test]
fn deadline_stops_the_attempt() {
    let deadline = Some(Duration::from_secs(60));
    let mut story = Story::new(JobSettings { retries: 5, deadline, ..JobSettings::default() });
    story.placed("m1").at(1, "placed").active("m1", 1).at(59, "active").at(60, "deadline");
    assert_eq!(story.job.settled(&story.seen), None);
    story.exited("m1", 1, 143).at(62, "exited");
    assert_eq!(story.job.settled(&story.seen), Some(JobOutcome::DeadlineExceeded));
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next 60s
    59s active: running on m1, attempt 1; ; next 60s
    60s deadline: deadline exceeded; stop attempt 1 on m1: the deadline has passed; next -
    62s exited: deadline exceeded; ; next -
    attempt 1 on m1, 1s to 60s: stopped at the deadline
    ");
}

#[test]
fn ended_job_is_kept_until_its_attempt_has_stopped() {
    let (deadline, keep_for) = (Some(Duration::from_secs(60)), Some(Duration::ZERO));
    let mut story = Story::new(JobSettings { deadline, keep_for, ..JobSettings::default() });
    story.placed("m1").at(1, "placed").active("m1", 1).at(60, "deadline");
    story.exited("m1", 1, 0).at(62, "exited");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next 60s
    60s deadline: deadline exceeded; stop attempt 1 on m1: the deadline has passed; next -
    62s exited: deadline exceeded; remove the unit; next -
    attempt 1 on m1, 1s to 60s: stopped at the deadline
    ");
}

#[test]
fn deadline_passes_while_pending() {
    let deadline = Some(Duration::from_secs(60));
    let mut story = Story::new(JobSettings { deadline, ..JobSettings::default() });
    story.at(0, "created").at(60, "deadline");
    insta::assert_snapshot!(story.finish(), @"
    0s created: pending; place attempt 1; next 60s
    60s deadline: deadline exceeded; ; next -
    ");
}

#[test]
fn exit_before_the_deadline_was_checked_counts() {
    let deadline = Some(Duration::from_secs(60));
    let mut story = Story::new(JobSettings { deadline, ..JobSettings::default() });
    story.placed("m1").at(1, "placed").exited("m1", 1, 0).at(99, "exited");
    let ended = JobPhase::Ended { outcome: JobOutcome::Succeeded, at: seconds(99) };
    assert_eq!(story.job.phase, ended);
}

#[test]
fn lost_machine_uses_up_no_retry_at_first() {
    let mut story = Story::new(JobSettings::default());
    for (number, (machine, next)) in
        (1..).zip([("m1", "m2"), ("m2", "m3"), ("m3", "m4"), ("m4", "m5")])
    {
        story.placed(machine).at(u64::from(number) * 10, "placed").active(machine, number);
        story.lost(machine, true).at(u64::from(number) * 10 + 5, "lost").placed(next);
    }
    insta::assert_snapshot!(story.finish(), @"
    10s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    15s lost: pending; place attempt 2; next -
    20s placed: running on m2, attempt 2; start attempt 2 on m2; next -
    25s lost: pending; place attempt 3; next -
    30s placed: running on m3, attempt 3; start attempt 3 on m3; next -
    35s lost: pending; place attempt 4; next -
    40s placed: running on m4, attempt 4; start attempt 4 on m4; next -
    45s lost: failed; ; next -
    attempt 1 on m1, 10s to 15s: machine lost
    attempt 2 on m2, 20s to 25s: machine lost
    attempt 3 on m3, 30s to 35s: machine lost
    attempt 4 on m4, 40s to 45s: machine lost
    ");
}

#[test]
fn counted_loss_ends_a_job_without_retries() {
    let mut story = Story::new(JobSettings { count_lost: true, ..JobSettings::default() });
    story.placed("m1").at(1, "placed").active("m1", 1).lost("m1", true).at(2, "lost");
    story.lost("m1", false).at(3, "back");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    2s lost: failed; ; next -
    3s back: failed; stop attempt 1 on m1: it is not the current attempt; next -
    attempt 1 on m1, 1s to 2s: machine lost
    ");
}

#[test]
fn machine_that_came_back_in_time_continues_its_attempt() {
    let mut story = Story::new(JobSettings::default());
    story.placed("m1").at(1, "placed").active("m1", 1).lost("m1", true).at(2, "lost");
    story.lost("m1", false).at(3, "back").exited("m1", 1, 0).at(4, "exited");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    2s lost: pending; place attempt 2; next -
    3s back: running on m1, attempt 1; ; next -
    4s exited: succeeded; ; next -
    attempt 1 on m1, 1s to 4s: exited with status 0
    ");
}

#[test]
fn machine_that_came_back_late_stops_its_attempt() {
    let mut story = Story::new(JobSettings::default());
    story.placed("m1").at(1, "placed").active("m1", 1).lost("m1", true).at(2, "lost");
    story.placed("m2").at(3, "placed elsewhere").active("m2", 2).lost("m1", false).at(4, "back");
    story.exited("m1", 1, 143).exited("m2", 2, 0).at(5, "both ended");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    2s lost: pending; place attempt 2; next -
    3s placed elsewhere: running on m2, attempt 2; start attempt 2 on m2; next -
    4s back: running on m2, attempt 2; stop attempt 1 on m1: it is not the current attempt; next -
    5s both ended: succeeded; ; next -
    attempt 1 on m1, 1s to 2s: machine lost
    attempt 2 on m2, 3s to 5s: exited with status 0
    ");
}

#[test]
fn moved_unit_waits_until_its_old_attempt_has_stopped() {
    let mut story = Story::new(JobSettings::default());
    story.placed("m1").at(1, "placed").active("m1", 1).placed("m2").at(2, "moved");
    story.exited("m1", 1, 143).at(3, "stopped");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    2s moved: pending; stop attempt 1 on m1: it is not the current attempt; next -
    3s stopped: running on m2, attempt 2; start attempt 2 on m2; next -
    attempt 1 on m1, 1s to 2s: moved to another machine
    ");
}

#[test]
fn stopped_job_does_not_run_again() {
    let mut story = Story::new(JobSettings { retries: 9, ..JobSettings::default() });
    story.placed("m1").at(1, "placed").active("m1", 1);
    story.seen.stop_requested = true;
    story.at(2, "stop requested").exited("m1", 1, 143).at(3, "exited");
    story.seen.stop_requested = false;
    story.at(4, "start requested");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: running on m1, attempt 1; start attempt 1 on m1; next -
    2s stop requested: stopped; stop attempt 1 on m1: a user stopped the unit; next -
    3s exited: stopped; ; next -
    4s start requested: stopped; ; next -
    attempt 1 on m1, 1s to 2s: stopped by a user
    ");
}

#[test]
fn attempt_of_an_earlier_job_of_the_name_is_stopped() {
    let mut story = Story::new(JobSettings::default());
    story.placed("m1").active("m1", 1);
    story.seen.reports[0].attempt.origin = Revision(3);
    story.at(1, "placed").exited("m1", 1, 0);
    story.seen.reports[0].attempt.origin = Revision(3);
    story.at(2, "earlier job exited");
    insta::assert_snapshot!(story.finish(), @"
    1s placed: pending; stop attempt 1 on m1: it is not the current attempt; next -
    2s earlier job exited: running on m1, attempt 1; start attempt 1 on m1; next -
    ");
}

#[test]
fn stored_reason_is_truncated() {
    let mut story = Story::new(JobSettings::default());
    let reason = "x".repeat(1000);
    story.placed("m1").at(1, "placed");
    story.report("m1", 1, AttemptProgress::NotStarted { reason }).at(2, "not started");
    let reason = "x".repeat(JobState::MAX_REASON);
    assert_eq!(story.job.attempts[0].how, AttemptEnd::NotStarted { reason });
}

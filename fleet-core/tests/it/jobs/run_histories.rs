//! Histories of schedules, as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use fleet_core::job::JobOutcome;
use fleet_core::schedule::{
    CatchUp, ConcurrencyPolicy, RunId, RunStatus, ScheduleRequests, ScheduleSettings, ScheduleState,
};
use fleet_core::{Generation, Timestamp};
use fleet_unitfile::calendar::{OffsetPeriod, Utc, Zone};

/// A schedule that is observed and advanced step by step.
struct Story {
    settings: ScheduleSettings,
    requests: ScheduleRequests,
    schedule: ScheduleState,
    seen: BTreeMap<RunId, RunStatus>,
    zone: &'static dyn Zone,
    text: String,
}

/// Returns the time on 28 November 2026, from a text such as `02:00` or `02:00:30`.
fn at(time: &str) -> Timestamp {
    let parts: Vec<u64> = time.split(':').map(|part| part.parse().unwrap()).collect();
    let seconds = parts[0] * 3600 + parts[1] * 60 + parts.get(2).copied().unwrap_or(0);
    Timestamp::from_millis(1_795_824_000_000 + seconds * 1000)
}

fn hours_after_midnight(hour: u64) -> Timestamp {
    Timestamp::from_millis(at("00:00").as_millis() + hour * 3_600_000)
}

impl Story {
    fn new(calendar: &str, concurrency: ConcurrencyPolicy, catch_up: CatchUp) -> Self {
        let calendar = calendar.parse().unwrap();
        Self {
            settings: ScheduleSettings { calendar, concurrency, catch_up },
            requests: ScheduleRequests::default(),
            schedule: ScheduleState::new(at("00:30")),
            seen: BTreeMap::new(),
            zone: &Utc,
            text: String::new(),
        }
    }

    /// Advances the schedule and writes a line.
    fn at_time(&mut self, now: Timestamp, event: &str) -> &mut Self {
        let advance = |schedule: &mut ScheduleState| {
            schedule.advance(&self.settings, self.requests, &self.seen, self.zone, now)
        };
        let step = advance(&mut self.schedule);
        let mut again = self.schedule.clone();
        assert_eq!((step.clone(), &self.schedule), (advance(&mut again), &again), "{event}");
        let actions: Vec<String> = step.actions.iter().map(ToString::to_string).collect();
        let actions = if actions.is_empty() { "nothing".to_owned() } else { actions.join(", ") };
        let next = step.next.map_or("never".to_owned(), |next| RunId::Elapse(next).to_string());
        writeln!(self.text, "{} {event}: {actions}; next {next}", RunId::Elapse(now)).unwrap();
        self
    }

    fn at(&mut self, time: &str, event: &str) -> &mut Self {
        self.at_time(at(time), event)
    }

    /// Starts all recorded runs.
    fn start(&mut self) -> &mut Self {
        for run in self.schedule.runs.clone() {
            if self.schedule.start(run.id) {
                self.seen.insert(run.id, RunStatus::Active);
            }
        }
        self
    }

    /// Ends the first active run.
    fn end(&mut self, outcome: JobOutcome) -> &mut Self {
        let active = self.seen.values_mut().find(|status| **status == RunStatus::Active);
        *active.unwrap() = RunStatus::Ended(outcome);
        self
    }

    fn finish(&mut self) -> String {
        for entry in &self.schedule.history {
            writeln!(self.text, "{entry}").unwrap();
        }
        std::mem::take(&mut self.text)
    }
}

use CatchUp::{None as Never, Once};
use ConcurrencyPolicy::{Allow, Forbid, Replace};

#[test]
fn each_elapse_makes_a_run() {
    let mut story = Story::new("*:00", Forbid, Never);
    story.at("00:30", "created").at("01:00", "elapse").start().at("01:00:01", "started");
    story.end(JobOutcome::Succeeded).at("01:10", "ended").at("02:00", "elapse").start();
    story.end(JobOutcome::Failed).at("02:10", "ended");
    insta::assert_snapshot!(story.finish(), @"
    20261128T003000Z created: nothing; next 20261128T010000Z
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T010001Z started: nothing; next 20261128T020000Z
    20261128T011000Z ended: nothing; next 20261128T020000Z
    20261128T020000Z elapse: start run 20261128T020000Z; next 20261128T030000Z
    20261128T021000Z ended: nothing; next 20261128T030000Z
    20261128T010000Z: succeeded
    20261128T020000Z: failed
    ");
}

#[test]
fn next_leader_starts_the_recorded_run() {
    let mut story = Story::new("*:00", Forbid, Never);
    story.at("01:00", "elapse").at("01:40", "next leader").start().at("01:41", "started");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T014000Z next leader: start run 20261128T010000Z; next 20261128T020000Z
    20261128T014100Z started: nothing; next 20261128T020000Z
    ");
}

#[test]
fn elapse_within_the_delay_is_in_time() {
    for (now, runs) in [("01:00", 1), ("01:01", 1), ("01:01:01", 0)] {
        let mut story = Story::new("*:00", Forbid, Never);
        story.at(now, "elapse");
        assert_eq!(story.schedule.runs.len(), runs, "{now}");
    }
}

#[test]
fn missed_elapses_are_counted() {
    let mut story = Story::new("*:00", Forbid, Never);
    story.at("05:30", "first leader since 00:30").at("07:30", "another one");
    story.at("08:00:30", "elapse");
    insta::assert_snapshot!(story.finish(), @"
    20261128T053000Z first leader since 00:30: nothing; next 20261128T060000Z
    20261128T073000Z another one: nothing; next 20261128T080000Z
    20261128T080030Z elapse: start run 20261128T080000Z; next 20261128T090000Z
    20261128T010000Z to 20261128T070000Z (7): missed: no leader handled it in time
    ");
}

#[test]
fn missed_elapses_are_caught_up_once() {
    let mut story = Story::new("*:00", Forbid, Once);
    story.at("05:30", "first leader since 00:30").start().end(JobOutcome::Succeeded);
    story.at("05:40", "ended");
    insta::assert_snapshot!(story.finish(), @"
    20261128T053000Z first leader since 00:30: start run 20261128T050000Z; next 20261128T060000Z
    20261128T054000Z ended: nothing; next 20261128T060000Z
    20261128T010000Z to 20261128T040000Z (4): missed: no leader handled it in time
    20261128T050000Z: succeeded
    ");
}

#[test]
fn many_missed_elapses_are_one_entry() {
    let mut story = Story::new("*:*:00", Forbid, Never);
    story.at_time(hours_after_midnight(24 * 365), "a year later");
    insta::assert_snapshot!(story.finish(), @"
    20271128T000000Z a year later: start run 20271128T000000Z; next 20271128T000100Z
    20261128T003100Z to 20271127T235900Z (1000 or more): missed: no leader handled it in time
    ");
}

#[test]
fn forbid_skips_elapses_of_an_unfinished_run() {
    let mut story = Story::new("*:00", Forbid, Once);
    story.at("01:00", "elapse").start().at("02:00", "elapse").at("03:00", "elapse");
    story.end(JobOutcome::Succeeded).at("03:30", "ended").at("04:00", "elapse");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T020000Z elapse: nothing; next 20261128T030000Z
    20261128T030000Z elapse: nothing; next 20261128T040000Z
    20261128T033000Z ended: nothing; next 20261128T040000Z
    20261128T040000Z elapse: start run 20261128T040000Z; next 20261128T050000Z
    20261128T020000Z to 20261128T030000Z (2): skipped: an earlier run was unfinished
    20261128T010000Z: succeeded
    ");
}

#[test]
fn replace_waits_until_the_old_run_has_stopped() {
    let mut story = Story::new("*:00", Replace, Never);
    story.at("01:00", "elapse").start().at("02:00", "elapse");
    assert!(!story.schedule.clone().start(RunId::Elapse(at("02:00"))), "the old run is active");
    story.at("03:00", "elapse while waiting").end(JobOutcome::Stopped).at("03:01", "stopped");
    story.start().end(JobOutcome::Succeeded).at("03:20", "ended");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T020000Z elapse: stop run 20261128T010000Z; next 20261128T030000Z
    20261128T030000Z elapse while waiting: stop run 20261128T010000Z; next 20261128T040000Z
    20261128T030100Z stopped: start run 20261128T030000Z; next 20261128T040000Z
    20261128T032000Z ended: nothing; next 20261128T040000Z
    20261128T020000Z: skipped: another run replaced it before it started
    20261128T010000Z: replaced by another run
    20261128T030000Z: succeeded
    ");
}

#[test]
fn replaced_run_that_succeeded_first_keeps_its_result() {
    let mut story = Story::new("*:00", Replace, Never);
    story.at("01:00", "elapse").start().at("02:00", "elapse");
    story.end(JobOutcome::Succeeded).at("02:01", "ended");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T020000Z elapse: stop run 20261128T010000Z; next 20261128T030000Z
    20261128T020100Z ended: start run 20261128T020000Z; next 20261128T030000Z
    20261128T010000Z: succeeded
    ");
}

#[test]
fn allow_is_bounded() {
    let mut story = Story::new("*:00", Allow, Never);
    for hour in 1..=12 {
        story.at_time(hours_after_midnight(hour), "elapse").start();
    }
    assert_eq!(story.schedule.runs.len(), ScheduleState::MAX_RUNS);
    story.text.clear();
    insta::assert_snapshot!(story.finish(), @"
    20261128T110000Z to 20261128T120000Z (2): skipped: too many runs were unfinished
    ");
}

#[test]
fn removed_run_has_no_result() {
    let mut story = Story::new("*:00", Forbid, Never);
    story.at("01:00", "elapse").start().seen.clear();
    story.at("01:10", "unit removed");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T011000Z unit removed: nothing; next 20261128T020000Z
    20261128T010000Z: removed
    ");
}

#[test]
fn paused_schedule_runs_on_request_only() {
    let mut story = Story::new("*:00", Forbid, Once);
    story.requests.paused = true;
    story.at("01:00", "elapse").at("03:30", "elapses");
    story.requests.run_now = Generation(2);
    story.at("03:31", "two requests").start().end(JobOutcome::Succeeded).at("03:40", "ended");
    story.requests.paused = false;
    story.at("03:50", "resumed").at("04:00", "elapse");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: nothing; next never
    20261128T033000Z elapses: nothing; next never
    20261128T033100Z two requests: start run manual-2; next never
    20261128T034000Z ended: nothing; next never
    20261128T035000Z resumed: nothing; next 20261128T040000Z
    20261128T040000Z elapse: start run 20261128T040000Z; next 20261128T050000Z
    20261128T010000Z: skipped: the schedule was paused or stopped
    manual-2: succeeded
    20261128T020000Z to 20261128T030000Z (2): skipped: the schedule was paused or stopped
    ");
}

/// The unit was not created by the schedule, because the run would be started then.
#[test]
fn run_whose_unit_name_is_taken_is_skipped() {
    let mut story = Story::new("*:00", Forbid, Never);
    story.at("01:00", "elapse");
    story.seen.insert(story.schedule.runs[0].id, RunStatus::Active);
    story.at("01:01", "another unit exists");
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T010100Z another unit exists: nothing; next 20261128T020000Z
    20261128T010000Z: skipped: another unit had the name of its unit
    ");
}

#[test]
fn request_during_a_run_follows_the_policy() {
    let mut story = Story::new("*:00", Forbid, Never);
    story.at("01:00", "elapse").start();
    for request in 1..=3 {
        story.requests.run_now = Generation(request);
        story.at("01:10", "request");
    }
    insta::assert_snapshot!(story.finish(), @"
    20261128T010000Z elapse: start run 20261128T010000Z; next 20261128T020000Z
    20261128T011000Z request: nothing; next 20261128T020000Z
    20261128T011000Z request: nothing; next 20261128T020000Z
    20261128T011000Z request: nothing; next 20261128T020000Z
    manual-1 to manual-3 (3): skipped: an earlier run was unfinished
    ");
}

#[test]
fn clock_set_back_repeats_no_elapse() {
    let mut story = Story::new("*:00", Allow, Once);
    story.at("03:00", "elapse").start().at("01:00", "clock set back").at("02:30", "waiting");
    story.at("03:00", "the same time again").at("04:00", "elapse");
    insta::assert_snapshot!(story.finish(), @"
    20261128T030000Z elapse: start run 20261128T030000Z; next 20261128T040000Z
    20261128T010000Z clock set back: nothing; next 20261128T040000Z
    20261128T023000Z waiting: nothing; next 20261128T040000Z
    20261128T030000Z the same time again: nothing; next 20261128T040000Z
    20261128T040000Z elapse: start run 20261128T040000Z; next 20261128T050000Z
    20261128T010000Z to 20261128T020000Z (2): missed: no leader handled it in time
    ");
}

#[test]
fn changed_event_misses_nothing_before_the_change() {
    let mut story = Story::new("23:00", Forbid, Once);
    story.at("10:00", "before").settings.calendar = "*:00".parse().unwrap();
    story.schedule.skip_until(at("10:00"));
    story.at("10:01", "changed").at("11:00", "elapse");
    story.schedule.skip_until(at("03:00"));
    assert_eq!(story.schedule.decided_until, at("11:00"));
    insta::assert_snapshot!(story.finish(), @"
    20261128T100000Z before: nothing; next 20261128T230000Z
    20261128T100100Z changed: nothing; next 20261128T110000Z
    20261128T110000Z elapse: start run 20261128T110000Z; next 20261128T120000Z
    ");
}

#[test]
fn event_without_a_further_elapse_ends_the_schedule() {
    let mut story = Story::new("2026-11-28 01:00", Forbid, Never);
    story.at("00:40", "before").at("01:00", "elapse").at("02:00", "after");
    insta::assert_snapshot!(story.finish(), @"
    20261128T004000Z before: nothing; next 20261128T010000Z
    20261128T010000Z elapse: start run 20261128T010000Z; next never
    20261128T020000Z after: start run 20261128T010000Z; next never
    ");
}

/// A zone that is two hours ahead of UTC, and one hour from 03:00 UTC on 28 November 2026.
struct EndOfSummer;

impl Zone for EndOfSummer {
    fn offset_period(&self, second: i64) -> OffsetPeriod {
        let change = i64::try_from(at("03:00").as_millis() / 1000).unwrap();
        match second < change {
            true => OffsetPeriod { offset: 7200, since: None, until: Some(change) },
            false => OffsetPeriod { offset: 3600, since: Some((change, 7200)), until: None },
        }
    }
}

#[test]
fn hour_that_occurs_twice_elapses_once() {
    let mut story = Story::new("04:30 Some/Zone", Forbid, Never);
    story.zone = &EndOfSummer;
    story.at("02:30", "first 04:30").start().end(JobOutcome::Succeeded).at("02:31", "ended");
    story.at("03:30", "second 04:30");
    insta::assert_snapshot!(story.finish(), @"
    20261128T023000Z first 04:30: start run 20261128T023000Z; next 20261129T033000Z
    20261128T023100Z ended: nothing; next 20261129T033000Z
    20261128T033000Z second 04:30: nothing; next 20261129T033000Z
    20261128T023000Z: succeeded
    ");
}

//! Properties of schedules with random leaders, lost and late actions, and clock jumps.

use std::collections::BTreeMap;

use fleet_core::job::JobOutcome;
use fleet_core::schedule::{
    CatchUp, ConcurrencyPolicy, HistoryEntry, RunId, RunPhase, RunStatus, ScheduleAction,
    ScheduleRequests, ScheduleSettings, ScheduleState,
};
use fleet_core::{Generation, Timestamp};
use fleet_unitfile::Calendar;
use fleet_unitfile::calendar::Utc;
use proptest::prelude::*;

use crate::init::config::cases;

#[derive(Debug, Clone)]
enum Op {
    /// A leader whose clock differs by so many milliseconds advances the schedule. It may end
    /// before it stores the state. It takes those actions whose bits are set.
    Lead {
        skew: i64,
        stores: bool,
        takes: u8,
    },
    /// An action of an earlier step arrives late, with the state of that step.
    Late(usize),
    /// A run's job ends.
    End(usize, bool),
    /// A user removes the unit of a run.
    Remove(usize),
    Clock(i64),
    Pause(bool),
    RunNow,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (-3000_i64..3000, prop::bool::weighted(0.8), any::<u8>())
            .prop_map(|(skew, stores, takes)| Op::Lead { skew, stores, takes }),
        2 => any::<usize>().prop_map(Op::Late),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(at, ok)| Op::End(at, ok)),
        1 => any::<usize>().prop_map(Op::Remove),
        6 => (0_i64..90_000).prop_map(Op::Clock),
        1 => (-600_000_i64..600_000).prop_map(Op::Clock),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => Just(Op::RunNow),
    ]
}

fn settings() -> impl Strategy<Value = ScheduleSettings> {
    use ConcurrencyPolicy::{Allow, Forbid, Replace};
    let events = ["*:*", "*:0/5", "*:*:0/20", "*:*:0,1,2", "*:*:0.25", "*:0/3:30 UTC"];
    let policies = prop::sample::select(vec![Allow, Forbid, Replace]);
    let catch_up = prop::sample::select(vec![CatchUp::None, CatchUp::Once]);
    (prop::sample::select(events.to_vec()), policies, catch_up).prop_map(
        |(event, concurrency, catch_up)| ScheduleSettings {
            calendar: event.parse().unwrap(),
            concurrency,
            catch_up,
        },
    )
}

struct World {
    settings: ScheduleSettings,
    requests: ScheduleRequests,
    stored: ScheduleState,
    units: BTreeMap<RunId, RunStatus>,
    now: u64,
    created: Timestamp,
    late: Vec<(ScheduleState, ScheduleAction)>,
    starts: BTreeMap<RunId, u32>,
}

impl World {
    fn new(settings: ScheduleSettings) -> Self {
        let now = 1_795_824_007_000;
        let created = Timestamp::from_millis(now);
        Self {
            settings,
            requests: ScheduleRequests::default(),
            stored: ScheduleState::new(created),
            units: BTreeMap::new(),
            now,
            created,
            late: Vec::new(),
            starts: BTreeMap::new(),
        }
    }

    fn lead(&mut self, skew: i64, stores: bool, takes: u8) {
        let now = Timestamp::from_millis(self.now.saturating_add_signed(skew));
        let mut schedule = self.stored.clone();
        let (settings, requests, units) = (&self.settings, self.requests, &self.units);
        let step = schedule.advance(settings, requests, units, &Utc, now);
        let mut again = schedule.clone();
        assert_eq!(again.advance(settings, requests, units, &Utc, now), step, "not idempotent");
        assert_eq!(again, schedule, "not idempotent");
        let is_later = |next| next > now && next > schedule.decided_until;
        assert!(step.next.map_or(requests.paused, is_later));
        if self.stored.is_paused && requests.paused {
            assert_eq!(schedule.decided_until, self.stored.decided_until, "it is paused");
        }
        assert!(schedule.decided_until >= self.stored.decided_until);
        assert!(schedule.history.len() <= ScheduleState::MAX_HISTORY);
        assert!(schedule.runs.len() <= ScheduleState::MAX_RUNS);
        self.check_accounts(&schedule);
        if !stores {
            return;
        }
        self.stored = schedule;
        for (bit, action) in step.actions.into_iter().enumerate() {
            self.late.push((self.stored.clone(), action));
            if takes & (1 << (bit % 8)) != 0 {
                self.take(&self.stored.clone(), action);
            }
        }
    }

    /// Checks that each elapse is accounted for exactly once, as long as no entry was dropped.
    fn check_accounts(&self, schedule: &ScheduleState) {
        if schedule.history.len() == ScheduleState::MAX_HISTORY {
            return;
        }
        let is_elapse = |id: &RunId| matches!(id, RunId::Elapse(_));
        let entries = schedule.history.iter().map(|entry| match entry {
            HistoryEntry::Run { id, .. } => u64::from(is_elapse(id)),
            HistoryEntry::Omitted { first, count, or_more, .. } => {
                assert!(!or_more);
                if is_elapse(first) { *count } else { 0 }
            }
        });
        let runs = schedule.runs.iter().filter(|run| is_elapse(&run.id)).count() as u64;
        let expected = elapses(&self.settings.calendar, self.created, schedule.decided_until);
        assert_eq!(entries.sum::<u64>() + runs, expected, "{schedule:?}");
    }

    /// Takes an action. A start is a transaction that fails if the stored state has changed.
    fn take(&mut self, basis: &ScheduleState, action: ScheduleAction) {
        match action {
            ScheduleAction::Start { run } => {
                let mut schedule = basis.clone();
                if *basis != self.stored || !schedule.start(run) {
                    return;
                }
                if self.settings.concurrency == ConcurrencyPolicy::Replace {
                    assert_eq!(self.active(), 0, "an old run is active");
                }
                self.stored = schedule;
                self.units.insert(run, RunStatus::Active);
                *self.starts.entry(run).or_default() += 1;
            }
            ScheduleAction::Stop { run } => {
                if let Some(status @ RunStatus::Active) = self.units.get_mut(&run) {
                    *status = RunStatus::Ended(JobOutcome::Stopped);
                }
            }
        }
    }

    fn active(&self) -> usize {
        self.units.values().filter(|status| **status == RunStatus::Active).count()
    }

    fn unit(&self, at: usize) -> Option<RunId> {
        let at = at.checked_rem(self.units.len())?;
        self.units.keys().nth(at).copied()
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Lead { skew, stores, takes } => self.lead(skew, stores, takes),
            Op::Late(at) => {
                if let Some(at) = at.checked_rem(self.late.len()) {
                    let (basis, action) = self.late[at].clone();
                    self.take(&basis, action);
                }
            }
            Op::End(at, success) => {
                let outcome = if success { JobOutcome::Succeeded } else { JobOutcome::Failed };
                if let Some(run) = self.unit(at) {
                    self.units.insert(run, RunStatus::Ended(outcome));
                }
            }
            Op::Remove(at) => {
                if let Some(run) = self.unit(at) {
                    self.units.remove(&run);
                }
            }
            Op::Clock(by) => self.now = self.now.saturating_add_signed(by),
            Op::Pause(paused) => self.requests.paused = paused,
            Op::RunNow => self.requests.run_now = self.requests.run_now.next(),
        }
        assert!(self.starts.values().all(|&starts| starts == 1), "{:?}", self.starts);
        if self.settings.concurrency != ConcurrencyPolicy::Allow {
            assert!(self.active() <= 1, "{:?}", self.units);
        }
    }
}

/// Counts elapses one by one.
fn elapses(calendar: &Calendar, after: Timestamp, until: Timestamp) -> u64 {
    let micros = |at: Timestamp| std::time::Duration::from_millis(at.as_millis());
    let step = |at: &std::time::Duration| calendar.next_after(*at, &Utc);
    let all = std::iter::successors(step(&micros(after)), step);
    all.take_while(|at| *at <= micros(until)).count() as u64
}

proptest! {
    #![proptest_config(cases(2))]

    #[test]
    fn each_elapse_is_decided_once_and_runs_at_most_once(
        settings in settings(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut world = World::new(settings);
        for op in &ops {
            world.apply(op);
        }
        let runs = world.starts.keys().filter_map(|run| match run {
            RunId::Elapse(at) => Some(*at),
            RunId::Manual(_) => None,
        });
        for at in runs {
            let before = Timestamp::from_millis(at.as_millis() - 1);
            prop_assert_eq!(elapses(&world.settings.calendar, before, at), 1, "no elapse");
        }
    }

    #[test]
    fn recorded_run_starts_and_ends_without_faults(
        settings in settings(),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(settings);
        for op in &ops {
            world.apply(op);
        }
        world.requests.paused = true;
        for _ in 0..4 {
            world.apply(&Op::Lead { skew: 0, stores: true, takes: 0 });
            for run in world.stored.runs.clone() {
                let action = match run.phase {
                    RunPhase::Stopping => ScheduleAction::Stop { run: run.id },
                    _ => ScheduleAction::Start { run: run.id },
                };
                world.take(&world.stored.clone(), action);
            }
            for status in world.units.values_mut().filter(|it| **it == RunStatus::Active) {
                *status = RunStatus::Ended(JobOutcome::Succeeded);
            }
        }
        world.apply(&Op::Lead { skew: 0, stores: true, takes: 0 });
        prop_assert!(world.stored.runs.is_empty(), "{:?}", world.stored);
        prop_assert!(world.starts.values().all(|&starts| starts == 1));
    }
}

#[test]
fn names_of_runs_are_distinct() {
    let unit = "backup.service".parse().unwrap();
    let name = |id: RunId| id.unit_name(&unit).unwrap().as_str().to_owned();
    let times = [0, 1, 999, 1000, 1_795_831_200_000, 1_795_831_200_250, 7_258_118_399_999];
    let names: Vec<String> =
        times.iter().map(|at| name(RunId::Elapse(Timestamp::from_millis(*at)))).collect();
    insta::assert_snapshot!(names.join("\n"), @"
    backup-19700101T000000Z.service
    backup-19700101T000000.001Z.service
    backup-19700101T000000.999Z.service
    backup-19700101T000001Z.service
    backup-20261128T020000Z.service
    backup-20261128T020000.250Z.service
    backup-21991231T235959.999Z.service
    ");
    let manual = [1, 2, 10].map(|request| name(RunId::Manual(Generation(request))));
    assert_eq!(manual[2], "backup-manual-10.service");
    let all: std::collections::BTreeSet<&String> = names.iter().chain(&manual).collect();
    assert_eq!(all.len(), times.len() + manual.len());
}

//! Counted failures of units with `MoveAfterFailures=`: histories, laws and observation.

use std::collections::BTreeMap;
use std::fmt::Write;

use fleet_core::failures::{
    FailureAction, FailureObservation, FailurePhase, FailureRecord, FailureStep, RunState,
    SeenUnit, advance,
};
use fleet_core::unit::LoadState;
use fleet_core::{
    ActiveState, Epoch, Generation, Machine, MachineId, Requirements, Snapshot, Strictness,
    SystemdState, TargetState, Timestamp, Unit, UnitState,
};
use fleet_unitfile::{UnitFile, UnitHash};
use proptest::prelude::*;

use crate::wrap::wrap;

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn unit(options: &str) -> Unit {
    let text = format!("[Service]\nExecStart=/bin/a\n[X-Fleet]\n{options}\n");
    let (name, file) = ("a.service".parse().unwrap(), UnitFile::parse(text).unwrap());
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    Unit::new(name, file, parsed.requirements, TargetState::Launched)
}

/// A unit that is observed and advanced step by step. Actions take effect at once.
struct Story {
    record: Option<FailureRecord>,
    seen: SeenUnit,
    text: String,
}

impl Story {
    fn new(limit: u32) -> Self {
        let (generation, next_generation) = (Generation(1), Generation(2));
        let (hash, machine) = (UnitHash::from_bytes([1; 20]), Some(id("m1")));
        let run = RunState::Pending;
        let seen = SeenUnit { hash, generation, next_generation, limit, machine, run };
        Self { record: None, seen, text: String::new() }
    }

    fn on(&mut self, machine: &str) -> &mut Self {
        self.seen.machine = Some(id(machine));
        self
    }

    fn restart(&mut self) {
        self.seen.generation = self.seen.next_generation;
        self.seen.next_generation = self.seen.generation.next();
        self.seen.run = RunState::Pending;
    }

    /// Advances the unit and writes a line.
    fn at(&mut self, second: u64, event: &str, run: RunState) -> &mut Self {
        self.seen.run = run;
        self.lead(second, event, &FailureObservation::Seen(self.seen.clone()))
    }

    fn lead(&mut self, second: u64, event: &str, seen: &FailureObservation) -> &mut Self {
        let step = advance(self.record.as_ref(), seen, seconds(second));
        let FailureStep { record, action, next } = step;
        let shown = match &record {
            None => "no record".to_owned(),
            Some(record) => {
                let wants = format!("MoveAfterFailures={}", self.seen.limit);
                let machine = self.seen.machine.as_ref();
                let machine = machine.filter(|_| action != Some(FailureAction::Move));
                record.describe(&unit(&wants), machine)
            }
        };
        let action = action.map_or("-".to_owned(), |action| format!("{action:?}"));
        let next = next.map_or("-".to_owned(), |at| format!("{}s", at.as_millis() / 1000));
        writeln!(self.text, "{second}s {event}: {shown}; {action}; next {next}").unwrap();
        self.record = record;
        match action.as_str() {
            "Move" => {
                self.restart();
                self.seen.machine = None;
            }
            "Restart" => self.restart(),
            _ => {}
        }
        self
    }
}

#[test]
fn unit_moves_after_failures_and_settles() {
    let mut story = Story::new(2);
    story
        .at(0, "starts", RunState::Pending)
        .at(1, "is up", RunState::Up)
        .at(5, "fails", RunState::Failed)
        .at(6, "is still down", RunState::Failed)
        .at(15, "delay is over", RunState::Failed)
        .at(16, "starts", RunState::Pending)
        .at(17, "is up", RunState::Up)
        .at(100, "fails", RunState::Failed)
        .at(119, "is still down", RunState::Failed)
        .at(120, "delay is over", RunState::Failed)
        .at(121, "has no machine", RunState::Pending)
        .on("m2")
        .at(122, "starts", RunState::Pending)
        .at(123, "is up", RunState::Up)
        .at(722, "is up", RunState::Up)
        .at(723, "is up", RunState::Up)
        .at(800, "fails", RunState::Failed);
    insta::assert_snapshot!(wrap(&story.text), @r"
    0s starts: no record; -; next -
    1s is up: no record; -; next -
    5s fails: failed once on m1: restarts after 10 s, at 00:00:15 UTC; -; next 15s
    6s is still down: failed once on m1: restarts after 10 s, at 00:00:15 UTC; -; next 15s
    15s delay is over: failed once on m1: restarted on m1; Restart; next -
    16s starts: failed once on m1: restarted on m1; -; next -
    17s is up: failed once on m1: restarted on m1; -; next 617s
    100s fails: failed 2 times on m1: moves after 20 s, at 00:02:00 UTC; -; next 120s
    119s is still down: failed 2 times on m1: moves after 20 s, at 00:02:00 UTC; -; next 120s
    120s delay is over: failed 2 times on m1: waiting for a machine; Move; next -
    121s has no machine: failed 2 times on m1: waiting for a machine; -; next -
    122s starts: failed 2 times on m1: moved to m2; -; next -
    123s is up: failed 2 times on m1: moved to m2; -; next 723s
    722s is up: failed 2 times on m1: moved to m2; -; next 723s
    723s is up: no record; -; next -
    800s fails: failed once on m2: restarts after 10 s, at 00:13:30 UTC; -; next 810s
    ");
}

#[test]
fn delays_grow_while_a_unit_fails_everywhere() {
    let mut story = Story::new(1);
    let mut second = 0;
    for round in 0..8 {
        story.on(["m1", "m2"][round % 2]).at(second, "fails", RunState::Failed);
        let Some(FailureRecord { phase: FailurePhase::Waiting { until, .. }, .. }) = story.record
        else {
            panic!("it waits: {}", story.text)
        };
        second = until.as_millis() / 1000;
        story.at(second, "delay is over", RunState::Failed);
    }
    story.on("m1").at(second, "back", RunState::Pending);
    insta::assert_snapshot!(wrap(&story.text), @r"
    0s fails: failed once on m1: moves after 10 s, at 00:00:10 UTC; -; next 10s
    10s delay is over: failed once on m1: waiting for a machine; Move; next -
    10s fails: failed once on m1, once on m2: moves after 20 s, at 00:00:30 UTC; -; next 30s
    30s delay is over: failed once on m1, once on m2: waiting for a machine; Move; next -
    30s fails: failed 2 times on m1, once on m2: moves after 40 s, at 00:01:10 UTC; -; next
        70s
    70s delay is over: failed 2 times on m1, once on m2: waiting for a machine; Move; next -
    70s fails: failed 2 times on m1, 2 times on m2: moves after 80 s, at 00:02:30 UTC; -; next
        150s
    150s delay is over: failed 2 times on m1, 2 times on m2: waiting for a machine; Move; next
        -
    150s fails: failed 3 times on m1, 2 times on m2: moves after 160 s, at 00:05:10 UTC; -;
        next 310s
    310s delay is over: failed 3 times on m1, 2 times on m2: waiting for a machine; Move; next
        -
    310s fails: failed 3 times on m1, 3 times on m2: moves after 320 s, at 00:10:30 UTC; -;
        next 630s
    630s delay is over: failed 3 times on m1, 3 times on m2: waiting for a machine; Move; next
        -
    630s fails: failed 4 times on m1, 3 times on m2: moves after 600 s, at 00:20:30 UTC; -;
        next 1230s
    1230s delay is over: failed 4 times on m1, 3 times on m2: waiting for a machine; Move;
        next -
    1230s fails: failed 4 times on m1, 4 times on m2: moves after 600 s, at 00:30:30 UTC; -;
        next 1830s
    1830s delay is over: failed 4 times on m1, 4 times on m2: waiting for a machine; Move;
        next -
    1830s back: failed 4 times on m1, 4 times on m2: restarted on m1, no better machine; -;
        next -
    ");
}

#[test]
fn changes_by_users_and_schedulers_reset_or_hold_failures() {
    let mut story = Story::new(3);
    story.at(0, "fails", RunState::Failed);
    story.restart();
    story.at(1, "a user restarts it", RunState::Pending);
    story.at(2, "fails", RunState::Failed);
    story.seen.hash = UnitHash::from_bytes([2; 20]);
    story.at(3, "a user replaces its file", RunState::Pending);
    story.at(4, "fails", RunState::Failed);
    story.lead(5, "is in a rollout", &FailureObservation::Held);
    story.at(6, "comes up by itself", RunState::Up);
    story.at(7, "fails", RunState::Failed);
    story.on("m2").at(8, "the scheduler moves it", RunState::Pending);
    story.at(9, "fails there", RunState::Failed);
    story.seen.machine = None;
    story.at(10, "has no machine", RunState::Pending);
    story.on("m2").at(11, "fails there", RunState::Failed);
    story.at(1, "clock goes back", RunState::Failed);
    story.record = story.record.map(|record| {
        let phase = FailurePhase::Waiting { machine: id("m2"), until: seconds(10_000) };
        FailureRecord { phase, ..record }
    });
    story.at(2, "clock goes far back", RunState::Failed);
    story.lead(13, "is stopped", &FailureObservation::Exempt);
    insta::assert_snapshot!(wrap(&story.text), @r"
    0s fails: failed once on m1: restarts after 10 s, at 00:00:10 UTC; -; next 10s
    1s a user restarts it: no record; -; next -
    2s fails: failed once on m1: restarts after 10 s, at 00:00:12 UTC; -; next 12s
    3s a user replaces its file: no record; -; next -
    4s fails: failed once on m1: restarts after 10 s, at 00:00:14 UTC; -; next 14s
    5s is in a rollout: failed once on m1: restarts after 10 s, at 00:00:14 UTC; -; next -
    6s comes up by itself: failed once on m1: restarted on m1; -; next 606s
    7s fails: failed 2 times on m1: restarts after 20 s, at 00:00:27 UTC; -; next 27s
    8s the scheduler moves it: failed 2 times on m1: moved to m2; -; next -
    9s fails there: failed 2 times on m1, once on m2: restarts after 40 s, at 00:00:49 UTC; -;
        next 49s
    10s has no machine: failed 2 times on m1, once on m2: waiting for a machine; -; next -
    11s fails there: failed 2 times on m1, 2 times on m2: restarts after 80 s, at 00:01:31
        UTC; -; next 91s
    1s clock goes back: failed 2 times on m1, 2 times on m2: restarts after 80 s, at 00:01:31
        UTC; -; next 91s
    2s clock goes far back: failed 2 times on m1, 2 times on m2: restarted on m2; Restart;
        next -
    13s is stopped: no record; -; next -
    ");
}

#[test]
fn record_keeps_the_machines_with_most_failures() {
    let mut story = Story::new(100);
    for number in 0..20_u64 {
        for _ in 0..=number % 3 {
            let machine = format!("m{number:02}");
            let second = number * 10_000;
            story.on(&machine).at(second, "fails", RunState::Failed);
            story.at(second + 700, "delay is over", RunState::Failed);
        }
    }
    let record = story.record.expect("it has failed");
    assert_eq!(record.machines.len(), FailureRecord::MAX_MACHINES);
    assert_eq!(record.machines.get(&id("m19")), Some(&2));
    assert_eq!(record.machines.get(&id("m02")), Some(&3));
}

#[derive(Debug, Clone)]
enum Op {
    Up,
    Fail,
    Place(Option<usize>),
    UserRestart,
    Clock(u64),
    Lead { stores: bool },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Up),
        6 => Just(Op::Fail),
        1 => prop::option::weighted(0.8, 0..3_usize).prop_map(Op::Place),
        1 => Just(Op::UserRestart),
        6 => (0..400_u64).prop_map(Op::Clock),
        12 => prop::bool::weighted(0.8).prop_map(|stores| Op::Lead { stores }),
    ]
}

/// A cluster with one unit, and the expected failures: a list of the runs that were seen to fail.
struct World {
    story: Story,
    now: u64,
    failed: Vec<MachineId>,
    /// Whether the failure of the current run is in the list.
    is_noted: bool,
    failed_at: u64,
    up_seen: Option<u64>,
}

impl World {
    fn start(&mut self) {
        (self.is_noted, self.story.seen.run) = (false, RunState::Pending);
    }

    fn forget(&mut self) {
        self.failed.clear();
        self.up_seen = None;
    }

    /// Computes the expected action and failures in the obvious way.
    fn expect(&mut self) -> Option<FailureAction> {
        let SeenUnit { run, machine, limit, .. } = self.story.seen.clone();
        match (run, machine) {
            (RunState::Failed, Some(machine)) => {
                if !self.is_noted {
                    self.failed.push(machine.clone());
                    (self.is_noted, self.failed_at, self.up_seen) = (true, self.now, None);
                }
                let doublings = self.failed.len() - 1;
                let delay = (0..doublings).fold(10, |delay: u64, _| (delay * 2).min(600));
                let there = self.failed.iter().filter(|it| **it == machine).count();
                let moves = there >= usize::try_from(limit).unwrap();
                (self.now >= self.failed_at + delay).then_some(match moves {
                    true => FailureAction::Move,
                    false => FailureAction::Restart,
                })
            }
            (RunState::Up, _) if !self.failed.is_empty() => {
                let since = *self.up_seen.get_or_insert(self.now);
                if self.now >= since + 600 {
                    self.forget();
                }
                None
            }
            _ => {
                if self.up_seen.is_some_and(|since| self.now >= since + 600) {
                    self.forget();
                }
                None
            }
        }
    }

    fn lead(&mut self, stores: bool) -> Result<(), TestCaseError> {
        let seen = FailureObservation::Seen(self.story.seen.clone());
        let step = advance(self.story.record.as_ref(), &seen, seconds(self.now));
        let again = advance(self.story.record.as_ref(), &seen, seconds(self.now));
        prop_assert_eq!(&step, &again);
        if !stores {
            return Ok(());
        }
        prop_assert!(step.next.is_none_or(|next| next > seconds(self.now)));
        prop_assert_eq!(step.action, self.expect());
        let mut counts = BTreeMap::new();
        self.failed.iter().for_each(|it| *counts.entry(it.clone()).or_insert(0) += 1);
        let counted = step.record.as_ref().map(|it| it.machines.clone()).unwrap_or_default();
        prop_assert_eq!(counted, counts);
        let total = step.record.as_ref().map_or(0, |record| record.total);
        prop_assert_eq!(usize::try_from(total).unwrap(), self.failed.len());
        self.story.record = step.record;
        if let Some(action) = step.action {
            self.story.restart();
            self.start();
            if action == FailureAction::Move {
                self.story.seen.machine = None;
            }
        }
        Ok(())
    }

    fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let run = self.story.seen.run;
        let is_placed = self.story.seen.machine.is_some();
        match op {
            // A run that has failed comes up only by another start.
            Op::Up if is_placed && run == RunState::Pending => self.story.seen.run = RunState::Up,
            Op::Fail if is_placed => self.story.seen.run = RunState::Failed,
            Op::Place(to) => {
                let to = to.map(|at| id(["m1", "m2", "m3"][at]));
                if to != self.story.seen.machine {
                    self.story.seen.machine = to;
                    self.start();
                    self.lead(true)?;
                }
            }
            Op::UserRestart => {
                self.story.restart();
                self.start();
                self.forget();
            }
            Op::Clock(seconds) => self.now += seconds,
            Op::Lead { stores } => self.lead(*stores)?,
            Op::Up | Op::Fail => {}
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn each_failed_run_counts_once(
        limit in 1..4_u32,
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let story = Story::new(limit);
        let mut world =
            World { story, now: 1, failed: vec![], is_noted: false, failed_at: 0, up_seen: None };
        for op in &ops {
            world.run(op)?;
        }
    }
}

#[test]
fn failures_follow_from_published_states() {
    use ActiveState::{Activating, Active, Deactivating, Failed, Inactive};
    let unit = unit("MoveAfterFailures=3");
    let state = |load, active, result: Option<&str>| UnitState {
        unit: unit.name.clone(),
        machine: id("m1"),
        hash: unit.hash(),
        requested: TargetState::Launched,
        epoch: Epoch(7),
        generation: unit.generation,
        systemd: SystemdState {
            result: result.map(str::to_owned),
            ..SystemdState::new(load, active, "dead")
        },
        problem: None,
        health: None,
        output: Vec::new(),
    };
    let loaded = |active, result| state(LoadState::Loaded, active, result);
    let failed = || loaded(Failed, Some("exit-code"));
    let cluster = |state: UnitState| {
        let mut snapshot = Snapshot::default();
        snapshot.put_machine(Machine::new(id("m1")));
        snapshot.place(unit.name.clone(), id("m1"), Epoch(7));
        snapshot.put_state(state);
        snapshot
    };
    let not_loaded =
        |load| UnitState { requested: TargetState::Inactive, ..state(load, Inactive, None) };
    for (name, state, expected) in [
        ("active", loaded(Active, Some("success")), RunState::Up),
        ("has run", loaded(Inactive, Some("success")), RunState::Up),
        ("has not run", loaded(Inactive, None), RunState::Pending),
        ("starting", loaded(Activating, None), RunState::Pending),
        ("stopping", loaded(Deactivating, None), RunState::Pending),
        ("failed", failed(), RunState::Failed),
        ("bad setting", not_loaded(LoadState::BadSetting), RunState::Failed),
        ("waits or cannot be loaded", not_loaded(LoadState::Error), RunState::Pending),
        ("older epoch", UnitState { epoch: Epoch(6), ..failed() }, RunState::Pending),
        ("older start", UnitState { generation: Generation(9), ..failed() }, RunState::Pending),
        (
            "other file",
            UnitState { hash: UnitHash::from_bytes([1; 20]), ..failed() },
            RunState::Pending,
        ),
    ] {
        let FailureObservation::Seen(seen) =
            FailureObservation::of(&unit, &cluster(state), Generation(5))
        else {
            panic!("{name}: it is observed")
        };
        assert_eq!((seen.run, seen.limit, seen.machine), (expected, 3, Some(id("m1"))), "{name}");
    }
    let mut absent = cluster(failed());
    absent.remove_machine("m1");
    let of =
        |unit: &Unit, snapshot: &Snapshot| FailureObservation::of(unit, snapshot, Generation(5));
    assert_eq!(of(&unit, &absent), FailureObservation::Held);
    let stopped = Unit { desired: TargetState::Loaded, ..unit.clone() };
    assert_eq!(of(&stopped, &cluster(failed())), FailureObservation::Exempt);
    assert_eq!(of(&self::unit(""), &cluster(failed())), FailureObservation::Exempt);
}

//! Properties of jobs in random clusters: machines, agents and leaders fail, the clock jumps, and
//! actions are lost or repeated late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::job::{
    AttemptId, AttemptProgress, AttemptReport, JobAction, JobObservation, JobOutcome, JobPhase,
    JobSettings, JobState,
};
use fleet_core::unit::ExitStatus;
use fleet_core::{MachineId, Revision, Timestamp};
use proptest::prelude::*;

use crate::init::config::cases;

const MACHINES: usize = 3;

fn machine(index: usize) -> MachineId {
    format!("m{index}").parse().unwrap()
}

fn index(machine: &MachineId) -> usize {
    machine.as_str()[1..].parse().unwrap()
}

/// An agent. Its record of the last attempt survives everything.
#[derive(Debug, Clone, Default)]
struct Agent {
    recorded: Option<AttemptId>,
    progress: Option<AttemptProgress>,
    published: Option<AttemptReport>,
    /// Whether the cluster sees it. A machine that is cut off keeps running its unit.
    cut_off: bool,
    lost: bool,
}

#[derive(Debug, Clone)]
enum Op {
    /// A leader advances the job, and may end before it stores the state. It takes those actions
    /// whose bits are set.
    Lead {
        stores: bool,
        takes: u8,
    },
    /// An action of an earlier step arrives late.
    Repeat(usize),
    Exit(usize, bool),
    FailToStart(usize),
    Reboot(usize),
    Publish(usize),
    CutOff(usize),
    Lose(usize),
    Heal(usize),
    Move(usize),
    Withdraw,
    Stop,
    Clock(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..MACHINES;
    prop_oneof![
        10 => (prop::bool::weighted(0.9), any::<u8>())
            .prop_map(|(stores, takes)| Op::Lead { stores, takes }),
        2 => any::<usize>().prop_map(Op::Repeat),
        4 => (at.clone(), prop::bool::weighted(0.2)).prop_map(|(at, ok)| Op::Exit(at, ok)),
        1 => at.clone().prop_map(Op::FailToStart),
        1 => at.clone().prop_map(Op::Reboot),
        6 => at.clone().prop_map(Op::Publish),
        1 => at.clone().prop_map(Op::CutOff),
        2 => at.clone().prop_map(Op::Lose),
        2 => at.clone().prop_map(Op::Heal),
        1 => at.prop_map(Op::Move),
        1 => Just(Op::Withdraw),
        1 => Just(Op::Stop),
        4 => (-20_000_i64..60_000).prop_map(Op::Clock),
    ]
}

fn settings() -> impl Strategy<Value = JobSettings> {
    let span = |most: u64| prop::option::of((1..most).prop_map(Duration::from_secs));
    (0_u32..4, span(600), span(600), any::<bool>()).prop_map(
        |(retries, deadline, keep_for, count_lost)| JobSettings {
            retries,
            deadline,
            keep_for,
            count_lost,
        },
    )
}

struct World {
    settings: JobSettings,
    stored: JobState,
    placed: Option<MachineId>,
    stop_requested: bool,
    agents: Vec<Agent>,
    now: u64,
    actions: Vec<JobAction>,
    runs: BTreeMap<AttemptId, u32>,
    removed: bool,
}

impl World {
    fn new(settings: JobSettings) -> Self {
        let now = 1_000_000;
        Self {
            settings,
            stored: JobState::new(Revision(5), Timestamp::from_millis(now)),
            placed: None,
            stop_requested: false,
            agents: vec![Agent::default(); MACHINES],
            now,
            actions: Vec::new(),
            runs: BTreeMap::new(),
            removed: false,
        }
    }

    fn seen(&self) -> JobObservation {
        let lost = (0..MACHINES).filter(|&at| self.agents[at].lost).map(machine);
        let reports = self.agents.iter().filter_map(|agent| agent.published.clone());
        JobObservation {
            placed: self.placed.clone(),
            lost: lost.collect(),
            reports: reports.collect(),
            stop_requested: self.stop_requested,
        }
    }

    fn lead(&mut self, stores: bool, takes: u8) {
        let (seen, now) = (self.seen(), Timestamp::from_millis(self.now));
        let mut job = self.stored.clone();
        let step = job.advance(&self.settings, &seen, now);
        let mut again = job.clone();
        assert_eq!(again.advance(&self.settings, &seen, now), step, "not idempotent");
        assert_eq!(again, job, "not idempotent");
        assert!(step.next.is_none_or(|next| next > now));
        self.check(&job, now);
        if !stores {
            return;
        }
        self.stored = job;
        for (bit, action) in step.actions.into_iter().enumerate() {
            if takes & (1 << (bit % 8)) != 0 {
                self.take(&action);
            }
            self.actions.push(action);
        }
    }

    fn check(&self, job: &JobState, now: Timestamp) {
        let before = &self.stored;
        assert!(job.last_attempt >= before.last_attempt);
        assert!(job.attempts.len() <= JobState::MAX_ATTEMPTS);
        assert!(job.attempts.is_sorted_by(|one, other| one.number < other.number));
        if let JobPhase::Running { attempt, .. } = job.phase {
            assert_eq!(attempt, job.last_attempt);
        }
        if matches!(before.phase, JobPhase::Ended { .. }) {
            assert_eq!(job, before, "an ended job changes no more");
        }
        let deadline = self.settings.deadline.map(|deadline| job.created.after(deadline));
        if deadline.is_some_and(|deadline| now >= deadline) {
            assert!(matches!(job.phase, JobPhase::Ended { .. }), "past its deadline");
        }
        assert!(job.failed <= self.settings.retries + 1);
        assert!(job.last_attempt <= self.settings.retries + 1 + job.interrupted);
    }

    fn take(&mut self, action: &JobAction) {
        match action {
            JobAction::Place { .. } => {
                self.placed = (0..MACHINES).find(|&at| !self.agents[at].cut_off).map(machine);
            }
            JobAction::Start { machine, attempt } => {
                let agent = &mut self.agents[index(machine)];
                if agent.cut_off || agent.recorded >= Some(*attempt) {
                    return;
                }
                agent.recorded = Some(*attempt);
                agent.progress = Some(AttemptProgress::Active);
                *self.runs.entry(*attempt).or_default() += 1;
            }
            JobAction::Stop { machine, attempt, .. } => {
                let agent = &mut self.agents[index(machine)];
                if !agent.cut_off && agent.recorded == Some(*attempt) {
                    agent.exit(ExitStatus::Signal(15), false);
                }
            }
            JobAction::Remove => {
                assert!(matches!(self.stored.phase, JobPhase::Ended { .. }));
                self.removed = true;
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Lead { stores, takes } => self.lead(stores, takes),
            Op::Repeat(at) => {
                let late = at.checked_rem(self.actions.len()).map(|at| self.actions[at].clone());
                if let Some(action) = late.filter(|it| !matches!(it, JobAction::Place { .. })) {
                    self.take(&action);
                }
            }
            Op::Exit(at, success) => self.agents[at].exit(ExitStatus::Code(1), success),
            Op::FailToStart(at) => {
                let agent = &mut self.agents[at];
                if agent.progress == Some(AttemptProgress::Active) {
                    let reason = "bad setting".to_owned();
                    agent.progress = Some(AttemptProgress::NotStarted { reason });
                }
            }
            Op::Reboot(at) => self.agents[at].interrupt(),
            Op::Publish(at) => self.agents[at].publish(at),
            Op::CutOff(at) => self.agents[at].cut_off = true,
            Op::Lose(at) => self.agents[at].lost = self.agents[at].cut_off,
            Op::Heal(at) => (self.agents[at].cut_off, self.agents[at].lost) = (false, false),
            Op::Move(at) => self.placed = Some(machine(at)),
            Op::Withdraw => self.placed = None,
            Op::Stop => self.stop_requested |= self.now.is_multiple_of(5),
            Op::Clock(by) => self.now = self.now.saturating_add_signed(by),
        }
        assert!(self.runs.values().all(|&runs| runs == 1), "{:?}", self.runs);
    }

    /// Lets the cluster work without faults. Returns whether the job has ended and stopped.
    fn recover(&mut self) -> bool {
        for _ in 0..50 {
            for at in 0..MACHINES {
                self.apply(&Op::Heal(at));
                self.apply(&Op::Exit(at, false));
                self.apply(&Op::Publish(at));
            }
            self.apply(&Op::Clock(400_000));
            self.apply(&Op::Lead { stores: true, takes: u8::MAX });
        }
        self.stored.settled(&self.seen()).is_some()
    }
}

impl Agent {
    fn exit(&mut self, status: ExitStatus, success: bool) {
        if self.progress == Some(AttemptProgress::Active) {
            self.progress = Some(AttemptProgress::Exited { status, success });
        }
    }

    fn interrupt(&mut self) {
        if self.progress == Some(AttemptProgress::Active) {
            self.progress = Some(AttemptProgress::Interrupted);
        }
    }

    fn publish(&mut self, at: usize) {
        if let (false, Some(attempt), Some(progress)) =
            (self.cut_off, self.recorded, self.progress.clone())
        {
            let (machine, output) = (machine(at), Vec::new());
            self.published = Some(AttemptReport { machine, attempt, progress, output });
        }
    }
}

proptest! {
    #![proptest_config(cases(4))]

    #[test]
    fn each_attempt_runs_at_most_once_and_the_job_ends(
        settings in settings(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(settings);
        for op in &ops {
            world.apply(op);
        }
        prop_assert!(world.recover(), "{:?}", world.stored);
        let succeeded = matches!(
            world.stored.phase,
            JobPhase::Ended { outcome: JobOutcome::Succeeded, .. }
        );
        if world.settings.keep_for.is_some() {
            prop_assert!(world.removed);
        }
        let runs: BTreeSet<u32> = world.runs.keys().map(|attempt| attempt.number).collect();
        prop_assert!(!succeeded || !runs.is_empty());
        prop_assert!(runs.iter().all(|number| *number <= world.stored.last_attempt));
    }
}

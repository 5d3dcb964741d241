//! A cluster for rollouts: stored targets, and members that follow them after a time.

use std::time::Duration;

use fleet_core::rollout::{
    Advance, CountOrPercent, Member, MemberId, MemberObservation, MemberState, ObservedState,
    Rollout, RolloutAction, RolloutPhase, RolloutStrategy, RolloutTimers, UnitTarget,
};
use fleet_core::{Generation, TargetState, Timestamp};
use fleet_unitfile::{UnitFile, UnitName};

use crate::wrap::wrap;

pub(super) const SECOND: u64 = 1000;

/// The behaviour of a member with a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    /// Seconds until the member has reached its state.
    pub(super) after: u64,
    pub(super) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Healthy,
    Unhealthy,
    Fails,
    Silent,
}

pub(super) const HEALTHY: Fate = Fate { after: 1, end: End::Healthy };
pub(super) const FAILS: Fate = Fate { after: 1, end: End::Fails };
pub(super) const SILENT: Fate = Fate { after: 1, end: End::Silent };

/// A cluster with one rollout.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) rollout: Rollout,
    pub(super) timers: RolloutTimers,
    pub(super) now: u64,
    /// The stored target of each member, and the time of its last write.
    pub(super) stored: Vec<(Option<UnitTarget>, u64)>,
    /// The fates of each member with `from` and with `to`.
    pub(super) fates: Vec<[Fate; 2]>,
    pub(super) log: Vec<String>,
}

pub(super) fn target(text: &str, desired: TargetState) -> UnitTarget {
    let file = UnitFile::parse(format!("[Service]\nExecStart=/bin/{text}\n")).unwrap();
    UnitTarget { hash: file.hash(), desired, generation: Generation::ZERO }
}

pub(super) fn old() -> UnitTarget {
    target("old", TargetState::Launched)
}

pub(super) fn new() -> UnitTarget {
    target("new", TargetState::Launched)
}

pub(super) fn foreign() -> UnitTarget {
    target("foreign", TargetState::Launched)
}

pub(super) fn member(number: usize, from: Option<UnitTarget>, to: UnitTarget) -> Member {
    let unit: UnitName = format!("web@{number}.service").parse().unwrap();
    Member::new(MemberId::from(unit), from, to)
}

/// Returns a strategy with a settle time of five seconds and a deadline of a minute.
pub(super) fn strategy(at_once: &str, min_available: &str) -> RolloutStrategy {
    let share = |text: &str| text.parse::<CountOrPercent>().unwrap();
    RolloutStrategy {
        at_once: share(at_once),
        min_available: share(min_available),
        settle: Duration::from_secs(5),
        deadline: Duration::from_secs(60),
        ..RolloutStrategy::default()
    }
}

impl World {
    /// Makes a cluster whose members have run for a long time.
    pub(super) fn new(members: Vec<Member>, strategy: RolloutStrategy) -> Self {
        let stored = members.iter().map(|member| (member.from, 0)).collect();
        let fates = vec![[HEALTHY; 2]; members.len()];
        let rollout = Rollout::new(members, strategy).unwrap();
        let (timers, log) = (RolloutTimers::default(), Vec::new());
        Self { rollout, timers, now: 1000 * SECOND, stored, fates, log }
    }

    /// Makes a cluster of units that run the old version.
    pub(super) fn of(count: usize, strategy: RolloutStrategy) -> Self {
        let members = (1..=count).map(|number| member(number, Some(old()), new()));
        Self::new(members.collect(), strategy)
    }

    /// Sets the fate of a member with the new version; members count from 1.
    pub(super) fn with_fate(mut self, number: usize, fate: Fate) -> Self {
        self.fates[number - 1][1] = fate;
        self
    }

    pub(super) fn observe(&self, index: usize) -> MemberObservation {
        let (current, since) = self.stored[index];
        MemberObservation { current, state: self.state(index, current, since) }
    }

    fn state(&self, index: usize, current: Option<UnitTarget>, since: u64) -> ObservedState {
        let Some(current) = current else { return ObservedState::NotYet };
        let is_new = current == self.rollout.members[index].to;
        let fate = self.fates[index][usize::from(is_new)];
        if self.now < since + fate.after * SECOND {
            return ObservedState::NotYet;
        }
        match fate.end {
            End::Silent => ObservedState::NotYet,
            End::Fails => ObservedState::Failed { reason: "exit-code".to_owned() },
            _ if current.desired != TargetState::Launched => ObservedState::Settled,
            end => ObservedState::Active { healthy: end == End::Healthy },
        }
    }

    pub(super) fn observations(&self) -> Vec<MemberObservation> {
        (0..self.stored.len()).map(|index| self.observe(index)).collect()
    }

    pub(super) fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Advances the rollout, and performs nothing.
    pub(super) fn decide(&mut self) -> Advance {
        let now = self.time();
        let mut observations = self.observations().into_iter();
        self.rollout.advance(&mut self.timers, now, |_| observations.next().unwrap())
    }

    pub(super) fn perform(&mut self, action: RolloutAction) {
        let index = action.member();
        let member = &self.rollout.members[index];
        if self.stored[index].0 == action.before(member) {
            self.stored[index] = (action.after(member), self.now);
        }
    }

    /// Advances the rollout, performs its actions, and logs them. Returns the next time to do so.
    pub(super) fn step(&mut self) -> Option<u64> {
        let advance = self.decide();
        advance.actions.iter().for_each(|action| self.perform(*action));
        if advance.changed || !advance.actions.is_empty() {
            self.log_step(&advance);
        }
        if !advance.actions.is_empty() {
            return Some(self.now);
        }
        let changes = (0..self.stored.len()).filter_map(|index| {
            let (current, since) = self.stored[index];
            let is_new = current == Some(self.rollout.members[index].to);
            let time = since + self.fates[index][usize::from(is_new)].after * SECOND;
            (time > self.now).then_some(time)
        });
        changes.chain(advance.next.map(Timestamp::as_millis)).min()
    }

    /// Steps until the rollout has ended, or only a request can change it.
    pub(super) fn run(&mut self) -> &mut Self {
        for _ in 0..1000 {
            let next = self.step();
            if self.rollout.phase.has_ended() {
                return self;
            }
            let Some(next) = next else { return self };
            self.now = next;
        }
        panic!("the rollout does not end: {:#?}", self.log);
    }

    /// Steps until this time, in seconds since the beginning.
    pub(super) fn run_until(&mut self, seconds: u64) -> &mut Self {
        let end = (1000 + seconds) * SECOND;
        while let Some(next) = self.step().filter(|next| *next <= end) {
            self.now = next;
        }
        self.now = end;
        self
    }

    /// Replaces the leader: the timers are lost.
    pub(super) fn change_leader(&mut self) -> &mut Self {
        self.timers = RolloutTimers::default();
        self.note("another leader")
    }

    pub(super) fn write(&mut self, number: usize, target: Option<UnitTarget>) -> &mut Self {
        self.stored[number - 1] = (target, self.now);
        self.note(&format!("another writer changes {number}"))
    }

    pub(super) fn note(&mut self, text: &str) -> &mut Self {
        self.log.push(format!("{:>4}  {text}", self.now / SECOND - 1000));
        self
    }

    fn log_step(&mut self, advance: &Advance) {
        let names = |kind: &str, matches: fn(&RolloutAction) -> bool| {
            let of_kind = advance.actions.iter().filter(|action| matches(action));
            let numbers: Vec<String> =
                of_kind.map(|action| (action.member() + 1).to_string()).collect();
            (!numbers.is_empty()).then(|| format!("{kind} {}", numbers.join(" ")))
        };
        let actions = [
            names("update", |action| matches!(action, RolloutAction::Update { .. })),
            names("restore", |action| matches!(action, RolloutAction::Restore { .. })),
            names("remove", |action| matches!(action, RolloutAction::Remove { .. })),
        ];
        let actions: Vec<String> = actions.into_iter().flatten().collect();
        let states: String =
            self.rollout.members.iter().map(|member| letter(member.state)).collect();
        let line = format!("{states}  {}  {}", self.rollout.phase.as_str(), actions.join(", "));
        self.note(line.trim_end());
    }

    /// Returns the log, with the phase in full as the last line.
    pub(super) fn report(&self) -> String {
        format!("{}\n{}", self.log.join("\n"), wrap(&self.rollout.phase.to_string()))
    }

    pub(super) fn phase(&self) -> &RolloutPhase {
        &self.rollout.phase
    }
}

/// Returns a sign for a state: `.` for pending, `u` and `U` for the new version, `r` and `R` for
/// the former one, capital if confirmed; `x` for superseded.
fn letter(state: MemberState) -> char {
    match state {
        MemberState::Pending => '.',
        MemberState::Updating => 'u',
        MemberState::Updated => 'U',
        MemberState::Restoring => 'r',
        MemberState::Restored => 'R',
        MemberState::Superseded => 'x',
    }
}

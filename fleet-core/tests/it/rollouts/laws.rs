//! Properties of rollouts under faults, other writers, requests and changes of the leader.

use std::time::Duration;

use fleet_core::TargetState;
use fleet_core::rollout::{
    Advance, CountOrPercent, Member, MemberObservation, MemberState, OnFailure, Rollout,
    RolloutAction, RolloutPhase, RolloutStrategy, RolloutTimers,
};
use proptest::prelude::*;

use super::world::{End, Fate, SECOND, World, foreign, member, new, old, target};
use crate::init::config::cases;

/// An event between two calls of the leader.
#[derive(Debug, Clone)]
enum Event {
    /// Time passes.
    Wait(u64),
    /// Time passes until the next call that the rollout asked for.
    WaitForNext,
    /// A member behaves differently with its former (`false`) or new version.
    Fate(usize, bool, Fate),
    /// Another writer stores a target: none, `from`, `to` or another one.
    Write(usize, Option<Written>),
    /// The writes of the next call are lost, except those of members in the mask.
    LoseActions(u8),
    /// The leader is replaced during the next call: before it has stored the rollout, or after.
    ReplaceLeader {
        is_stored: bool,
    },
    Pause,
    Resume,
    Abort,
    RollBack,
}

#[derive(Debug, Clone, Copy)]
enum Written {
    From,
    To,
    Foreign,
}

fn fate() -> impl Strategy<Value = Fate> {
    let end = prop_oneof![
        6 => Just(End::Healthy),
        1 => Just(End::Unhealthy),
        1 => Just(End::Fails),
        1 => Just(End::Silent),
    ];
    (0..15_u64, end).prop_map(|(after, end)| Fate { after, end })
}

fn event(members: usize) -> impl Strategy<Value = Event> {
    let written =
        prop::option::of(prop::sample::select(vec![Written::From, Written::To, Written::Foreign]));
    prop_oneof![
        20 => (0..12_u64).prop_map(Event::Wait),
        20 => Just(Event::WaitForNext),
        4 => (0..members, any::<bool>(), fate())
            .prop_map(|(at, is_new, fate)| Event::Fate(at, is_new, fate)),
        2 => (0..members, written).prop_map(|(at, written)| Event::Write(at, written)),
        3 => any::<u8>().prop_map(Event::LoseActions),
        3 => any::<bool>().prop_map(|is_stored| Event::ReplaceLeader { is_stored }),
        1 => Just(Event::Pause),
        2 => Just(Event::Resume),
        1 => prop_oneof![1 => Just(Event::Abort), 2 => Just(Event::RollBack)],
    ]
}

fn share() -> impl Strategy<Value = CountOrPercent> {
    prop_oneof![
        (0..5_u32).prop_map(CountOrPercent::Count),
        (0..=100_u32).prop_map(CountOrPercent::Percent)
    ]
}

fn strategy() -> impl Strategy<Value = RolloutStrategy> {
    let on_failure = prop_oneof![3 => Just(OnFailure::Rollback), 1 => Just(OnFailure::Stop)];
    (share(), share(), 0..8_u64, 1..40_u64, on_failure).prop_map(
        |(at_once, min_available, settle, deadline, on_failure)| RolloutStrategy {
            at_once,
            min_available,
            settle: Duration::from_secs(settle),
            deadline: Duration::from_secs(deadline),
            on_failure,
        },
    )
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let from = prop_oneof![
        8 => Just(Some(old())),
        1 => Just(Some(target("old", TargetState::Loaded))),
        1 => Just(None),
    ];
    let to = prop_oneof![8 => Just(new()), 1 => Just(target("new", TargetState::Inactive))];
    prop::collection::vec((from, to), 1..8).prop_map(|targets| {
        let members = targets.into_iter().enumerate();
        members.map(|(index, (from, to))| member(index + 1, from, to)).collect()
    })
}

fn world() -> impl Strategy<Value = World> {
    let valid = |(members, strategy): (Vec<Member>, RolloutStrategy)| {
        let rollout = Rollout::new(members.clone(), strategy);
        rollout.is_ok().then(|| World::new(members, strategy))
    };
    let worlds = (members(), strategy()).prop_filter_map("the rollout is invalid", valid);
    let fates = prop::collection::vec([fate(), fate()], 8);
    (worlds, fates).prop_map(|(mut world, fates)| {
        world.fates = fates[..world.stored.len()].to_vec();
        world
    })
}

fn case() -> impl Strategy<Value = (World, Vec<Event>)> {
    world().prop_flat_map(|world| {
        let events = prop::collection::vec(event(world.stored.len()), 0..60);
        (Just(world), events)
    })
}

/// A world with the knowledge that the checks need.
struct Checked {
    world: World,
    /// Members that another writer has written.
    foreign: Vec<bool>,
    /// Members that were healthy at some time since the rollout wrote `to`.
    was_healthy: Vec<bool>,
    next: Option<u64>,
    kept_actions: u8,
    /// The leader is replaced during the next call.
    replacement: Option<bool>,
}

impl Checked {
    fn new(world: World) -> Self {
        let count = world.stored.len();
        let (foreign, was_healthy) = (vec![false; count], vec![false; count]);
        Self { world, foreign, was_healthy, next: None, kept_actions: u8::MAX, replacement: None }
    }

    fn apply(&mut self, event: &Event) {
        let rollout = &mut self.world.rollout;
        match *event {
            Event::Wait(seconds) => self.world.now += seconds * SECOND,
            Event::WaitForNext => {
                self.world.now = self.next.unwrap_or(self.world.now).max(self.world.now);
            }
            Event::Fate(at, is_new, fate) => self.world.fates[at][usize::from(is_new)] = fate,
            Event::Write(at, written) => {
                let target = written.map(|written| match written {
                    Written::From => rollout.members[at].from.unwrap_or(foreign()),
                    Written::To => rollout.members[at].to,
                    Written::Foreign => foreign(),
                });
                self.world.stored[at] = (target, self.world.now);
                self.foreign[at] = true;
            }
            Event::LoseActions(kept) => self.kept_actions = kept,
            Event::ReplaceLeader { is_stored } => self.replacement = Some(is_stored),
            // A request that does not fit the phase is refused.
            Event::Pause => drop(rollout.pause()),
            Event::Resume => drop(rollout.resume()),
            Event::Abort => drop(rollout.abort()),
            Event::RollBack => drop(rollout.abort_and_roll_back()),
        }
    }

    /// Calls the leader once, and checks its decisions.
    fn lead(&mut self) -> Result<(), TestCaseError> {
        let before = self.world.clone();
        let advance = self.world.decide();
        let seen = before.observations();
        self.was_healthy.iter_mut().zip(&seen).for_each(|(was, seen)| *was |= seen.is_healthy());
        prop_assert_eq!(advance.changed, before.rollout != self.world.rollout);
        self.check_states(&before.rollout, &seen)?;
        self.check_actions(&advance, &seen)?;
        self.check_availability(&advance, &seen)?;
        self.check_repetition(&advance)?;
        self.check_batch(&seen)?;
        self.next = advance.next.map(fleet_core::Timestamp::as_millis);

        let kept = std::mem::replace(&mut self.kept_actions, u8::MAX);
        let replacement = self.replacement.take();
        if replacement == Some(false) {
            self.world.rollout = before.rollout;
        } else {
            let performed =
                advance.actions.iter().filter(|action| kept & (1 << (action.member() % 8)) != 0);
            for action in performed {
                self.world.perform(*action);
                self.was_healthy[action.member()] = false;
            }
        }
        if replacement.is_some() {
            self.world.timers = RolloutTimers::default();
        }
        Ok(())
    }

    /// States follow from stored targets, and only another writer supersedes a member.
    fn check_states(
        &self,
        before: &Rollout,
        seen: &[MemberObservation],
    ) -> Result<(), TestCaseError> {
        let rollout = &self.world.rollout;
        if before.phase.has_ended() || before.phase == RolloutPhase::Paused {
            prop_assert_eq!(before, rollout);
            return Ok(());
        }
        for (index, member) in rollout.members.iter().enumerate() {
            let (earlier, current) = (before.members[index].state, seen[index].current);
            let stored = match member.state {
                MemberState::Pending | MemberState::Restoring | MemberState::Restored => {
                    member.from
                }
                MemberState::Updating | MemberState::Updated => Some(member.to),
                MemberState::Superseded => {
                    prop_assert!(self.foreign[index], "member {} was not written", index);
                    continue;
                }
            };
            prop_assert_eq!(stored, current, "member {}", index);
            prop_assert_ne!(earlier, MemberState::Superseded);
        }
        let states = rollout.members.iter().map(|member| member.state);
        let allowed: &[MemberState] = match rollout.phase {
            RolloutPhase::Completed => &[MemberState::Updated],
            RolloutPhase::RolledBack { .. } => &[MemberState::Pending, MemberState::Restored],
            _ => return Ok(()),
        };
        for (index, state) in states.enumerate() {
            prop_assert!(allowed.contains(&state) || state == MemberState::Superseded);
            if rollout.phase == RolloutPhase::Completed && state == MemberState::Updated {
                prop_assert!(seen[index].is_healthy(), "member {} is not healthy", index);
            }
        }
        Ok(())
    }

    /// Each action fits the phase and the stored target, and a batch has at most its size.
    fn check_actions(
        &self,
        advance: &Advance,
        seen: &[MemberObservation],
    ) -> Result<(), TestCaseError> {
        let rollout = &self.world.rollout;
        let mut written: Vec<usize> = advance.actions.iter().map(|it| it.member()).collect();
        written.sort_unstable();
        written.dedup();
        prop_assert_eq!(written.len(), advance.actions.len(), "one action per member");
        let mut healthy_restored = 0;
        for action in &advance.actions {
            let index = action.member();
            let member = &rollout.members[index];
            prop_assert_ne!(member.state, MemberState::Superseded);
            prop_assert_eq!(action.before(member), seen[index].current);
            let is_update = matches!(action, RolloutAction::Update { .. });
            let is_running = rollout.phase == RolloutPhase::Running;
            let is_rolling_back = matches!(rollout.phase, RolloutPhase::RollingBack { .. });
            prop_assert!(if is_update { is_running } else { is_rolling_back }, "{:?}", action);
            let is_removal = matches!(action, RolloutAction::Remove { .. });
            prop_assert_eq!(is_removal, !is_update && member.from.is_none());
            let is_batch = member.state == MemberState::Updated && seen[index].is_healthy();
            healthy_restored += usize::from(!is_update && is_batch);
        }
        let is_restoring = |member: &Member| member.state == MemberState::Restoring;
        if healthy_restored > 0 {
            prop_assert!(!rollout.members.iter().any(is_restoring), "the last batch is over");
        }
        let size = rollout.strategy.batch_size(seen.len());
        prop_assert!(healthy_restored <= size);
        if rollout.phase == RolloutPhase::Running && !advance.actions.is_empty() {
            prop_assert!(advance.actions.len() <= size);
            for (index, member) in rollout.members.iter().enumerate() {
                let is_changed = member.state == MemberState::Updated;
                prop_assert!(member.state != MemberState::Updating);
                prop_assert!(!is_changed || seen[index].is_healthy(), "member {}", index);
            }
        }
        Ok(())
    }

    /// No action makes a healthy member unavailable if too few would remain.
    fn check_availability(
        &self,
        advance: &Advance,
        seen: &[MemberObservation],
    ) -> Result<(), TestCaseError> {
        let rollout = &self.world.rollout;
        let taken = advance.actions.iter().filter(|action| seen[action.member()].is_healthy());
        let taken = taken.count();
        if taken == 0 {
            return Ok(());
        }
        let healthy = seen.iter().filter(|seen| seen.is_healthy()).count();
        let mut minimum = rollout.strategy.min_available.of(seen.len());
        if rollout.phase != RolloutPhase::Running {
            let existing = rollout.members.iter().filter(|member| member.from.is_some()).count();
            minimum = minimum.min(existing);
        }
        prop_assert!(healthy - taken >= minimum, "{} - {} < {}", healthy, taken, minimum);
        Ok(())
    }

    /// A second call, now or just before the next one, decides the same and changes nothing.
    fn check_repetition(&self, advance: &Advance) -> Result<(), TestCaseError> {
        let mut again = self.world.clone();
        let expected = Advance::clone(advance);
        let second = again.decide();
        prop_assert!(!second.changed);
        prop_assert_eq!(&second.actions, &expected.actions);
        prop_assert_eq!(second.next, expected.next);
        let Some(next) = advance.next else { return Ok(()) };
        prop_assert_eq!(&again.timers, &self.world.timers);
        prop_assert!(next > self.world.time());
        // The members stay as they are until then.
        let (mut rollout, mut timers) = (self.world.rollout.clone(), self.world.timers.clone());
        let early = fleet_core::Timestamp::from_millis(next.as_millis() - 1);
        let mut seen = self.world.observations().into_iter();
        let third = rollout.advance(&mut timers, early, |_| seen.next().unwrap());
        prop_assert!(!third.changed);
        prop_assert_eq!(&third.actions, &expected.actions);
        Ok(())
    }

    /// While the rollout runs, at most one batch of members was not healthy since its update.
    fn check_batch(&self, seen: &[MemberObservation]) -> Result<(), TestCaseError> {
        let rollout = &self.world.rollout;
        let members = rollout.members.iter().enumerate();
        let ailing = members.filter(|(index, member)| {
            let is_new = seen[*index].current == Some(member.to);
            is_new && !self.foreign[*index] && !self.was_healthy[*index]
        });
        prop_assert!(ailing.count() <= rollout.strategy.batch_size(seen.len()));
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(2))]

    // A batch, the availability, other writers and the end are checked at each call.
    #[test]
    fn rollout_is_safe_and_ends((world, events) in case()) {
        let mut checked = Checked::new(world);
        for event in &events {
            checked.apply(event);
            checked.lead()?;
        }
        // A rollout that is left alone ends, whatever its members do.
        drop(checked.world.rollout.resume());
        let limit = checked.world.now + 4 * 60 * 60 * SECOND;
        while !checked.world.rollout.phase.has_ended() {
            prop_assert!(checked.world.now < limit, "{:?}", checked.world.rollout);
            checked.world.now += SECOND;
            checked.lead()?;
        }
    }

    #[test]
    fn rollout_of_healthy_members_completes(mut world in world()) {
        world.fates.iter_mut().for_each(|fates| {
            *fates = [Fate { after: 0, end: End::Healthy }; 2];
        });
        let mut checked = Checked::new(world);
        while !checked.world.rollout.phase.has_ended() {
            checked.lead()?;
            checked.world.now = checked.next.unwrap_or(checked.world.now);
        }
        prop_assert_eq!(&checked.world.rollout.phase, &RolloutPhase::Completed);
        let states: Vec<_> = checked.world.rollout.members.iter().map(|it| it.state).collect();
        prop_assert_eq!(states, vec![MemberState::Updated; checked.world.stored.len()]);
    }
}

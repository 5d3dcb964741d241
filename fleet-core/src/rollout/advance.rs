//! The decisions of a rollout: observations in, state changes and actions out.

use crate::{TargetState, Timestamp};

use super::{
    Member, MemberFailure, MemberState, OnFailure, RollbackCause, Rollout, RolloutPhase,
    RolloutStrategy, Shortage, StopCause, UnitTarget,
};

/// An observation of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberObservation {
    /// The target that the cluster stores for the member; `None` if the unit does not exist.
    pub current: Option<UnitTarget>,
    /// The state that the member's machine reports for that target.
    pub state: ObservedState,
}

/// The state of a member with regard to its stored target.
///
/// A report about another unit file, an older generation or an older placement says nothing about
/// the stored target. It counts as [`NotYet`](Self::NotYet).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedState {
    /// The member has not reached its target, or its state is unknown.
    NotYet,
    /// The member is launched and active, or ran to completion.
    Active {
        /// Whether no health check fails.
        healthy: bool,
    },
    /// The member failed, and does not become active without help.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The desired state is not launched, and the member is in that state.
    Settled,
}

impl MemberObservation {
    /// Returns `true` if the member is in its desired state and no health check fails.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let Some(current) = self.current else { return false };
        match self.state {
            ObservedState::Active { healthy } => {
                healthy && current.desired == TargetState::Launched
            }
            ObservedState::Settled => current.desired != TargetState::Launched,
            ObservedState::NotYet | ObservedState::Failed { .. } => false,
        }
    }
}

/// A write that a rollout requests. The member is given by its index in [`Rollout::members`].
///
/// All variants are listed on purpose, without `#[non_exhaustive]`: the compiler then points to
/// each executor that has to handle a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RolloutAction {
    /// Writes the target `to`, which creates the unit if `from` is `None`.
    Update {
        /// Index of the member.
        member: usize,
    },
    /// Writes the target `from`.
    Restore {
        /// Index of the member.
        member: usize,
    },
    /// Removes a unit that the rollout has created.
    Remove {
        /// Index of the member.
        member: usize,
    },
}

impl RolloutAction {
    /// Returns the index of the member.
    #[must_use]
    pub const fn member(self) -> usize {
        match self {
            Self::Update { member } | Self::Restore { member } | Self::Remove { member } => member,
        }
    }

    /// Returns the target that the write replaces. If another target is stored by then, the write
    /// must have no effect, because another writer came first.
    #[must_use]
    pub const fn before(self, member: &Member) -> Option<UnitTarget> {
        match self {
            Self::Update { .. } => member.from,
            Self::Restore { .. } | Self::Remove { .. } => Some(member.to),
        }
    }

    /// Returns the target that the write stores; `None` if it removes the unit.
    #[must_use]
    pub const fn after(self, member: &Member) -> Option<UnitTarget> {
        match self {
            Self::Update { .. } => Some(member.to),
            Self::Restore { .. } | Self::Remove { .. } => member.from,
        }
    }
}

/// The result of [`Rollout::advance`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Advance {
    /// Whether the rollout has changed, and therefore has to be stored.
    pub changed: bool,
    /// The writes to perform.
    pub actions: Vec<RolloutAction>,
    /// The time of the next call, if the observations stay the same; `None` if only another
    /// observation, or the result of an action, requires a call.
    pub next: Option<Timestamp>,
}

/// Running times of a rollout. They are not stored: each leader begins with new ones, so the times
/// of [`RolloutStrategy`] start again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutTimers {
    /// One entry per member; `Some` while the rollout waits for the member's health.
    watches: Vec<Option<Watch>>,
    /// The time since which too few members are healthy to change another one.
    short_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watch {
    since: Timestamp,
    /// Start of the uninterrupted time in which the member is healthy.
    healthy_since: Option<Timestamp>,
}

/// The result of waiting for a member's health.
enum Verdict {
    Waiting,
    /// Healthy for the required time.
    Confirmed,
    /// Not healthy, and the deadline is over.
    Overdue,
}

impl Rollout {
    /// Decides the next steps at the time `now`. `observe` is called once per member, in order. See
    /// [`Rollout`] for the duties of the caller.
    ///
    /// The timers must be those of this rollout. A new leader passes `RolloutTimers::default()`.
    ///
    /// The call takes time proportional to the number of members. While the rollout is paused and
    /// after its end it does nothing.
    pub fn advance(
        &mut self,
        timers: &mut RolloutTimers,
        now: Timestamp,
        observe: impl FnMut(&Member) -> MemberObservation,
    ) -> Advance {
        if self.phase == RolloutPhase::Paused || self.phase.has_ended() {
            *timers = RolloutTimers::default();
            return Advance::default();
        }
        let seen: Vec<MemberObservation> = self.members.iter().map(observe).collect();
        let healthy = seen.iter().filter(|seen| seen.is_healthy()).count();
        timers.watches.resize(self.members.len(), None);
        let mut pass =
            Pass { rollout: self, timers, now, seen, healthy, result: Advance::default() };
        pass.compare_targets();
        if pass.rollout.phase == RolloutPhase::Running {
            pass.update();
        }
        if let RolloutPhase::RollingBack { cause } = &pass.rollout.phase {
            let cause = cause.clone();
            pass.roll_back(cause);
        }
        pass.result
    }
}

impl Member {
    /// Returns the state that follows from the stored target.
    fn state_with(&self, current: Option<UnitTarget>, is_rolling_back: bool) -> MemberState {
        use MemberState::{Pending, Restored, Restoring, Superseded, Updated, Updating};
        let (is_from, is_to) = (current == self.from, current == Some(self.to));
        match self.state {
            Pending if is_from => Pending,
            Pending if is_to => Updating,
            // Without a rollback, another writer has returned the member to `from`.
            Updating | Updated if is_from && is_rolling_back => Restoring,
            Updating | Updated if is_to => self.state,
            Restoring | Restored if is_from => self.state,
            _ => Superseded,
        }
    }
}

/// One call of [`Rollout::advance`].
struct Pass<'a> {
    rollout: &'a mut Rollout,
    timers: &'a mut RolloutTimers,
    now: Timestamp,
    seen: Vec<MemberObservation>,
    /// Number of healthy members.
    healthy: usize,
    result: Advance,
}

impl Pass<'_> {
    fn state(&self, member: usize) -> MemberState {
        self.rollout.members[member].state
    }

    /// Sets the state of a member, and ends the wait for its health.
    fn set_state(&mut self, member: usize, state: MemberState) {
        self.timers.watches[member] = None;
        self.result.changed |= self.state(member) != state;
        self.rollout.members[member].state = state;
    }

    fn enter(&mut self, phase: RolloutPhase) {
        self.rollout.phase = phase;
        *self.timers = RolloutTimers::default();
        self.timers.watches.resize(self.rollout.members.len(), None);
        self.result.changed = true;
        self.result.next = None;
    }

    fn call_at(&mut self, time: Timestamp) {
        self.result.next = Some(self.result.next.map_or(time, |next| next.min(time)));
    }

    /// Derives the state of each member from its stored target.
    fn compare_targets(&mut self) {
        let is_rolling_back = matches!(self.rollout.phase, RolloutPhase::RollingBack { .. });
        for index in 0..self.seen.len() {
            let current = self.seen[index].current;
            let state = self.rollout.members[index].state_with(current, is_rolling_back);
            if state != self.state(index) {
                self.set_state(index, state);
            }
        }
    }

    /// Waits for a member to be healthy for the required time.
    fn watch(&mut self, member: usize) -> Verdict {
        let RolloutStrategy { mut settle, deadline, .. } = self.rollout.strategy;
        if matches!(self.rollout.phase, RolloutPhase::RollingBack { .. }) {
            settle = settle.min(deadline);
        }
        let is_healthy = self.seen[member].is_healthy();
        let is_active = matches!(self.seen[member].state, ObservedState::Active { .. });
        let new = Watch { since: self.now, healthy_since: None };
        let watch = self.timers.watches[member].get_or_insert(new);
        let due = if is_healthy {
            let healthy_since = *watch.healthy_since.get_or_insert(self.now);
            if is_active { healthy_since.after(settle) } else { healthy_since }
        } else {
            watch.healthy_since = None;
            watch.since.after(deadline)
        };
        if due > self.now {
            self.call_at(due);
            return Verdict::Waiting;
        }
        if !is_healthy {
            return Verdict::Overdue;
        }
        // A member that becomes unhealthy later has its full deadline again.
        watch.since = self.now;
        Verdict::Confirmed
    }

    /// Judges the updated members. Begins the next batch if all of them are healthy.
    fn update(&mut self) {
        let (mut failure, mut is_waiting) = (None, false);
        for index in 0..self.seen.len() {
            if !self.state(index).is_changed() {
                continue;
            }
            if let ObservedState::Failed { reason } = &self.seen[index].state {
                let member = self.rollout.members[index].id.clone();
                failure.get_or_insert(MemberFailure::Failed { member, reason: reason.clone() });
                continue;
            }
            let is_settled = self.state(index) == MemberState::Updated
                && self.timers.watches[index].is_none()
                && self.seen[index].is_healthy();
            if is_settled {
                continue;
            }
            match self.watch(index) {
                Verdict::Waiting => is_waiting = true,
                Verdict::Confirmed => {}
                Verdict::Overdue => {
                    failure.get_or_insert(self.overdue(index));
                }
            }
        }
        if let Some(failure) = failure {
            self.fail(failure);
        } else if is_waiting {
            self.timers.short_since = None;
        } else {
            self.end_batch();
            self.begin_batch();
        }
    }

    /// Ends the present batch, whose members all are healthy.
    fn end_batch(&mut self) {
        for index in 0..self.seen.len() {
            if self.state(index).is_changed() {
                self.set_state(index, MemberState::Updated);
            }
        }
    }

    fn overdue(&self, index: usize) -> MemberFailure {
        let member = self.rollout.members[index].id.clone();
        let deadline = self.rollout.strategy.deadline;
        match self.seen[index].state {
            ObservedState::Active { healthy: false } => {
                MemberFailure::Unhealthy { member, deadline }
            }
            _ => MemberFailure::NotReady { member, deadline },
        }
    }

    fn fail(&mut self, failure: MemberFailure) {
        self.enter(match self.rollout.strategy.on_failure {
            OnFailure::Rollback => {
                RolloutPhase::RollingBack { cause: RollbackCause::Failure(failure) }
            }
            OnFailure::Stop => RolloutPhase::Stopped { cause: StopCause::Failure(failure) },
        });
    }

    /// Begins the next batch: pending members in order, healthy ones only while enough others are
    /// healthy.
    fn begin_batch(&mut self) {
        let members = self.seen.len();
        let batch_size = self.rollout.strategy.batch_size(members);
        let min_available = self.rollout.strategy.min_available.of(members);
        let mut spare = self.healthy.saturating_sub(min_available);
        let mut has_pending = false;
        for index in 0..members {
            if self.state(index) != MemberState::Pending {
                continue;
            }
            has_pending = true;
            if self.result.actions.len() == batch_size {
                break;
            }
            if self.take(index, &mut spare) {
                self.result.actions.push(RolloutAction::Update { member: index });
            }
        }
        if !has_pending {
            self.enter(RolloutPhase::Completed);
        } else if !self.result.actions.is_empty() {
            self.timers.short_since = None;
        } else if self.is_short_for_too_long() {
            let shortage = Shortage { healthy: self.healthy, min_available };
            self.enter(RolloutPhase::Stopped { cause: StopCause::Shortage(shortage) });
        }
    }

    /// Returns `true` if the member may become unavailable. A healthy member uses one of `spare`.
    fn take(&self, member: usize, spare: &mut usize) -> bool {
        if !self.seen[member].is_healthy() {
            return true;
        }
        let is_spare = *spare > 0;
        *spare = spare.saturating_sub(1);
        is_spare
    }

    fn is_short_for_too_long(&mut self) -> bool {
        let since = *self.timers.short_since.get_or_insert(self.now);
        let due = since.after(self.rollout.strategy.deadline);
        if due > self.now {
            self.call_at(due);
        }
        due <= self.now
    }

    /// Returns updated members to `from`: first the failed batch and all unhealthy members, then
    /// the others in batches, in reverse order.
    fn roll_back(&mut self, cause: RollbackCause) {
        let is_waiting = self.await_restored();
        let min_available = self.rollback_minimum();
        let mut spare = self.healthy.saturating_sub(min_available);
        let mut remaining = Vec::new();
        for index in (0..self.seen.len()).rev() {
            if !self.state(index).is_changed() {
                continue;
            }
            let is_at_once =
                self.state(index) == MemberState::Updating || !self.seen[index].is_healthy();
            if is_at_once && self.take(index, &mut spare) {
                self.restore(index);
            } else {
                remaining.push(index);
            }
        }
        if self.result.actions.is_empty() && !is_waiting {
            self.restore_batch(&remaining, spare);
        }
        if !self.result.actions.is_empty() || is_waiting {
            self.timers.short_since = None;
        } else if remaining.is_empty() {
            self.enter(RolloutPhase::RolledBack { cause });
        } else if self.is_short_for_too_long() {
            let shortage = Shortage { healthy: self.healthy, min_available };
            let cause = StopCause::UnfinishedRollback { cause, shortage };
            self.enter(RolloutPhase::Stopped { cause });
        }
    }

    /// Returns the number of healthy members that a rollback must keep. It is at most the number of
    /// members before the rollout, so that a rollback can remove the others.
    fn rollback_minimum(&self) -> usize {
        let existing = self.rollout.members.iter().filter(|member| member.from.is_some()).count();
        self.rollout.strategy.min_available.of(self.seen.len()).min(existing)
    }

    /// Waits for the members that have `from` again, each at most until its deadline. Returns
    /// `true` while there are any.
    fn await_restored(&mut self) -> bool {
        let mut is_waiting = false;
        for index in 0..self.seen.len() {
            if self.state(index) != MemberState::Restoring {
                continue;
            }
            let is_removed = self.rollout.members[index].from.is_none();
            if !is_removed && matches!(self.watch(index), Verdict::Waiting) {
                is_waiting = true;
            } else {
                self.set_state(index, MemberState::Restored);
            }
        }
        is_waiting
    }

    /// Restores a batch of healthy members. Those that the rollout has created come last, because
    /// they stay available for the others.
    fn restore_batch(&mut self, members: &[usize], spare: usize) {
        let batch_size = self.rollout.strategy.batch_size(self.seen.len()).min(spare);
        let is_created = |member: &usize| self.rollout.members[*member].from.is_none();
        let (created, existing): (Vec<usize>, Vec<usize>) =
            members.iter().copied().partition(is_created);
        existing.into_iter().chain(created).take(batch_size).for_each(|member| {
            self.restore(member);
        });
    }

    fn restore(&mut self, member: usize) {
        self.result.actions.push(match self.rollout.members[member].from {
            Some(_) => RolloutAction::Restore { member },
            None => RolloutAction::Remove { member },
        });
    }
}

//! Rollouts: the leader advances each one that has not ended.

use std::collections::BTreeMap;

use fleet_core::rollout::{
    Advance, MemberState, RolloutAction, RolloutId, RolloutPhase, RolloutRecord, RolloutTimers,
};
use fleet_core::{Revision, Snapshot, Timestamp};
use fleet_store::registry::{Leadership, RolloutFiles, RolloutStep};
use fleet_store::{RegistryError, StoreError};

use super::{Engine, EngineConfig, REPORT_INTERVAL, RETRY, TermEnd, warn};
use crate::clock::wait_until;

/// Data of the rollouts that have not ended. It is not stored, so each leader begins with none.
#[derive(Default)]
struct ActiveRollouts(BTreeMap<RolloutId, ActiveRollout>);

#[derive(Default)]
struct ActiveRollout {
    timers: RolloutTimers,
    /// Unit files of the rollout, once they were needed.
    files: Option<RolloutFiles>,
    /// Revision of the last step. A snapshot of an earlier revision does not show its results, so
    /// a decision on that snapshot could begin a second batch.
    written: Revision,
}

impl Engine {
    /// Runs the rollouts of a term. Cancel-safe, as [`run_term`](Self::run_term) is.
    pub(super) async fn run_rollouts(&self, leadership: &Leadership) -> TermEnd {
        let (mirror, clock) = (&self.config.mirror, &*self.config.clock);
        if mirror.wait_for(leadership.elected()).await.is_err() {
            return TermEnd::Shutdown;
        }
        let mut progress = mirror.subscribe();
        let mut active = ActiveRollouts::default();
        loop {
            // Marked as seen before the snapshot is read, so that no change is missed.
            progress.borrow_and_update();
            let pass = self.advance_rollouts(leadership, &mut active);
            let next = match self.heartbeat.busy(pass).await {
                Ok(next) => next,
                Err(RegistryError::Deposed { .. }) => return TermEnd::Deposed,
                Err(RegistryError::Store(StoreError::Unknown(_))) => return TermEnd::Doubt,
                Err(RegistryError::Conflict) => Some(clock.now().after(REPORT_INTERVAL)),
                Err(error) => {
                    warn("cannot advance a rollout: trying again", &error);
                    Some(clock.now().after(RETRY))
                }
            };
            tokio::select! {
                biased;
                changed = progress.changed() => if changed.is_err() { return TermEnd::Shutdown },
                () = wait_until(clock, next) => {}
            }
            if !active.0.is_empty() {
                // Machines may report many states in a short time.
                clock.sleep(REPORT_INTERVAL).await;
            }
        }
    }

    /// Advances all rollouts once. Returns the time at which to do so again even if nothing
    /// changes.
    async fn advance_rollouts(
        &self,
        leadership: &Leadership,
        active: &mut ActiveRollouts,
    ) -> Result<Option<Timestamp>, RegistryError> {
        // An uncertain view is no reason to judge a member.
        let Some(snapshot) = self.config.mirror.current() else { return Ok(None) };
        let is_active = |id| snapshot.rollout(id).is_some_and(|it| !it.rollout.phase.has_ended());
        active.0.retain(|id, _| is_active(*id));
        let mut next = None;
        let mut failed = None;
        for record in snapshot.active_rollouts() {
            let state = active.0.entry(record.id).or_default();
            if snapshot.revision < state.written {
                continue;
            }
            match self.advance_rollout(leadership, state, record, &snapshot).await {
                Ok(at) => next = [next, at].into_iter().flatten().min(),
                Err(error @ (RegistryError::Deposed { .. } | RegistryError::Store(_))) => {
                    return Err(error);
                }
                // A damaged rollout must not stop the others.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(next), Err)
    }

    /// Advances a rollout, and writes its progress. Returns the time of the next call.
    async fn advance_rollout(
        &self,
        leadership: &Leadership,
        state: &mut ActiveRollout,
        seen: &RolloutRecord,
        snapshot: &Snapshot,
    ) -> Result<Option<Timestamp>, RegistryError> {
        let EngineConfig { registry, mirror, clock, .. } = &self.config;
        let (mut next, mut timers) = (seen.clone(), state.timers.clone());
        let now = clock.now();
        let observer = seen.observer(snapshot);
        let Advance { changed, actions, next: at, .. } =
            next.rollout.advance(&mut timers, now, |member| observer.observe(member));
        if !changed && actions.is_empty() {
            state.timers = timers;
            return Ok(at);
        }
        note_global_actions(&mut next, &actions);
        let is_complete = next.rollout.phase == RolloutPhase::Completed;
        if state.files.is_none() && (is_complete || !actions.is_empty()) {
            state.files = Some(registry.rollout_files(seen.id).await?);
        }
        let files = state.files.as_ref();
        let step = RolloutStep { seen, next: &next, actions: &actions, files, snapshot };
        let revision = leadership.advance_rollout(&step, mirror).await?;
        (state.timers, state.written) = (timers, revision);
        let (id, phase) = (seen.id, &next.rollout.phase);
        tracing::info!(rollout = %id, members = actions.len(), %phase, "advancing a rollout");
        self.wait_visible(revision).await;
        Ok(Some(now))
    }
}

/// Records the actions on global units. Their target on a machine follows from the state of the
/// member, and not from the unit alone.
fn note_global_actions(record: &mut RolloutRecord, actions: &[RolloutAction]) {
    for action in actions {
        let Some(member) = record.rollout.members.get_mut(action.member()) else { continue };
        if member.id.machine.is_none() {
            continue;
        }
        member.state = match action {
            RolloutAction::Update { .. } => MemberState::Updating,
            RolloutAction::Restore { .. } | RolloutAction::Remove { .. } => MemberState::Restoring,
        };
    }
}

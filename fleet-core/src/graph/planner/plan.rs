//! The plan: which actions are due, and in which order.

use super::event::{ActionKind, UnitAction};
use super::phase::{FailureCause, Phase};
use super::transitions::Units;
use crate::Timestamp;

impl Units {
    /// Returns the actions that are due and records them as done, as
    /// [`InitState::next_actions`](super::InitState::next_actions) describes.
    pub(super) fn next_actions(&mut self, now: Timestamp) -> Vec<UnitAction> {
        let mut actions = std::mem::take(&mut self.pending_actions);
        loop {
            let retries = self.expire(now, &mut actions);
            self.settle(now, &mut actions);
            // Units that wait for a failed unit go on before it restarts, even without a delay.
            // Otherwise they would wait forever for a unit that keeps failing.
            if retries.is_empty() {
                break;
            }
            retries.into_iter().for_each(|at| self.retry(at, now));
        }
        actions.sort_by(|a, b| rank(a).cmp(&rank(b)));
        actions
    }

    /// Returns whether no action is pending and no unit is starting or stopping.
    pub(super) fn is_settled(&self) -> bool {
        let queues = &self.nodes.queues;
        let in_flux = |phase| matches!(phase, Phase::Starting | Phase::Stopping);
        self.pending_actions.is_empty()
            && queues.stops.is_empty()
            && queues.unlimited_starts.is_empty()
            && queues.starts.is_empty()
            && !self.nodes.iter().any(|node| in_flux(node.observed.phase))
    }

    /// Takes all steps to which `max_starting` does not apply (such as stops and reloads). Then
    /// starts units while fewer than `max_starting` units are starting.
    ///
    /// All stops come before these starts. Otherwise a start could make a lost dependency active
    /// again, and the units that have to stop because of the loss would keep running. The order
    /// among stops, and among starts, does not matter.
    fn settle(&mut self, now: Timestamp, actions: &mut Vec<UnitAction>) {
        self.nodes.propagate();
        while self.step(now, actions) {
            self.nodes.propagate();
        }
        while let Some(&(_, at)) = self.nodes.queues.starts.first() {
            if self.is_full() {
                break;
            }
            actions.extend(self.start(at, now));
            self.nodes.propagate();
        }
    }

    fn step(&mut self, now: Timestamp, actions: &mut Vec<UnitAction>) -> bool {
        if let Some(&at) = self.nodes.queues.resets.first() {
            self.clear_result(at, now);
        } else if let Some(&at) = self.nodes.queues.stops.first() {
            actions.extend(self.stop(at, now));
        } else if let Some(&at) = self.nodes.queues.reloads.first() {
            actions.push(self.begin_reload(at, now));
        } else if let Some(&at) = self.nodes.queues.unlimited_starts.first() {
            actions.extend(self.start(at, now));
        } else {
            return false;
        }
        true
    }

    /// Handles expired deadlines, and returns the units that are to be restarted.
    fn expire(&mut self, now: Timestamp, actions: &mut Vec<UnitAction>) -> Vec<u32> {
        self.nodes.propagate();
        let due = |&&(timer, _): &&(Timestamp, u32)| timer <= now;
        let due: Vec<u32> =
            self.nodes.queues.timers.iter().take_while(due).map(|&(_, at)| at).collect();
        let (retries, late): (Vec<u32>, Vec<u32>) = due.into_iter().partition(|&at| {
            matches!(self.nodes.node(at).observed.phase, Phase::Failed | Phase::Completed)
        });
        for at in late {
            self.escalate(at, now, actions);
        }
        actions.append(&mut self.pending_actions);
        retries
    }

    fn escalate(&mut self, at: u32, now: Timestamp, actions: &mut Vec<UnitAction>) {
        let observed = &self.nodes.node(at).observed;
        match observed.phase {
            Phase::Starting => self.fail(at, FailureCause::StartTimeout, now),
            Phase::Active(_) if self.exceeds_runtime(at, now) => {
                self.fail(at, FailureCause::RuntimeMax, now);
            }
            Phase::Active(_) => self.end_reload(at, false, now),
            Phase::Stopping if observed.killed => {
                self.enter_failed(at, FailureCause::Unkillable, now);
            }
            Phase::Stopping => actions.push(self.kill(at, now)),
            Phase::Inactive | Phase::Failed | Phase::Completed => {}
        }
    }

    fn exceeds_runtime(&self, at: u32, now: Timestamp) -> bool {
        let observed = &self.nodes.node(at).observed;
        let most = observed.definition.as_ref().and_then(|definition| definition.run.runtime_max);
        let most = most.filter(|_| !observed.exited);
        observed.active_since.zip(most).is_some_and(|(since, most)| since.after(most) <= now)
    }

    fn retry(&mut self, at: u32, now: Timestamp) {
        if self.nodes.node(at).exceeds_start_limit(now) {
            let observed = &mut self.nodes.node_mut(at).observed;
            (observed.retry_at, observed.gave_up) = (None, true);
            self.nodes.touch(at);
        } else {
            self.enter_inactive(at, now);
        }
    }
}

/// Returns the sort key of an action: first the kind, then the name. Starts have no name in the
/// key, so they keep the order in which they were decided.
fn rank(action: &UnitAction) -> (u8, Option<&str>) {
    let name = Some(action.unit.as_str());
    match action.kind {
        ActionKind::Kill => (0, name),
        ActionKind::Stop { .. } => (1, name),
        ActionKind::Reload => (2, name),
        ActionKind::Start => (3, None),
    }
}

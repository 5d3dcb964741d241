//! Reference planner: evaluates all units at every step, in another order than the tested one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{
    ActionKind, Activity, FailureCause, Incarnation, Name, ObservedUnit, Phase, RestartLimit,
    StartRateLimit, StopOutcome, StopReason,
};

use super::twin::Twin;

/// Actions of a plan by unit name; starts keep their order.
pub(super) type Actions = Vec<(Name, ActionKind)>;

/// A reference graph with planning state.
pub(super) struct Naive {
    pub(super) twin: Twin,
    pub(super) last: Incarnation,
    pub(super) max_starting: usize,
    pub(super) now: Timestamp,
    pub(super) said: Actions,
}

impl Naive {
    /// Returns the actions and the resulting unit states.
    pub(super) fn plan(mut self) -> (Actions, BTreeMap<Name, ObservedUnit>) {
        loop {
            let retries = self.expire();
            while self.step() {}
            self.fill();
            if retries.is_empty() {
                break;
            }
            retries.iter().for_each(|name| self.retry(name));
        }
        self.said.sort_by_key(|(name, order)| match order {
            ActionKind::Kill => (0, Some(name.clone())),
            ActionKind::Stop { .. } => (1, Some(name.clone())),
            ActionKind::Reload => (2, Some(name.clone())),
            ActionKind::Start => (3, None),
        });
        (self.said, self.twin.seen)
    }

    fn names(&self) -> Vec<Name> {
        self.twin.units.keys().rev().cloned().collect()
    }

    fn expire(&mut self) -> Vec<Name> {
        let names = self.names();
        let is_due = |name: &&Name| {
            let seen = &self.twin.seen[*name];
            let over = matches!(seen.phase, Phase::Failed | Phase::Completed);
            let at = if over { seen.retry_at } else { seen.deadline };
            let waits = over && (!self.twin.needed.contains(*name) || seen.processes);
            !waits && at.is_some_and(|at| at <= self.now)
        };
        let due: Vec<Name> = names.iter().filter(is_due).cloned().collect();
        let over = |name: &Name| matches!(self.twin.phase(name), Phase::Failed | Phase::Completed);
        let (retries, late): (Vec<Name>, Vec<Name>) = due.into_iter().partition(over);
        late.iter().for_each(|name| self.escalate(name));
        retries
    }

    fn escalate(&mut self, name: &Name) {
        match self.twin.phase(name) {
            Phase::Starting => self.end(name, StopOutcome::Failed(FailureCause::StartTimeout)),
            Phase::Active(_) => {
                let seen = self.seen(name);
                seen.reload_failed = true;
                let exited = seen.exited;
                let before = if exited { Activity::Exited } else { Activity::Running };
                seen.phase = Phase::Active(before);
                seen.deadline = None;
                self.seen(name).since = self.now;
            }
            Phase::Stopping if self.twin.seen[name].killed => {
                let exit = self.twin.seen[name].exit;
                let restarts =
                    self.twin.seen[name].restart_requested || self.twin.definition_changed(name);
                self.over(name, Phase::Failed);
                let attempts = self.twin.seen[name].attempts + 1;
                let policy = self.twin.units[name].restart.clone();
                let failures = self.twin.seen[name].failures + 1;
                let limited =
                    matches!(policy.limit, RestartLimit::Failures(most) if failures > most);
                let again = policy.applies(Some(FailureCause::Unkillable), exit);
                let now = self.now;
                let seen = self.seen(name);
                seen.cause = Some(FailureCause::Unkillable);
                (seen.attempts, seen.failures) = (attempts, failures);
                seen.gave_up = again && limited;
                seen.retry_at = (again && !limited).then(|| now.after(policy.delay_of(attempts)));
                if restarts {
                    (seen.attempts, seen.failures, seen.starts) = (0, 0, StartRateLimit::default());
                    (seen.gave_up, seen.retry_at) = (false, Some(now));
                }
            }
            _ => {
                let now = self.now;
                let seen = self.seen(name);
                seen.killed = true;
                seen.deadline = Some(now.after(Duration::from_secs(10)));
                if !matches!(seen.outcome, Some(StopOutcome::Failed(_))) {
                    seen.outcome = Some(StopOutcome::Failed(FailureCause::StopTimeout));
                }
                self.said.push((name.clone(), ActionKind::Kill));
            }
        }
    }

    /// Takes one step that needs no start slot, if there is one. Stops come before starts.
    fn step(&mut self) -> bool {
        let kinds = [Self::reload, Self::stop, Self::reset, Self::start_virtual];
        kinds.iter().any(|kind| self.names().iter().any(|name| kind(self, name)))
    }

    fn start_virtual(&mut self, name: &Name) -> bool {
        let startable = self.twin.units[name].is_virtual() && self.twin.startable(name);
        if startable {
            let definition = Arc::new(self.twin.units[name].clone());
            let now = self.now;
            let seen = self.seen(name);
            seen.phase = Phase::Active(Activity::Running);
            (seen.since, seen.active_since) = (now, Some(now));
            (seen.cause, seen.incarnation) = (None, None);
            seen.definition = Some(definition);
        }
        startable
    }

    fn reload(&mut self, name: &Name) -> bool {
        let seen = &self.twin.seen[name];
        let runs = matches!(seen.phase, Phase::Active(Activity::Running | Activity::Exited));
        if !seen.reload_requested || !runs || self.twin.must_stop(name) {
            return false;
        }
        let most = seen.definition.as_ref().and_then(|it| it.timeouts.reload);
        let now = self.now;
        let seen = self.seen(name);
        seen.reload_requested = false;
        seen.phase = Phase::Active(Activity::Reloading);
        seen.since = now;
        seen.deadline = most.map(|most| now.after(most));
        self.said.push((name.clone(), ActionKind::Reload));
        true
    }

    fn stop(&mut self, name: &Name) -> bool {
        if !self.twin.must_stop(name) || self.twin.waits_for_dependents(name) {
            return false;
        }
        let seen = &self.twin.seen[name];
        let definition = seen.definition.clone().unwrap();
        let no_commands = definition.run.stop.is_empty() && definition.run.stop_post.is_empty();
        let exited = seen.phase == Phase::Active(Activity::Exited);
        if definition.is_virtual() || (exited && !seen.processes && no_commands) {
            self.forgive(name);
            self.over(name, Phase::Inactive);
            return true;
        }
        let reason = self.reason(name);
        self.end(name, StopOutcome::Inactive(reason));
        true
    }

    fn reason(&self, name: &Name) -> StopReason {
        let unit = &self.twin.units[name];
        if !self.twin.needed.contains(name) {
            let masked = self.twin.masked.contains(name);
            return if masked { StopReason::Masked } else { StopReason::Unneeded };
        }
        if self.twin.seen[name].restart_requested {
            return StopReason::RestartRequested;
        }
        if self.twin.definition_changed(name) {
            return StopReason::DefinitionChanged;
        }
        let is_lost = |target: &&fleet_core::graph::Target| {
            let by = self.twin.provider(target);
            by.is_none_or(|on| !self.twin.active(on) || self.twin.must_stop(on))
        };
        let on = unit.edges.iter().filter(|(kind, _)| kind.as_str() == "depends-on");
        let lost = on.map(|(_, target)| target).filter(is_lost).min();
        StopReason::DependencyLost(lost.expect("there is no other reason").clone())
    }

    fn reset(&mut self, name: &Name) -> bool {
        let seen = &self.twin.seen[name];
        let kept = matches!(
            seen.cause,
            Some(
                FailureCause::StopTimeout
                    | FailureCause::StopCommand(_)
                    | FailureCause::StopCommandTimeout
                    | FailureCause::Unkillable
                    | FailureCause::Lost
            )
        );
        let over = match seen.phase {
            Phase::Failed => !kept,
            Phase::Completed => true,
            Phase::Inactive => seen.attempts > 0,
            _ => false,
        };
        if self.twin.needed.contains(name) || !over {
            return false;
        }
        if seen.phase != Phase::Inactive {
            self.over(name, Phase::Inactive);
        }
        let seen = self.seen(name);
        (seen.attempts, seen.failures) = (0, 0);
        (seen.cause, seen.starts) = (None, StartRateLimit::default());
        true
    }

    /// Starts units while there are slots, greatest height first.
    fn fill(&mut self) {
        loop {
            let startable = |name: &&Name| self.twin.startable(name);
            let names = self.names();
            let first = (names.iter().filter(startable).cloned())
                .min_by_key(|name| (usize::MAX - self.twin.height(name), name.clone()));
            let starting = names.iter().filter(|it| self.twin.phase(it) == Phase::Starting);
            match first {
                Some(name) if starting.count() < self.max_starting => self.start(&name),
                _ => return,
            }
        }
    }

    fn start(&mut self, name: &Name) {
        let definition = Arc::new(self.twin.units[name].clone());
        self.last = Incarnation(self.last.0 + 1);
        let (now, last) = (self.now, self.last);
        let seen = self.seen(name);
        if let RestartLimit::Starts { interval, .. } = definition.restart.limit {
            let over = seen.starts.count == 0 || now.since(seen.starts.since) >= interval;
            let starts = if over { StartRateLimit { since: now, count: 0 } } else { seen.starts };
            seen.starts = StartRateLimit { count: starts.count + 1, ..starts };
        }
        seen.phase = Phase::Starting;
        seen.since = now;
        seen.incarnation = Some(last);
        seen.processes = true;
        seen.deadline = definition.timeouts.start.map(|most| now.after(most));
        seen.definition = Some(definition);
        self.said.push((name.clone(), ActionKind::Start));
    }

    fn retry(&mut self, name: &Name) {
        let now = self.now;
        let limit = self.twin.units[name].restart.limit;
        let starts = self.twin.seen[name].starts;
        let too_often = matches!(limit, RestartLimit::Starts { burst, interval }
            if starts.count >= burst && now.since(starts.since) < interval);
        if too_often {
            let seen = self.seen(name);
            (seen.retry_at, seen.gave_up) = (None, true);
        } else {
            self.over(name, Phase::Inactive);
        }
    }

    fn end(&mut self, name: &Name, ending: StopOutcome) {
        let was_active = self.twin.active(name);
        self.forgive(name);
        let reason = match &ending {
            StopOutcome::Inactive(reason) => reason.clone(),
            StopOutcome::Failed(cause) => StopReason::Failed(*cause),
            _ => unreachable!("a plan ends nothing well"),
        };
        let now = self.now;
        let seen = self.seen(name);
        let most = seen.definition.as_ref().and_then(|it| it.timeouts.stop);
        (seen.phase, seen.processes) = (Phase::Stopping, true);
        (seen.since, seen.active_since, seen.exited) = (now, None, false);
        (seen.outcome, seen.killed, seen.reload_requested) = (Some(ending), false, false);
        seen.deadline = most.map(|most| now.after(most));
        self.said.push((name.clone(), ActionKind::Stop { reason, was_active }));
    }

    fn forgive(&mut self, name: &Name) {
        let restart = self.twin.units[name].restart.clone();
        let now = self.now;
        let seen = self.seen(name);
        let twice = restart.delay_of(seen.attempts) * 2;
        let most = restart.reset.unwrap_or(twice.max(Duration::from_secs(10)));
        if seen.active_since.is_some_and(|since| now.since(since) >= most) {
            (seen.attempts, seen.failures) = (0, 0);
        }
    }

    /// Puts a unit at rest and keeps its result.
    fn over(&mut self, name: &Name, phase: Phase) {
        let now = self.now;
        let seen = self.seen(name);
        *seen = ObservedUnit {
            phase,
            since: now,
            incarnation: seen.incarnation,
            definition: if seen.processes { seen.definition.take() } else { None },
            processes: seen.processes,
            cause: seen.cause,
            attempts: seen.attempts,
            failures: seen.failures,
            starts: seen.starts,
            ..ObservedUnit::default()
        };
    }

    fn seen(&mut self, name: &Name) -> &mut ObservedUnit {
        self.twin.seen.get_mut(name).unwrap()
    }
}

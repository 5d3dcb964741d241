//! Units that start or stop because of the state of other units: `Upholds=`, `StopWhenUnneeded=`,
//! and restarts together with other units.
//!
//! As in systemd, both follow from the present state of the units, and are checked whenever one of
//! the units concerned has changed. An index leads from each unit to these units.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::{DerivedState, Name, Retry, Target, WaitReason};

use super::super::core::Core;
use super::ManagedUnits;
use super::calls::requirements;
use super::waiters::{hit_start_limit, is_over};
use crate::native::run::machine::state::RunOutcome;

/// Maximum number of starts of an upheld unit within [`WINDOW`], as in systemd.
const MAX_STARTS: u32 = 16;

/// Time after which starts of an upheld unit are counted again, and a unit that was started too
/// often is tried again.
const WINDOW: Duration = Duration::from_secs(10);

/// Starts of upheld units.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Begin of the window of each upheld unit, and the number of its starts since.
    starts: BTreeMap<Name, (Timestamp, u32)>,
    /// Upheld units that were started too often, with the time at which they are tried again.
    retries: BTreeSet<(Timestamp, Name)>,
}

impl Upkeep {
    /// Counts a start. Returns `None` if it is allowed, or the time at which the next one is.
    fn count(&mut self, unit: &Name, now: Timestamp) -> Option<Timestamp> {
        let (since, count) = self.starts.entry(unit.clone()).or_insert((now, 0));
        if now.since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        if *count >= MAX_STARTS {
            return Some(since.after(WINDOW));
        }
        *count += 1;
        None
    }

    /// Schedules the next attempt to start a unit.
    fn schedule(&mut self, unit: &Name, at: Timestamp) {
        if !self.retries.iter().any(|(_, other)| other == unit) {
            self.retries.insert((at, unit.clone()));
        }
    }

    /// Forgets a unit that is unloaded.
    pub(super) fn forget(&mut self, unit: &Name) {
        self.starts.remove(unit);
        self.retries.retain(|(_, other)| other != unit);
    }
}

impl ManagedUnits {
    /// Restarts the running units that stop with a unit which restarts by itself, as systemd does.
    /// They start again once that unit is active.
    pub(in crate::native::supervisor) fn restart_dependents_of_due_restarts(
        &mut self,
        core: &mut Core,
        now: Timestamp,
    ) {
        if self.loaded_units.is_empty() {
            return;
        }
        for unit in core.planner.due_restarts(now) {
            for (dependent, run) in self.restart_with_dependents(core, &unit) {
                self.restart_after(&dependent, run);
            }
        }
    }

    /// Clears the result of each unit in `changed` that has a pending restart and whose run is
    /// over, so that the unit starts again. Returns whether there was such a unit.
    pub(in crate::native::supervisor) fn restart_pending(
        &mut self,
        core: &mut Core,
        changed: &[Name],
    ) -> bool {
        if self.pending_restarts.is_empty() {
            return false;
        }
        let mut begun = Vec::new();
        for unit in changed {
            let Some(run) = self.pending_restarts.get(unit) else { continue };
            let state = core.planner.status(unit);
            let state = state.filter(|state| state.incarnation == Some(*run));
            let is_over = state.as_ref().is_some_and(|state| is_over(&state.state));
            if is_over || state.is_none() {
                self.pending_restarts.remove(unit);
            }
            begun.extend(is_over.then_some(unit));
        }
        for unit in &begun {
            core.reset_failed(&Target::from(*unit));
        }
        !begun.is_empty()
    }

    /// Starts upheld units that are down, and stops unneeded ones, as far as the units in `changed`
    /// matter to them. Returns whether there is something to plan.
    pub(in super::super) fn check_upkeep(&mut self, core: &mut Core, changed: &[Name]) -> bool {
        let effects = self.graph.effects();
        let is_used = !effects.upholds.is_empty() || !effects.needed_by.is_empty();
        if !is_used || core.shutting_down {
            return false;
        }
        let (mut upheld, mut unneeded) = (BTreeSet::new(), BTreeSet::new());
        for unit in changed {
            upheld.extend(effects.upholds.get(unit).into_iter().flatten().cloned());
            upheld.extend(effects.upheld_by.contains_key(unit).then(|| unit.clone()));
            unneeded.extend(effects.may_unneed.get(unit).into_iter().flatten().cloned());
            unneeded.extend(effects.needed_by.contains_key(unit).then(|| unit.clone()));
        }
        let mut has_acted = false;
        for unit in &upheld {
            has_acted |= self.uphold(core, unit, false);
        }
        for unit in &unneeded {
            has_acted |= self.stop_if_unneeded(core, unit);
        }
        has_acted
    }

    /// Returns when the next upheld unit is tried again that was started too often.
    pub(in super::super) fn upkeep_due(&self) -> Option<Timestamp> {
        self.upkeep.retries.first().map(|(due, _)| *due)
    }

    /// Tries the upheld units again whose time has come.
    pub(in super::super) fn retry_upheld(&mut self, core: &mut Core, now: Timestamp) {
        while let Some((due, unit)) = self.upkeep.retries.first().cloned()
            && due <= now
        {
            self.upkeep.retries.pop_first();
            self.uphold(core, &unit, true);
        }
    }

    /// Starts a unit that is down although an active unit upholds it. Returns whether it did so.
    /// `is_retry` is whether the unit is tried again after it hit its start limit.
    fn uphold(&mut self, core: &mut Core, unit: &Name, is_retry: bool) -> bool {
        let is_active = |by: &&Name| {
            let state = core.planner.status(by).map(|status| status.state);
            matches!(state, Some(DerivedState::Active(_)))
        };
        let by = self.graph.effects().upheld_by.get(unit).into_iter().flatten();
        let is_upheld = by.clone().any(|by| is_active(&by));
        let is_kept = self.loaded_units.get(unit).is_some_and(|loaded| !loaded.unloading);
        let Some(state) = core.planner.status(unit).filter(|_| is_upheld && is_kept) else {
            return false;
        };
        let is_down = match &state.state {
            DerivedState::Masked => true,
            DerivedState::Failed { stuck: true, .. } => false,
            state => is_over(state) && core.pending_retry(unit).is_none(),
        };
        // An attempt that a condition prevents is not repeated.
        let outcome = core.units.get(unit).and_then(|entry| entry.run_state.outcome);
        let is_skipped = matches!(outcome, Some(RunOutcome::Assert | RunOutcome::Condition));
        if !is_down || is_skipped && state.state != DerivedState::Masked {
            return false;
        }
        let now = core.now();
        if hit_start_limit(&state.state) && !is_retry {
            self.upkeep.schedule(unit, now.after(WINDOW));
            return false;
        }
        if let Some(next) = self.upkeep.count(unit, now) {
            tracing::warn!(%unit, "an upheld unit starts too often: waiting before the next start");
            self.upkeep.schedule(unit, next);
            return false;
        }
        let needed = requirements(core.planner.graph(), unit);
        core.targets.unmask_started(&mut core.planner, &needed, now);
        self.retry_now(core, unit);
        self.touched.insert(unit.clone());
        true
    }

    /// Stops an active unit with `StopWhenUnneeded=` if no unit that needs it is up, or about to
    /// be. Returns whether it did so. The unit stays stopped until it or such a unit is started.
    fn stop_if_unneeded(&mut self, core: &mut Core, unit: &Name) -> bool {
        let state = |unit: &Name| core.planner.status(unit).map(|status| status.state);
        let is_idle = |unit: &Name| match state(unit) {
            None | Some(DerivedState::Disabled | DerivedState::Masked) => true,
            Some(DerivedState::Waiting(why)) => matches!(why, WaitReason::Blocked(_)),
            Some(DerivedState::Failed { retry, .. } | DerivedState::Completed(retry)) => {
                !matches!(retry, Retry::At(_))
            }
            Some(_) => false,
        };
        let mut needed_by = self.graph.effects().needed_by.get(unit).into_iter().flatten();
        if !matches!(state(unit), Some(DerivedState::Active(_))) || !needed_by.all(is_idle) {
            return false;
        }
        self.stop_with_dependents(core, unit);
        self.touched.insert(unit.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_limited_per_window() {
        let (mut upkeep, unit) = (Upkeep::default(), Name::new("a").expect("it is a name"));
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        assert!((0..MAX_STARTS).all(|_| upkeep.count(&unit, at(1)).is_none()));
        assert_eq!(upkeep.count(&unit, at(5)), Some(at(11)));
        assert_eq!(upkeep.count(&unit, at(11)), None);
        upkeep.schedule(&unit, at(11));
        upkeep.schedule(&unit, at(12));
        assert_eq!(upkeep.retries.len(), 1, "one attempt is enough");
        upkeep.forget(&unit);
        assert!(upkeep.retries.is_empty() && upkeep.starts.is_empty());
    }
}

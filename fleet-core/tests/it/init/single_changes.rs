//! Single target changes have the same effect as setting all targets.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::{InitState, Target};

use super::world::World;

impl World {
    /// Adds or removes one extra target, and compares with setting all of them.
    pub(super) fn want_one(&mut self, target: &Target, more: bool) {
        let mut whole = self.system.clone();
        let goal = whole.goal().cloned();
        let mut with = self.system.observation().extra_targets;
        change(&mut with, target, more);
        let chosen = whole.set_goal(goal, with.clone(), self.now);
        let provided = |it: &Target| whole.graph().provider(it).is_some();
        if more {
            let wanted = self.system.add_extra_target(target.clone(), self.now);
            assert_eq!(wanted.is_ok(), provided(target), "{target}");
        } else {
            self.system.remove_extra_target(target, self.now);
        }
        // Setting all targets also fails for targets that were lost earlier.
        if with.iter().all(provided) {
            chosen.expect("all of it is provided");
            self.is_as(whole);
        }
    }

    /// Masks or unmasks one target, and compares with setting the whole mask.
    pub(super) fn mask_one(&mut self, target: &Target, more: bool) {
        let mut whole = self.system.clone();
        let mut mask = self.mask.clone();
        change(&mut mask, target, more);
        let chosen = whole.set_mask(mask.clone(), self.now);
        let masked = if more {
            self.system.mask(target.clone(), self.now)
        } else {
            self.system.unmask(target, self.now);
            Ok(())
        };
        assert_eq!(masked, chosen);
        if chosen.is_ok() {
            self.mask = mask;
        }
        self.is_as(whole);
    }

    /// Compares two states by their status, their pending actions, and the effect of a reload of
    /// the same units, which evaluates all requests.
    pub(super) fn is_as(&self, mut whole: InitState) {
        let mut one = self.system.clone();
        assert_eq!(all_of(&one), all_of(&whole));
        for again in [false, true] {
            if again {
                let graph = one.graph().clone();
                let taken = one.reload(graph.clone(), self.now);
                assert_eq!(taken, whole.reload(graph, self.now));
            }
            assert_eq!(one.next_actions(self.now), whole.next_actions(self.now));
            assert_eq!(all_of(&one), all_of(&whole));
        }
        let later = one.next_deadline().unwrap_or(self.now).max(self.now);
        assert_eq!(one.next_actions(later), whole.next_actions(later));
    }
}

fn change(all: &mut BTreeSet<Target>, target: &Target, more: bool) {
    if more {
        all.insert(target.clone());
    } else {
        all.remove(target);
    }
}

/// Returns everything that is visible of a state.
fn all_of(system: &InitState) -> impl PartialEq + std::fmt::Debug + use<> {
    let goals: Vec<Target> = system.requested_targets().cloned().collect();
    let states: Vec<_> = system.units().map(|unit| system.status(unit)).collect();
    let due: Option<Timestamp> = system.next_deadline();
    let units: Vec<_> = system.graph().units().cloned().collect();
    (goals, units, states, due, system.observation())
}

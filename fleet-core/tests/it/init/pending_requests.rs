//! Requests during a failing stop or run: none of them is lost with the run.

use std::collections::BTreeMap;

use fleet_core::graph::strategies::{Units, units};
use fleet_core::graph::{
    EventKind, Exit, FailureCause, Incarnation, Name, Phase, Restart, RestartWhen, StopOutcome,
    StopReason, UnitAction,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::config::cases;
use super::liveness::could_not_be_stopped;
use super::script::{Edit, Move};
use super::world::World;

/// Generates units most of which are never restarted.
fn units_that_stay_down(most: usize) -> impl Strategy<Value = Units> {
    (units(most), prop::collection::vec(prop::bool::weighted(0.8), most)).prop_map(
        |(mut units, never)| {
            for (unit, never) in units.0.iter_mut().zip(never) {
                let restart = Restart { when: RestartWhen::OnFailure, ..Restart::default() };
                unit.restart = if never { Restart::never() } else { restart };
            }
            units
        },
    )
}

/// Generates requests between starts and stops, many of which fail.
fn requests(most: usize) -> impl Strategy<Value = Vec<Move>> {
    let who = any::<Index>;
    let failure = select(vec![
        EventKind::MainExited(Exit::Status(1)),
        EventKind::MainExited(Exit::Status(0)),
        EventKind::Failed(FailureCause::Watchdog),
        EventKind::Failed(FailureCause::StopTimeout),
        EventKind::Failed(FailureCause::StopCommand(Exit::Status(1))),
        EventKind::Stopping,
        EventKind::AllGone,
    ]);
    let edit = prop_oneof![
        4 => who().prop_map(Edit::Runs),
        1 => who().prop_map(Edit::Remove),
        1 => Just(Edit::Restore),
        1 => (who(), 0..3u8).prop_map(|(it, what)| Edit::Live(it, what)),
    ];
    let one = prop_oneof![
        9 => (who(), prop::bool::weighted(0.9)).prop_map(|(who, well)| Move::Answer { who, well }),
        4 => who().prop_map(|who| Move::Gone { who }),
        5 => (who(), failure).prop_map(|(who, kind)| Move::Event { who, kind, late: false }),
        8 => Just(Move::Due(0)),
        5 => (who(), prop::option::weighted(0.3, who()))
            .prop_map(|(goal, with)| Move::Goal(Some(goal), with)),
        3 => (who(), any::<bool>()).prop_map(|(it, more)| Move::Want(it, more)),
        2 => (who(), any::<bool>()).prop_map(|(it, more)| Move::MaskOne(it, more)),
        3 => who().prop_map(Move::Renew),
        1 => who().prop_map(Move::Reset),
        4 => edit.prop_map(Move::Reload),
    ];
    prop::collection::vec(one, 0..=most)
}

/// A world with the requests made in it.
struct RequestWorld {
    world: World,
    /// Units that could not be stopped and were needed again before they were gone, with the run
    /// that has to end first.
    wanted_again: BTreeMap<Name, Option<Incarnation>>,
    /// Units with a requested restart, with the run that had to end.
    renewed: BTreeMap<Name, Incarnation>,
}

impl RequestWorld {
    fn of(units: &Units) -> Self {
        let mut world = World::new(units);
        world.compared = false;
        Self { world, wanted_again: BTreeMap::new(), renewed: BTreeMap::new() }
    }

    fn make(&mut self, it: &Move) {
        let before = self.world.twin();
        let goals: Vec<_> = self.world.system.requested_targets().cloned().collect();
        let mask = self.world.mask.clone();
        self.world.make(it);
        let after = self.world.twin();
        let is_read = matches!(it, Move::Reload(_)) && before.units != after.units;
        let is_otherwise =
            mask != self.world.mask || !self.world.system.requested_targets().eq(&goals);
        for (name, seen) in before.seen.iter().filter(|_| is_read || is_otherwise) {
            let failed = could_not_be_stopped(seen.cause);
            let lapsed = seen.phase == Phase::Failed && !before.needed.contains(name);
            if failed && lapsed && after.needed.contains(name) {
                self.wanted_again.insert(name.clone(), seen.incarnation);
            }
        }
        for (name, seen) in before.seen.iter().filter(|_| matches!(it, Move::Renew(_))) {
            let stops = Some(StopOutcome::Inactive(StopReason::RestartRequested));
            let is_asked =
                after.seen.get(name).is_some_and(|it| it.restart_requested || it.outcome == stops);
            let runs = seen.phase == Phase::Starting || seen.phase.is_active();
            if let Some(run) =
                seen.incarnation.filter(|_| runs && !seen.restart_requested && is_asked)
            {
                self.renewed.insert(name.clone(), run);
            }
        }
        self.check_no_stale_failures();
    }

    /// Checks that no unit that was needed again and is gone is still failed from that run.
    fn check_no_stale_failures(&mut self) {
        let twin = self.world.twin();
        self.wanted_again.retain(|name, run| {
            let Some(seen) = twin.seen.get(name).filter(|it| it.incarnation == *run) else {
                return false;
            };
            let failed = seen.phase == Phase::Failed;
            assert!(!failed || seen.processes, "{name} stays failed, and is wanted");
            failed && twin.needed.contains(name)
        });
    }

    /// Runs until the state settles, with every start and stop succeeding.
    fn rest(&mut self) {
        for _ in 0..2_000 {
            self.world.plan();
            let pending = self.world.pending();
            match (pending.first(), self.world.system.next_deadline()) {
                (Some(name), _) if self.world.seen(name).phase == Phase::Starting => {
                    self.world.answer_for(name, true);
                }
                (Some(name), _) => self.world.all_gone(name),
                (None, Some(due)) => self.world.now = due.max(self.world.now),
                (None, None) => return,
            }
        }
        panic!("a system does not come to rest");
    }

    fn last_start(&self, name: &Name) -> Option<&UnitAction> {
        self.world.log.iter().rfind(|it| it.unit == *name && it.is_start())
    }
}

proptest! {
    #![proptest_config(cases(10))]

    /// At rest every needed unit is active with its current definition, has failed or completed
    /// with it, or is blocked. Every unit with a requested restart was restarted.
    #[test]
    fn pending_requests_survive_a_failing_run(
        units in units_that_stay_down(5),
        wishes in requests(24),
    ) {
        let mut asked = RequestWorld::of(&units);
        wishes.iter().for_each(|it| asked.make(it));
        asked.rest();
        asked.check_no_stale_failures();
        let twin = asked.world.twin();
        for name in &twin.needed {
            let phase = twin.phase(name);
            if phase == Phase::Inactive {
                prop_assert!(twin.blocked(name), "{name} is inactive");
                continue;
            }
            let Some(run) = asked.last_start(name) else { continue };
            let otherwise = run.definition.needs_restart_for(&twin.units[name]);
            prop_assert!(!otherwise, "{name} is {phase} with its old definition");
            let restarts = asked.renewed.get(name).is_none_or(|before| run.incarnation > *before);
            prop_assert!(restarts, "{name} is {phase} and was not restarted");
        }
    }
}

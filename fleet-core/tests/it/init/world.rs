//! Simulated supervisor: turns actions into processes, and checks the invariants after each plan.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::strategies::Units;
use fleet_core::graph::{
    ActionKind, DerivedState, EdgeKind, EventKind, Exit, Graph, Incarnation, InitState, InitUnit,
    Name, Observation, ObservedUnit, Phase, Retry, ServiceType, Settings, StopOutcome, StopReason,
    Target, UnitAction, UnitEvent,
};
use proptest::sample::Index;

use super::change_feed::LastStatuses;
use super::events::is_as_the_table_says;
use super::naive::{Actions, Naive};
use super::script::{Edit, Move};
use super::twin::{Edge, Twin};

/// A state with the simulated processes of its units.
#[derive(Clone)]
pub(super) struct World {
    pub(super) system: InitState,
    pub(super) now: Timestamp,
    pub(super) mask: BTreeSet<Target>,
    pub(super) room: Option<u32>,
    /// Whether each plan is compared with the reference planner.
    pub(super) compared: bool,
    /// All actions so far.
    pub(super) log: Vec<UnitAction>,
    first: Vec<InitUnit>,
    units: Vec<InitUnit>,
    live: BTreeMap<Name, Incarnation>,
    left: Vec<Edge>,
    owed: Actions,
    told: LastStatuses,
}

impl World {
    /// Creates a state whose goal is the last of these units.
    pub(super) fn new(units: &Units) -> Self {
        let goal = units.0.last().map(|unit| unit.provides[0].clone());
        let settings = Settings { goal, ..Settings::default() };
        let graph = Graph::strict(units.0.clone(), &settings).expect("they are valid");
        let mut world = Self {
            system: InitState::new(graph, &settings).expect("the goal is there"),
            now: Timestamp::from_millis(1000),
            mask: BTreeSet::new(),
            room: None,
            compared: true,
            log: Vec::new(),
            first: units.0.clone(),
            units: units.0.clone(),
            live: BTreeMap::new(),
            left: Vec::new(),
            owed: Vec::new(),
            told: LastStatuses::default(),
        };
        world.plan();
        world
    }

    pub(super) fn after(units: &Units, moves: &[Move]) -> Self {
        let mut world = Self::new(units);
        moves.iter().for_each(|it| world.make(it));
        world
    }

    pub(super) fn seen(&self, name: &Name) -> ObservedUnit {
        self.system.observation().units.remove(name).unwrap_or_default()
    }

    pub(super) fn twin(&self) -> Twin {
        Twin::of(&self.system, &self.mask, &self.left)
    }

    pub(super) fn make(&mut self, it: &Move) {
        match it {
            Move::Answer { who, well } => self.answer(*who, *well),
            Move::Gone { who } => self.let_go(*who),
            Move::Event { who, kind, late } => self.send_random_event(*who, *kind, *late),
            Move::Pass(time) => self.now = self.now.after(*time),
            Move::Due(more) => {
                let due = self.system.next_deadline().unwrap_or(self.now).max(self.now);
                self.now = due.after(Duration::from_millis(*more));
            }
            Move::Goal(goal, with) => {
                let goal = goal.map(|it| self.a_target(it));
                let with = with.map(|it| self.a_target(it)).into_iter().collect();
                self.changes_nothing_if_refused(|it, now| it.set_goal(goal, with, now).is_ok());
            }
            Move::Mask(mask) => {
                let mask: BTreeSet<Target> = mask.map(|it| self.a_target(it)).into_iter().collect();
                let next = mask.clone();
                if self.changes_nothing_if_refused(|it, now| it.set_mask(next, now).is_ok()) {
                    self.mask = mask;
                }
            }
            Move::Want(it, more) => self.want_one(&self.a_target(*it), *more),
            Move::MaskOne(it, more) => self.mask_one(&self.a_target(*it), *more),
            Move::Room(room) => self.make_room(*room),
            Move::Reset(it) => {
                let (target, now) = (self.a_target(*it), self.now);
                self.system.reset_failed(&target, now);
            }
            Move::Renew(it) => {
                let target = self.a_target(*it);
                self.system.restart(&target);
            }
            Move::TryAgain(it) => {
                let (target, now) = (self.a_target(*it), self.now);
                self.system.retry_now(&target, now);
            }
            Move::Reread(it) => {
                let target = self.a_target(*it);
                let _ = self.system.request_reload(&target);
            }
            Move::Reload(edit) => self.reload(edit),
        }
        self.plan();
    }

    pub(super) fn make_room(&mut self, room: Option<u32>) {
        self.room = room;
        self.system.set_max_starting(room.and_then(NonZeroU32::new));
    }

    fn changes_nothing_if_refused(
        &mut self,
        verb: impl FnOnce(&mut InitState, Timestamp) -> bool,
    ) -> bool {
        let before = self.system.clone();
        let taken = verb(&mut self.system, self.now);
        if !taken {
            self.is_as(before);
        }
        taken
    }

    fn a_target(&self, it: Index) -> Target {
        let targets: Vec<_> = self.units.iter().flat_map(|unit| &unit.provides).collect();
        let none = || "nothing".parse().unwrap();
        if targets.is_empty() { none() } else { (*it.get(&targets)).clone() }
    }

    fn in_phase(&self, phases: &[Phase]) -> Vec<(Name, ObservedUnit)> {
        let seen = self.system.observation().units.into_iter();
        seen.filter(|(_, seen)| phases.contains(&seen.phase)).collect()
    }

    /// Returns the units for which the supervisor has events to report.
    pub(super) fn pending(&self) -> Vec<Name> {
        let busy = self.in_phase(&[Phase::Starting, Phase::Stopping]).into_iter();
        let stuck = self.in_phase(&[Phase::Failed]).into_iter().filter(|(_, it)| it.processes);
        busy.chain(stuck).map(|(name, _)| name).collect()
    }

    fn answer(&mut self, who: Index, well: bool) {
        let starting = self.in_phase(&[Phase::Starting]);
        if let Some((name, _)) = (!starting.is_empty()).then(|| who.get(&starting)) {
            self.answer_for(name, well);
        }
    }

    /// Reports that a starting unit became active, or that it failed.
    pub(super) fn answer_for(&mut self, name: &Name, well: bool) {
        let seen = self.seen(name);
        let ends = matches!(seen.definition.unwrap().kind, ServiceType::Oneshot { .. });
        let what = match (well, ends) {
            (true, true) => EventKind::MainExited(Exit::Status(0)),
            (true, false) => EventKind::Ready,
            (false, _) => EventKind::MainExited(Exit::Status(1)),
        };
        self.send(name, seen.incarnation.unwrap(), what);
    }

    fn let_go(&mut self, who: Index) {
        let mut going = self.in_phase(&[Phase::Stopping, Phase::Failed]);
        going.retain(|(_, seen)| seen.phase == Phase::Stopping || seen.processes);
        if let Some((name, _)) = (!going.is_empty()).then(|| who.get(&going)) {
            self.all_gone(name);
        }
    }

    pub(super) fn all_gone(&mut self, name: &Name) {
        let before = self.seen(name);
        self.send(name, before.incarnation.unwrap(), EventKind::AllGone);
        if matches!(before.outcome, Some(StopOutcome::Inactive(_))) {
            let after = self.seen(name);
            assert_eq!((after.phase, after.attempts), (Phase::Inactive, before.attempts), "{name}");
        }
    }

    fn send_random_event(&mut self, who: Index, kind: EventKind, late: bool) {
        let known: Vec<_> = self.system.observation().units.into_iter().collect();
        let Some((name, seen)) = (!known.is_empty()).then(|| who.get(&known)) else { return };
        let Some(Incarnation(current)) = seen.incarnation else { return };
        let incarnation = Incarnation(current - u64::from(late));
        self.send(name, incarnation, kind);
    }

    /// Sends an event and applies it to the simulated processes.
    pub(super) fn send(&mut self, name: &Name, incarnation: Incarnation, kind: EventKind) {
        let before = self.system.observation();
        let is_needed = self.system.status(name).is_some_and(|status| status.needed);
        let event = UnitEvent { unit: name.clone(), incarnation, kind };
        let handled = self.system.on_event(&event, self.now);
        let after = self.system.observation();
        let unit = self.system.graph().unit(name).map(|it| it.restart.clone());
        is_as_the_table_says(&event, handled, (&before, &after), unit, is_needed);
        if !handled {
            return;
        }
        if kind == EventKind::AllGone {
            self.live.remove(name);
        }
        let (before, after) = (&before.units[name], &after.units[name]);
        let reason = match &after.outcome {
            Some(StopOutcome::Failed(cause)) => StopReason::Failed(*cause),
            Some(StopOutcome::Completed(_)) => StopReason::Completed,
            Some(StopOutcome::Skipped) => StopReason::Skipped,
            _ => return,
        };
        let fails_at_its_end =
            before.phase == Phase::Stopping && matches!(kind, EventKind::Failed(_));
        if before.outcome != after.outcome && !fails_at_its_end {
            let was_active = before.phase.is_active();
            self.owed.push((name.clone(), ActionKind::Stop { reason, was_active }));
        }
    }

    /// Restarts the supervisor with the observed state.
    pub(super) fn restore(&mut self) {
        let old = &self.system;
        let settings = Settings {
            mask: self.mask.clone(),
            max_starting: self.room.and_then(NonZeroU32::new),
            goal: old.goal().cloned(),
            ..Settings::default()
        };
        let graph = old.graph().clone();
        self.system = InitState::restore(graph, &settings, old.observation()).unwrap();
    }

    fn reload(&mut self, edit: &Edit) {
        let before = self.units.clone();
        self.edit(edit);
        let settings = Settings { mask: self.mask.clone(), ..Settings::default() };
        let (graph, _) = Graph::lenient(self.units.clone(), &settings);
        if self.changes_nothing_if_refused(|it, now| it.reload(graph, now).is_ok()) {
            self.left = Twin::earlier_edges(&self.system);
        } else {
            self.units = before;
        }
    }

    fn edit(&mut self, edit: &Edit) {
        let pick = |it: &Index, units: &[InitUnit]| it.index(units.len().max(1));
        match edit {
            Edit::Nothing => {}
            Edit::Restore => self.units.clone_from(&self.first),
            _ if self.units.is_empty() => {}
            Edit::Runs(it) => {
                let at = pick(it, &self.units);
                change_commands(&mut self.units[at]);
            }
            Edit::Live(it, what) => {
                let at = pick(it, &self.units);
                change_settings(&mut self.units[at], *what);
            }
            Edit::Remove(it) => {
                self.units.remove(pick(it, &self.units));
            }
            Edit::Hand(from, to) => {
                let (from, to) = (pick(from, &self.units), pick(to, &self.units));
                if let Some(target) = self.units[from].provides.pop() {
                    self.units[to].provides.push(target);
                }
            }
        }
    }

    fn each_retry_that_is_shown_comes(&self) {
        for name in self.system.units() {
            let what = self.system.status(name).map(|report| report.state);
            let (Some(DerivedState::Failed { retry: Retry::At(at), stuck: false, .. })
            | Some(DerivedState::Completed(Retry::At(at)))) = what
            else {
                continue;
            };
            assert!(
                self.system.next_deadline().is_some_and(|due| due <= at),
                "{name} waits for ever"
            );
        }
    }

    /// Plans, compares with the reference planner, and carries out the actions.
    pub(super) fn plan(&mut self) -> Vec<UnitAction> {
        let before = self.twin();
        let expected = self.compared.then(|| self.expected());
        self.owed.clear();
        let actions = self.system.next_actions(self.now);
        let after = self.system.observation();
        if let Some((said, seen)) = expected {
            let told: Actions =
                actions.iter().map(|it| (it.unit.clone(), it.kind.clone())).collect();
            assert_eq!(told, said, "another plan than by the definitions");
            for (name, seen) in seen {
                let known = after.units.get(&name).cloned().unwrap_or_default();
                assert!(known == seen, "{name}: {}, not {}", brief(&known), brief(&seen));
            }
        }
        assert_eq!(self.system.next_actions(self.now), [], "a plan is not said twice");
        assert_eq!(self.system.observation(), after, "a plan is done at once");
        self.each_retry_that_is_shown_comes();
        actions.iter().for_each(|action| self.carry_out(action));
        if self.compared {
            self.check(&actions, &before, &after);
            self.told.check_changes(&mut self.system);
        }
        self.log.extend(actions.iter().cloned());
        actions
    }

    fn expected(&self) -> (Actions, BTreeMap<Name, ObservedUnit>) {
        let naive = Naive {
            twin: self.twin(),
            last: self.system.observation().last,
            max_starting: self.room.map_or(usize::MAX, |room| room as usize),
            now: self.now,
            said: self.owed.clone(),
        };
        naive.plan()
    }

    fn carry_out(&mut self, action: &UnitAction) {
        let there = self.live.insert(action.unit.clone(), action.incarnation);
        match action.kind {
            ActionKind::Start => assert_eq!(there, None, "{} still runs", action.unit),
            _ => assert!(there.is_none_or(|it| it == action.incarnation), "{action} is late"),
        }
    }

    /// Checks the invariants after a plan.
    fn check(&self, actions: &[UnitAction], before: &Twin, after: &Observation) {
        let twin = self.twin();
        let starting = after.units.values().filter(|it| it.phase == Phase::Starting).count();
        let most = self.room.map_or(usize::MAX, |room| room as usize);
        let started = actions.iter().filter(|it| it.is_start()).count();
        assert!(started == 0 || starting <= most, "more are starting than may");
        let mut named = BTreeSet::new();
        for UnitAction { unit, kind, .. } in actions {
            assert!(named.insert(unit), "two actions for {unit}");
            assert!(twin.units.contains_key(unit), "an action for {unit}, which is not there");
            match kind {
                ActionKind::Start => {
                    assert!(twin.needed.contains(unit), "{unit} is not needed");
                    let stays = |on: &Name| twin.active(on) && !twin.must_stop(on);
                    assert!(twin.on(unit, &[EdgeKind::DependsOn]).all(stays), "{unit}");
                    // A completed milestone may restart at once, after this start.
                    let ended = |on: &Name| before.phase(on) == Phase::Completed;
                    let done = |on: &Name| stays(on) || ended(on);
                    assert!(twin.on(unit, &[EdgeKind::DependsMs]).all(done), "{unit}");
                }
                ActionKind::Stop { reason: StopReason::Failed(_), .. } => {}
                ActionKind::Stop {
                    reason: StopReason::Completed | StopReason::Skipped, ..
                } => {}
                ActionKind::Stop { .. } => {
                    let busy = |by: &Name| twin.phase(by).is_busy();
                    assert!(!twin.by(unit, &[EdgeKind::DependsOn]).any(busy), "{unit} is used");
                }
                ActionKind::Kill | ActionKind::Reload => {}
            }
        }
        let well = |name: &Name| twin.active(name) && !twin.lacks(name, &EdgeKind::ALL);
        let all_well = self.mask.is_empty() && twin.needed.iter().all(well);
        for name in twin.units.keys() {
            let of_needed = twin.needed.contains(name);
            assert!(!(all_well && of_needed && twin.degraded(name)), "{name} for no reason");
            let shown = self.system.status(name).expect("it is there");
            assert_eq!(shown.degraded, twin.degraded(name), "{name} degraded");
            assert_eq!(shown.needed, twin.needed.contains(name), "{name} needed");
        }
    }
}

/// Changes what a unit runs, by its type or its commands.
fn change_commands(unit: &mut InitUnit) {
    match &mut unit.kind {
        ServiceType::Virtual => {}
        ServiceType::Oneshot { remain } => *remain = !*remain,
        _ => unit.run.watchdog = Some(unit.run.watchdog.unwrap_or_default() + SECOND),
    }
}

/// Changes settings of a unit other than its commands.
fn change_settings(unit: &mut InitUnit, what: u8) {
    match what {
        0 => unit.description += "!",
        1 => unit.restart.delay += SECOND,
        _ => unit.timeouts.start = unit.timeouts.start.map(|it| it + SECOND),
    }
}

/// Formats the state of a unit without its definition.
fn brief(seen: &ObservedUnit) -> String {
    format!("{:?}", ObservedUnit { definition: None, ..seen.clone() })
}

const SECOND: Duration = Duration::from_secs(1);

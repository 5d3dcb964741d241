//! The plan: which actions are due, and in which order. For a preview, the planner runs ahead on a
//! copy.

use std::sync::Arc;

use super::InitState;
use super::event::{ActionKind, EventKind, UnitAction, UnitEvent};
use super::phase::{Activity, FailureCause, Phase, StopOutcome, StopReason};
use super::transitions::Units;
use crate::Timestamp;
use crate::graph::build::{Adjacency, Link};
use crate::graph::model::{EdgeKind, Exit, InitUnit, Name, ServiceType};

/// Result of a preview in which every start and every stop succeeds.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Preview {
    /// The current units, sorted by name.
    pub units: Vec<UnitPreview>,
    /// The state at the end of the preview.
    pub after: InitState,
}

/// Preview of one unit.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnitPreview {
    /// The unit.
    pub unit: Name,
    /// The action planned for it.
    pub action: PlannedAction,
    /// The definition that it currently runs, if it runs.
    pub running: Option<Arc<InitUnit>>,
}

/// Action planned for a unit, with the number of its step. Steps are numbered from 1, and a unit's
/// step comes after the steps of all units that it has to wait for. The limit `max_starting` is
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedAction {
    /// No action: the unit stays as it is.
    Unchanged,
    /// Started in the given step.
    Start(usize),
    /// Stopped in the given step, for this reason.
    Stop(usize, StopReason),
    /// Stopped in the first given step and started in the second, for this reason.
    Restart(usize, usize, StopReason),
}

/// Runs the planner ahead, as [`InitState::preview`] describes.
pub(super) fn preview(state: InitState, now: Timestamp) -> Preview {
    let names: Vec<Name> = state.units().cloned().collect();
    let mut simulation = Simulation::of(state, now);
    simulation.run();
    let unit_preview = |unit: Name| {
        let unit_progress =
            simulation.state.units.nodes.find(&unit).map(|at| &simulation.units[at as usize]);
        let (action, running) = unit_progress.map_or((PlannedAction::Unchanged, None), |it| {
            (it.planned_action(), it.running.clone())
        });
        UnitPreview { unit, action, running }
    };
    let units = names.into_iter().map(unit_preview).collect();
    Preview { units, after: simulation.state }
}

/// An init state whose units carry out every action at once.
struct Simulation {
    state: InitState,
    adjacency: Arc<Adjacency>,
    now: Timestamp,
    /// Simulated units by node number. A unit keeps its node number as long as the graph does not
    /// change.
    units: Vec<SimulatedUnit>,
}

/// Actions recorded for one unit so far.
#[derive(Clone)]
struct SimulatedUnit {
    phase: Phase,
    running: Option<Arc<InitUnit>>,
    stop: Option<(usize, StopReason)>,
    start: Option<usize>,
}

impl SimulatedUnit {
    fn planned_action(&self) -> PlannedAction {
        match (&self.stop, self.start) {
            (None, None) => PlannedAction::Unchanged,
            (None, Some(step)) => PlannedAction::Start(step),
            (Some((step, why)), None) => PlannedAction::Stop(*step, why.clone()),
            (Some((stop, why)), Some(start)) => PlannedAction::Restart(*stop, start, why.clone()),
        }
    }
}

impl Simulation {
    fn of(mut state: InitState, now: Timestamp) -> Self {
        state.units.max_starting = None;
        let units = state.units.nodes.iter().map(|node| {
            let running =
                node.observed.definition.clone().filter(|_| node.observed.phase.is_busy());
            SimulatedUnit { phase: node.observed.phase, running, stop: None, start: None }
        });
        let units = units.collect();
        drop(state.take_changed());
        Self { adjacency: Arc::clone(&state.units.nodes.adjacency), state, now, units }
    }

    /// Runs the simulation until no action is left. The number of rounds is limited, because a unit
    /// that completes and is always restarted without a delay would keep the simulation running
    /// forever. Any other graph needs fewer rounds than the limit.
    fn run(&mut self) {
        let mut is_first = true;
        for _ in 0..6 * self.units.len() + 6 {
            let actions = self.state.next_actions(self.now);
            self.record(&actions);
            let is_end =
                |it: &UnitAction| matches!(it.kind, ActionKind::Stop { .. } | ActionKind::Kill);
            let mut ends = actions.iter().any(is_end);
            // In later rounds the planner has stopped everything that has to stop in the same
            // round.
            if std::mem::take(&mut is_first) || actions.is_empty() {
                ends |= self.finish_stops();
            }
            if actions.is_empty() && !ends && !self.finish_operations() {
                break;
            }
            self.carry_out(&actions, ends);
        }
    }

    /// Finishes the stops that are in progress, and returns whether there were any. The simulation
    /// does this before any unit becomes active. Otherwise chance would decide whether a unit that
    /// waits for one of these stops is itself stopped.
    fn finish_stops(&mut self) -> bool {
        let mut ended = false;
        for at in self.state.units.nodes.all() {
            if self.state.units.nodes.node(at).observed.phase == Phase::Stopping {
                self.send(at, EventKind::AllGone);
                ended = true;
            }
        }
        ended
    }

    /// Finishes the starts and reloads that are in progress, and returns whether there were any. A
    /// starting unit that has to stop does not become active.
    fn finish_operations(&mut self) -> bool {
        let mut progressed = false;
        for at in self.state.units.nodes.all() {
            let node = self.state.units.nodes.node(at);
            let (phase, must_stop) = (node.observed.phase, node.view.must_stop);
            match phase {
                Phase::Starting if !must_stop => self.activate(at),
                Phase::Active(Activity::Reloading) => self.send(at, EventKind::Ready),
                _ => continue,
            }
            progressed = true;
        }
        progressed
    }

    /// Simulates the success of all actions. If `ends` is set, a unit stops in this round, so units
    /// that start become active only in a later round. [`finish_stops`](Self::finish_stops)
    /// explains why stops finish first.
    fn carry_out(&mut self, actions: &[UnitAction], ends: bool) {
        for action in actions {
            let Some(at) = self.state.units.nodes.find(&action.unit) else { continue };
            match action.kind {
                ActionKind::Start if ends => {}
                ActionKind::Start => self.activate(at),
                ActionKind::Stop { .. } | ActionKind::Kill => self.send(at, EventKind::AllGone),
                ActionKind::Reload => self.send(at, EventKind::Ready),
            }
        }
    }

    fn activate(&mut self, at: u32) {
        if !matches!(
            self.state.units.nodes.node(at).running_definition().kind,
            ServiceType::Oneshot { .. }
        ) {
            return self.send(at, EventKind::Ready);
        }
        self.send(at, EventKind::MainExited(Exit::Status(0)));
        if self.state.units.nodes.node(at).observed.phase.is_active() {
            self.send(at, EventKind::AllGone);
        }
    }

    fn send(&mut self, at: u32, kind: EventKind) {
        let node = self.state.units.nodes.node(at);
        let (unit, incarnation) = (node.unit.name.clone(), node.observed.incarnation);
        let event = UnitEvent { unit, incarnation: incarnation.unwrap_or_default(), kind };
        self.state.on_event(&event, self.now);
    }

    /// Records the steps that a plan takes, including starts and stops that need no action (such as
    /// those of virtual units).
    fn record(&mut self, actions: &[UnitAction]) {
        let acted_on = actions.iter().map(|action| &action.unit);
        let changed = self.state.take_changed();
        let both = acted_on.chain(&changed).filter_map(|unit| self.state.units.nodes.find(unit));
        let mut touched: Vec<u32> = both.collect();
        touched.sort_unstable_by_key(|&at| (self.adjacency.rank(at), at));
        touched.dedup();
        for &at in touched.iter().rev() {
            if let Some(why) = self.was_stopped(at) {
                let before =
                    self.last(self.adjacency.dependents(at), |it| it.stop.as_ref().map(|it| it.0));
                let unit_progress = &mut self.units[at as usize];
                unit_progress.stop.get_or_insert((before + 1, why));
            }
        }
        for &at in &touched {
            if self.was_started(at) {
                let before = self.last(self.adjacency.dependencies(at), |it| it.start);
                let unit_progress = &mut self.units[at as usize];
                let stopped = unit_progress.stop.as_ref().map_or(0, |it| it.0);
                unit_progress.start.get_or_insert(before.max(stopped) + 1);
            }
        }
        for at in touched {
            self.units[at as usize].phase = self.state.units.nodes.node(at).observed.phase;
        }
    }

    /// Returns the reason for which the last plan stopped a starting or active unit. Returns `None`
    /// if the unit was in another phase, or if the plan did not stop it.
    fn was_stopped(&self, at: u32) -> Option<StopReason> {
        let observed = &self.state.units.nodes.node(at).observed;
        let before = self.units[at as usize].phase;
        let (was_active, was_starting) = (before.is_active(), before == Phase::Starting);
        match (observed.phase, &observed.outcome) {
            (Phase::Stopping, Some(StopOutcome::Inactive(why))) if was_active || was_starting => {
                Some(why.clone())
            }
            // Units without stop commands are inactive at once, and may be starting again.
            (Phase::Inactive, _) if was_active || was_starting => {
                Some(self.state.units.nodes.stop_reason(at))
            }
            (Phase::Starting, _) if was_active => Some(self.state.units.nodes.stop_reason(at)),
            _ => None,
        }
    }

    fn was_started(&self, at: u32) -> bool {
        let began = |phase: Phase| phase.is_active() || phase == Phase::Starting;
        let (before, after) =
            (self.units[at as usize].phase, self.state.units.nodes.node(at).observed.phase);
        let restarted = before.is_active() && after == Phase::Starting;
        began(after) && (restarted || !began(before))
    }

    /// Returns the highest step recorded for the neighbours that `links` reaches along ordering
    /// edges, or zero if there is none.
    fn last(&self, links: &[Link], step: impl Fn(&SimulatedUnit) -> Option<usize>) -> usize {
        let links = links.iter().filter(|link| EdgeKind::orders(link.kind));
        links.filter_map(|link| step(&self.units[link.node as usize])).max().unwrap_or(0)
    }
}

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

//! What would follow if all went well: the planner itself, run simulation on a copy.

use std::sync::Arc;

use super::InitState;
use crate::Timestamp;
use crate::graph::adjacency::Adjacency;
use crate::graph::{
    ActionKind, Activity, EdgeKind, EventKind, Exit, InitUnit, Name, Phase, ServiceType,
    StopOutcome, StopReason, UnitAction, UnitEvent,
};

/// What would follow for the units of a system, if from now on each start and each end went well.
#[derive(Debug, Clone)]
pub struct Preview {
    /// The units that are there now, by name.
    pub units: Vec<UnitPreview>,
    /// The system as it would be then.
    pub after: InitState,
}

/// What would become of one unit.
#[derive(Debug, Clone)]
pub struct UnitPreview {
    /// Its name.
    pub unit: Name,
    /// What would be done to it.
    pub action: PlannedAction,
    /// What it runs now, from its last start; nothing if it does not run.
    pub running: Option<Arc<InitUnit>>,
}

/// What would be done to a unit. Steps are counted from 1, and each comes after those that it has
/// to wait for: how many units may be starting at once is left aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedAction {
    /// Nothing: it goes on as it is, or stays down.
    Unchanged,
    /// It is started in this step.
    Start(usize),
    /// It is stopped in this step.
    Stop(usize, StopReason),
    /// It is stopped in the first of these steps, and started in the second.
    Restart(usize, usize, StopReason),
}

impl InitState {
    /// What would follow if from now on each start and each end went well, and no time passed, so
    /// that nothing which failed is tried again. Units that are stopping already are taken to end
    /// together, though any of them may come first. It is asked of a copy that was changed as one
    /// is about to change the system itself: what is said is what the planner would do.
    #[must_use]
    pub fn preview(self, now: Timestamp) -> Preview {
        let names: Vec<Name> = self.units().cloned().collect();
        let mut simulation = Simulation::of(self, now);
        simulation.run();
        let unit_preview = |unit: Name| {
            let unit_progress =
                simulation.system.find(&unit).map(|at| &simulation.units[at as usize]);
            let (action, running) = unit_progress.map_or((PlannedAction::Unchanged, None), |it| {
                (it.planned_action(), it.running.clone())
            });
            UnitPreview { unit, action, running }
        };
        let units = names.into_iter().map(unit_preview).collect();
        Preview { units, after: simulation.system }
    }
}

/// A system whose units do at once what they are told to.
struct Simulation {
    system: InitState,
    adjacency: Arc<Adjacency>,
    now: Timestamp,
    /// By the numbers of the nodes, which stay as long as the graph does.
    units: Vec<SimulatedUnit>,
}

/// What was done to a unit so far.
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
    fn of(mut system: InitState, now: Timestamp) -> Self {
        system.max_starting = None;
        let units = system.nodes.iter().map(|node| {
            let running =
                node.observed.definition.clone().filter(|_| node.observed.phase.is_busy());
            SimulatedUnit { phase: node.observed.phase, running, stop: None, start: None }
        });
        let units = units.collect();
        drop(system.take_changed());
        Self { adjacency: Arc::clone(&system.adjacency), system, now, units }
    }

    /// Goes on until nothing is pending_actions. A unit that ends well and is always tried again without a
    /// delay would never let it end, so there are no more rounds than any other system takes.
    fn run(&mut self) {
        let mut is_first = true;
        for _ in 0..6 * self.units.len() + 6 {
            let actions = self.system.next_actions(self.now);
            self.record(&actions);
            let is_end =
                |it: &UnitAction| matches!(it.kind, ActionKind::Stop { .. } | ActionKind::Kill);
            let mut ends = actions.iter().any(is_end);
            // Later on all that stops has been told to in the same round.
            if std::mem::take(&mut is_first) || actions.is_empty() {
                ends |= self.finish_stops();
            }
            if actions.is_empty() && !ends && !self.finish_operations() {
                break;
            }
            self.carry_out(&actions, ends);
        }
    }

    /// What is stopping since before. It ends before anything comes up: otherwise it would be a
    /// matter of chance whether a unit still stops that waits for this end, or is good again.
    fn finish_stops(&mut self) -> bool {
        let mut ended = false;
        for at in self.system.all() {
            if self.system.node(at).observed.phase == Phase::Stopping {
                self.send(at, EventKind::AllGone);
                ended = true;
            }
        }
        ended
    }

    /// What else is under way. A unit that has to stop does not come up before it does.
    fn finish_operations(&mut self) -> bool {
        let mut progressed = false;
        for at in self.system.all() {
            let node = self.system.node(at);
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

    /// Has all that is told done; starts only where nothing ends, as above.
    fn carry_out(&mut self, actions: &[UnitAction], ends: bool) {
        for action in actions {
            let Some(at) = self.system.find(&action.unit) else { continue };
            match action.kind {
                ActionKind::Start if ends => {}
                ActionKind::Start => self.activate(at),
                ActionKind::Stop { .. } | ActionKind::Kill => self.send(at, EventKind::AllGone),
                ActionKind::Reload => self.send(at, EventKind::Ready),
            }
        }
    }

    fn activate(&mut self, at: u32) {
        if !matches!(self.system.running_definition(at).kind, ServiceType::Oneshot { .. }) {
            return self.send(at, EventKind::Ready);
        }
        self.send(at, EventKind::MainExited(Exit::Status(0)));
        if self.system.node(at).observed.phase.is_active() {
            self.send(at, EventKind::AllGone);
        }
    }

    fn send(&mut self, at: u32, kind: EventKind) {
        let node = self.system.node(at);
        let (unit, incarnation) = (node.unit.name.clone(), node.observed.incarnation);
        let event = UnitEvent { unit, incarnation: incarnation.unwrap_or_default(), kind };
        self.system.on_event(&event, self.now);
    }

    /// Notes what a plan has done: by its actions, and to units for which nothing has to be done.
    fn record(&mut self, actions: &[UnitAction]) {
        let acted_on = actions.iter().map(|action| &action.unit);
        let changed = self.system.take_changed();
        let both = acted_on.chain(&changed).filter_map(|unit| self.system.find(unit));
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
            self.units[at as usize].phase = self.system.node(at).observed.phase;
        }
    }

    /// Why a unit that was starting or up was ended by the last plan, if it was.
    fn was_stopped(&self, at: u32) -> Option<StopReason> {
        let observed = &self.system.node(at).observed;
        let before = self.units[at as usize].phase;
        let (was_up, was_starting) = (before.is_active(), before == Phase::Starting);
        match (observed.phase, &observed.outcome) {
            (Phase::Stopping, Some(StopOutcome::Inactive(why))) if was_up || was_starting => {
                Some(why.clone())
            }
            // Of some nothing has to be ended, and they may be starting again by now.
            (Phase::Inactive, _) if was_up || was_starting => Some(self.system.stop_reason(at)),
            (Phase::Starting, _) if was_up => Some(self.system.stop_reason(at)),
            _ => None,
        }
    }

    fn was_started(&self, at: u32) -> bool {
        let began = |phase: Phase| phase.is_active() || phase == Phase::Starting;
        let (before, after) = (self.units[at as usize].phase, self.system.node(at).observed.phase);
        let restarted = before.is_active() && after == Phase::Starting;
        began(after) && (restarted || !began(before))
    }

    /// The last of the steps that were noted of these units, as far as they keep an order.
    fn last(
        &self,
        links: &[crate::graph::adjacency::Link],
        step: impl Fn(&SimulatedUnit) -> Option<usize>,
    ) -> usize {
        let links = links.iter().filter(|link| EdgeKind::orders(link.kind));
        links.filter_map(|link| step(&self.units[link.node as usize])).max().unwrap_or(0)
    }
}

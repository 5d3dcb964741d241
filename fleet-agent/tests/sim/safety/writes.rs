//! Writes to the store: their author (I-3), their rules (I-4, I-5), one placement per unit (I-1),
//! no leftovers (I-7), the limit of units in flight (I-18), rollouts (I-27, I-29), and jobs (I-28).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::requirements::Reschedule;
use fleet_core::{Epoch, MachineId, Placement, Revision, Snapshot, Unit};
use fleet_scheduler::{
    Cluster, Drain, HoldReason, Plan, Policy, Rebalance, Step, StepAction, StepCause, check, plan,
};
use fleet_store::registry::Key;
use fleet_unitfile::UnitName;

use super::jobs::Jobs;
use super::rollouts::{Rollouts, Term};
use crate::history::{History, Moment};
use crate::spy::Author;

/// Leader, according to the store.
#[derive(Default)]
pub(super) struct Writes {
    leader: Option<Author>,
    /// Number of units in flight, according to the rebalance request.
    moving: usize,
    /// Revision of its election.
    elected: Revision,
    /// Latest placement of each unit.
    latest: BTreeMap<UnitName, Epoch>,
    /// Placements of each unit, key by key.
    places: BTreeMap<UnitName, BTreeSet<MachineId>>,
    rollouts: Rollouts,
    jobs: Jobs,
}

impl Writes {
    pub(super) fn leader(&self) -> Option<usize> {
        match self.leader? {
            Author::Daemon(machine) => Some(machine),
            Author::Person | Author::Stranger => None,
        }
    }

    /// Returns the violations since `before`.
    pub(super) fn check(&mut self, history: &History, before: Revision) -> Vec<String> {
        let mut violations = Vec::new();
        for moment in history.since(before) {
            let revision = moment.snapshot.revision;
            let found = self.authority(moment).into_iter();
            let found = found.chain(self.hindsight(moment)).chain(self.overtaken(moment));
            let found = found.chain(self.doubles(moment)).chain(orphans(&moment.snapshot));
            let found = found.chain(self.crowds(moment));
            let term = Term { leader: self.leader, elected: self.elected };
            let found = found.chain(self.rollouts.check(moment, history, term));
            let found = found.chain(self.jobs.check(moment, history, term));
            let found: Vec<String> = found.chain(decisions(moment, history)).collect();
            if moment.author == Some(Author::Stranger) {
                continue; // what is made of it matters
            }
            violations.extend(found.into_iter().map(|text| format!("revision {revision}: {text}")));
        }
        violations
    }

    /// Only the leading engine writes placements and reasons. They may be deleted with their unit.
    fn authority(&mut self, moment: &Moment) -> Vec<String> {
        let mut violations = Vec::new();
        for (key, deleted) in &moment.written {
            match key {
                Key::Leader if *deleted => self.leader = None,
                Key::Leader => {
                    (self.leader, self.elected) = (moment.author, moment.snapshot.revision);
                }
                Key::Placement(_, unit) | Key::Reason(unit) => {
                    let decides = !*deleted || exists(&moment.snapshot, unit);
                    if decides && (self.leader.is_none() || self.leader != moment.author) {
                        violations.push(format!(
                            "I-3: {:?} decides on {unit}, and {:?} leads",
                            moment.author, self.leader
                        ));
                    }
                }
                _ => {}
            }
        }
        violations
    }

    /// A leader must not decide on state older than its own election: others may have decided
    /// since.
    fn hindsight(&self, moment: &Moment) -> Vec<String> {
        let placed = moment.written.iter().filter_map(|(key, _)| match key {
            Key::Placement(_, unit) => moment.snapshot.placement(unit.as_str()),
            _ => None,
        });
        let old = placed.filter(|placement| placement.epoch.0 < self.elected.0);
        let text = |old: &Placement| {
            format!("I-5: decided at {}, by a leader elected at {}", old.epoch, self.elected)
        };
        old.map(text).collect()
    }

    /// Placements are stored by machine, and no unit may have two.
    fn doubles(&mut self, moment: &Moment) -> Vec<String> {
        let mut placed = BTreeSet::new();
        for (key, deleted) in &moment.written {
            let Key::Placement(machine, unit) = key else { continue };
            let places = self.places.entry(unit.clone()).or_default();
            if *deleted {
                places.remove(machine);
            } else {
                places.insert(machine.clone());
                placed.insert(unit);
            }
        }
        let doubled = |unit: &&UnitName| self.places[*unit].len() > 1;
        let doubled = placed.into_iter().filter(doubled);
        doubled.map(|unit| format!("I-1: {unit} is placed on two machines")).collect()
    }

    /// Only the leader and users change the rebalance request, and a leader never records more
    /// units in flight than allowed.
    fn crowds(&mut self, moment: &Moment) -> Vec<String> {
        if !moment.written.iter().any(|(key, _)| *key == Key::Rebalancing) {
            return Vec::new();
        }
        let order = moment.snapshot.rebalancing.as_deref();
        let before = std::mem::replace(&mut self.moving, order.map_or(0, |it| it.moves.len()));
        let Some(author @ Author::Daemon(_)) = moment.author else { return Vec::new() };
        let mut violations = Vec::new();
        if self.leader != Some(author) {
            violations.push(format!("I-3: {author:?} rebalances, and {:?} leads", self.leader));
        }
        // Users may lower the limit while more units are in flight.
        let most = order.map_or(0, |it| it.limits.max_in_flight as usize).max(before);
        if self.moving > most {
            violations.push(format!("I-18: {} under way instead of {most}", self.moving));
        }
        violations
    }

    /// A later placement of a unit has a higher epoch.
    fn overtaken(&mut self, moment: &Moment) -> Vec<String> {
        let mut violations = Vec::new();
        for (key, deleted) in &moment.written {
            let Key::Placement(_, unit) = key else { continue };
            let Some(placement) = moment.snapshot.placement(unit.as_str()).filter(|_| !deleted)
            else {
                continue;
            };
            let before = self.latest.insert(unit.clone(), placement.epoch);
            if before.is_some_and(|before| before >= placement.epoch) {
                violations.push(format!("I-2: {unit} is placed by an order that was overtaken"));
            }
        }
        violations
    }
}

fn exists(snapshot: &Snapshot, unit: &UnitName) -> bool {
    snapshot.unit(unit.as_str()).is_some() || snapshot.fault(unit.as_str()).is_some()
}

/// No placement and no reason outlives its unit.
fn orphans(snapshot: &Snapshot) -> Vec<String> {
    let placed = snapshot.placements().map(|(unit, _)| unit);
    let reasons = snapshot.reasons().map(|(unit, _)| unit);
    let orphans = placed.chain(reasons).filter(|unit| !exists(snapshot, unit));
    orphans.map(|unit| format!("I-7: something is left of {unit}")).collect()
}

/// Each placement follows from a valid plan at the revision on which it was based, and violates no
/// conflict that the decision could have known.
fn decisions(moment: &Moment, history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    for (key, deleted) in &moment.written {
        let Key::Placement(_, unit) = key else { continue };
        let Some(placement) = moment.snapshot.placement(unit.as_str()).filter(|_| !deleted) else {
            continue;
        };
        let decided = history.at(Revision(placement.epoch.0));
        violations.extend(against_plan(&decided, &moment.snapshot, unit, placement));
        violations.extend(met_conflicts(&decided, &moment.snapshot, unit, placement));
    }
    violations
}

fn against_plan(
    decided: &Snapshot,
    now: &Snapshot,
    unit: &UnitName,
    placement: &Placement,
) -> Vec<String> {
    let mut violations = Vec::new();
    for snapshot in [decided.clone(), with_staying(decided, now, placement.epoch)] {
        let plan = plan(&snapshot);
        let found = check(&snapshot, &plan).into_iter();
        violations.extend(found.map(|found| format!("I-4: {found}")));
        let is_idle = is_idle(&snapshot, &plan);
        let drained = if is_idle { drained(&snapshot) } else { Vec::new() };
        let is_idle = is_idle && drained.is_empty() && !waits_for_ups(&snapshot);
        let balanced = if is_idle { balanced(&snapshot) } else { Vec::new() };
        let planned = plan.steps.iter().chain(&drained).chain(&balanced).any(|step| {
            let to = match &step.action {
                StepAction::Place { machine } | StepAction::Move { to: machine, .. } => {
                    Some(machine)
                }
                StepAction::Remove { .. } => None,
            };
            step.unit == *unit && to == Some(&placement.machine)
        });
        if planned {
            return violations;
        }
    }
    let (machine, epoch) = (&placement.machine, placement.epoch);
    violations.push(format!("I-4: {unit} on {machine} follows from no plan of {epoch}"));
    violations
}

/// Returns the next steps for emptying the machines being drained.
pub(crate) fn drained(cluster: &Snapshot) -> Vec<Step> {
    let drain = Drain::from_intents(cluster, cluster.machines().map(AsRef::as_ref));
    let steps =
        drain.map(|drain| Cluster::load(Policy::default(), cluster).drain(&drain).plan.steps);
    steps.unwrap_or_default()
}

/// Whether a drain continues once more units are up.
pub(crate) fn waits_for_ups(cluster: &Snapshot) -> bool {
    let drain = Drain::from_intents(cluster, cluster.machines().map(AsRef::as_ref));
    let plan = drain.map(|drain| Cluster::load(Policy::default(), cluster).drain(&drain));
    let is_short = |held: &HoldReason| matches!(held, HoldReason::MinAvailable { .. });
    plan.is_some_and(|plan| plan.held.values().any(is_short))
}

/// Returns the next steps of the requested rebalance.
pub(crate) fn balanced(cluster: &Snapshot) -> Vec<Step> {
    let asked = Rebalance::from_order(cluster);
    let plan = asked.map(|asked| Cluster::load(Policy::default(), cluster).rebalance(&asked));
    let steps = plan.into_iter().flat_map(|plan| plan.steps);
    steps.filter(|step| step.cause == StepCause::Rebalanced).collect()
}

/// Whether the requested rebalance continues once more units are up.
pub(crate) fn waits_for_balance(cluster: &Snapshot) -> bool {
    let hope = Rebalance::from_order(cluster).and_then(|asked| asked.assuming_recovery(cluster));
    let plan = hope.map(|hope| Cluster::load(Policy::default(), cluster).rebalance(&hope));
    plan.is_some_and(|plan| plan.steps.iter().any(|step| step.cause == StepCause::Rebalanced))
}

/// Whether the plan only removes units of absent machines, which may have to wait.
fn is_idle(snapshot: &Snapshot, plan: &Plan) -> bool {
    plan.steps.iter().all(|step| match &step.action {
        StepAction::Remove { from } => snapshot.machine(from.as_str()).is_none(),
        _ => false,
    })
}

/// Returns the snapshot with each unit of an absent machine pinned there, unless this decision
/// moved it: an engine may wait for machines, and then decides in this way.
fn with_staying(decided: &Snapshot, now: &Snapshot, epoch: Epoch) -> Snapshot {
    let mut snapshot = decided.clone();
    for (unit, at) in decided.placements() {
        let moved = now.placement(unit.as_str()).is_some_and(|now| now.epoch == epoch);
        let missing = decided.machine(at.machine.as_str()).is_none();
        if let Some(unit) = decided.unit(unit.as_str()).filter(|_| missing && !moved) {
            let requirements = unit.requirements.as_ref().clone();
            let requirements = requirements.with_reschedule(Reschedule::Never);
            let requirements = Arc::new(requirements);
            snapshot.put_unit(Unit { requirements, ..unit.as_ref().clone() });
        }
    }
    snapshot
}

/// Returns the units on the machine that conflict with the new one, both as of the decision.
fn met_conflicts(
    decided: &Snapshot,
    now: &Snapshot,
    unit: &UnitName,
    placement: &Placement,
) -> Vec<String> {
    let Some(placed) = decided.unit(unit.as_str()) else {
        return vec![format!("I-4: {unit} was placed before it was there")];
    };
    let beside =
        now.placements().filter(|(other, at)| *other != unit && at.machine == placement.machine);
    let others = beside.filter_map(|(other, _)| decided.unit(other.as_str()));
    let others = others.filter(|other| other.is_wanted() && conflict(placed, other));
    others.map(|other| format!("I-5: {unit} is placed beside {}", other.name)).collect()
}

fn conflict(one: &Unit, other: &Unit) -> bool {
    let names = |one: &Unit, other: &Unit| {
        one.requirements.conflicts.iter().any(|pattern| pattern.matches(&other.name))
    };
    names(one, other) || names(other, one)
}

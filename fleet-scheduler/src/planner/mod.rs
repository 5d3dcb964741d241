//! The planner: finds the changes of placements that bring every wanted unit to a suitable machine.
//!
//! The planner follows `docs/explain/placement.md` section by section. [`keep`] finds the units
//! that stay, [`decide`] finds the machines for the others, and [`replace`] finds the moves that
//! replacements need. [`steps`] and [`reasons`] produce the plan.
//!
//! Terms:
//!
//! - *Single unit*: a wanted unit that runs on one machine. A global unit runs on each machine that
//!   its rules allow.
//! - *Peer*: a unit or pattern that a unit names in `MachineOf=`. The unit runs only where the peer
//!   is.
//! - *Tied*: connected to other units by `MachineOf=`, in either direction. Waiting units that are
//!   tied to each other are placed as a group.
//! - *Parked*: refused by every machine. A parked unit is queued again only after a change that may
//!   make a machine accept it.
//! - *Displaced group*: a unit that another one replaces, with the units on its machine that would
//!   lack a peer without the group. It moves to another machine before the replacer arrives.
//! - *Eviction group*: like a displaced group, but with the units there that its members name as
//!   peers. It leaves its machine as a whole, for a drain or a rebalancing.

mod decide;
mod drain;
mod eviction_group;
mod explain;
#[cfg(test)]
mod incremental_tests;
mod keep;
mod queue;
mod reasons;
mod rebalance;
mod replace;
mod search;
mod steps;

use fleet_core::Snapshot;

use crate::demand::Change;
use crate::drain::{Drain, DrainPlan};
use crate::index::{Cluster, undo_log};
use crate::plan::Plan;
use crate::rebalance::Rebalance;
pub use explain::{Explanation, PlacementVerdict};

impl Cluster {
    /// Decides which placements have to change. The plan equals the one that
    /// [`plan`](crate::plan()) makes from a snapshot of the same state.
    ///
    /// The call does not record the planned placements. To do so once the plan is carried out, call
    /// [`apply`](Self::apply), or record the placements as they are observed.
    pub fn plan(&mut self) -> Plan {
        decide::plan(self)
    }

    /// Makes the same steps as [`plan`](Self::plan), but gives reasons only for the units that the
    /// changes since the last plan affect. It is faster if many units wait for a machine.
    pub fn plan_affected(&mut self) -> Plan {
        decide::plan_affected(self)
    }

    /// Applies a plan: records its steps as if each of them had been observed, and sets the
    /// revision that follows that of the plan. New placements get the plan's revision as their
    /// epoch.
    ///
    /// The call costs almost nothing if this cluster has just made the plan.
    pub fn apply(&mut self, plan: &Plan) {
        undo_log::apply(self, plan);
    }

    /// Returns the plan that would follow some changes. The changes are not kept.
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// cluster.add_machine(Machine::named("m1")?);
    /// let lost = Change::RemoveMachine("m1".parse()?);
    /// assert!(cluster.what_if(&[lost]).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn what_if(&mut self, changes: &[Change]) -> Plan {
        decide::plan_after(self, changes)
    }

    /// Explains the placement of a unit in the current state, as [`explain`](crate::explain()) does
    /// for a snapshot.
    pub fn explain(&mut self, unit: &str) -> Option<Explanation> {
        explain::explain(self, unit)
    }

    /// Plans the next moves that empty the machines of a drain.
    ///
    /// The plan treats these machines as cordoned. Also cordon them in the cluster; otherwise the
    /// next plan may bring units back. The result contains the steps of an ordinary
    /// [`plan`](Self::plan), followed by the moves. Each moved unit goes to the machine that it
    /// would get if it were waiting. `Reschedule=never` does not prevent a move, because a drain is
    /// deliberate.
    ///
    /// The limits of the drain may hold units back. Repeat the call after the moved units are up,
    /// until no units are left on the machines. The planned moves are not kept;
    /// [`apply`](Self::apply) records them.
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// for id in ["m1", "m2"] {
    ///     cluster.add_machine(Machine::named(id)?);
    /// }
    /// for name in ["web@1", "web@2", "web@3"] {
    ///     cluster.add(Demand::new(name)?);
    /// }
    /// let plan = cluster.plan(); // 1 and 3 on m1, 2 on m2
    /// cluster.apply(&plan);
    ///
    /// let preview = cluster.drain(&Drain::new(["m1".parse()?]).keep_available(2));
    /// let expected = "plan for revision 1
    ///   move web@1.service from m1 to m2: the machine is drained
    ///   web@3.service stays for now: 2 instances of web@.service are up and 2 must stay up";
    /// assert_eq!(preview.to_string(), expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&mut self, drain: &Drain) -> DrainPlan {
        drain::drain(self, drain)
    }

    /// Plans the next moves that spread units more evenly.
    ///
    /// The result contains the steps of an ordinary [`plan`](Self::plan), followed by the moves for
    /// balance. These have the cause [`Rebalanced`](crate::StepCause::Rebalanced). Each move for
    /// balance follows the placement rules, lowers no score, replaces no unit, and brings the
    /// requested [`gain`](Rebalance::gain).
    ///
    /// Each of these moves makes the loads (numbers of units) of two machines more equal. If the
    /// plans are applied one after the other, a plan without such moves is therefore reached. The
    /// ranking [`BinPacking`](crate::policy::Ranking::BinPacking) wants unequal loads, so it allows
    /// no moves for balance. The planned moves are not kept; [`apply`](Self::apply) records them.
    ///
    /// ```
    /// use fleet_scheduler::prelude::*;
    ///
    /// let mut cluster = Cluster::new();
    /// cluster.add_machine(Machine::named("m1")?);
    /// for name in ["a", "b", "c", "d"] {
    ///     cluster.add(Demand::new(name)?);
    /// }
    /// let plan = cluster.plan();
    /// cluster.apply(&plan);
    ///
    /// cluster.add_machine(Machine::named("m2")?);
    /// assert!(cluster.plan().is_empty()); // Nothing moves by itself.
    /// let plan = cluster.rebalance(&Rebalance::with_budget(10));
    /// let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    /// assert_eq!(steps, [
    ///     "move a.service from m1 to m2: the other machine has fewer units",
    ///     "move b.service from m1 to m2: the other machine has fewer units",
    /// ]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rebalance(&mut self, request: &Rebalance) -> Plan {
        rebalance::rebalance(self, request)
    }
}

/// Decides which machine runs which unit.
///
/// A unit is wanted if its desired state is loaded or launched and it is not a template. The
/// decision has four stages:
///
/// 1. Removes placements of units that are no longer wanted or are global.
/// 2. Keeps a placement if its machine is present and still passes every rule. To move units for
///    other reasons, use [`Cluster::rebalance`] or [`Cluster::drain`].
/// 3. Places wanted units without a machine, in the order of their names. Units that `MachineOf=`
///    ties together go to one machine. Of the machines that pass every
///    [`Rule`](fleet_core::refusal::Rule), the one with the fewest wanted units is chosen, global
///    units included. Among equal machines, it is the one with the lowest ID. If the new unit
///    replaces units there, they move to another machine that passes every rule. If one of them
///    cannot move, the machine refuses the new unit.
/// 4. Separates units that were placed on the same machine before one of them began to replace the
///    other. The replaced unit moves if another machine accepts it.
///
/// The plan depends only on the snapshot, so equal snapshots give equal plans. If a plan was
/// [applied](crate::apply), the plan of the resulting state has no steps.
///
/// A placed unit with an unreadable record stays, because it is unknown whether the unit is wanted.
/// Other units are placed as if the unreadable unit were running.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Plan {
    Cluster::from(snapshot).plan()
}

/// Explains the placement of a unit: returns its machine, the other machines that would accept it,
/// and the refusals of all remaining machines.
///
/// All other units are assumed to stay on their machines, unless a rule no longer lets them stay. A
/// unit that is not wanted is explained as if it were wanted. Returns `None` if the unit is unknown
/// or its record cannot be read, because its requirements are then unknown.
#[must_use]
pub fn explain(snapshot: &Snapshot, unit: &str) -> Option<Explanation> {
    Cluster::from(snapshot).explain(unit)
}

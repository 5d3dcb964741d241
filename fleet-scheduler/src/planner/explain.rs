//! Explanations: the verdict of every machine on one unit.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fleet_core::{MachineId, Reason, Refusal};
use fleet_unitfile::UnitName;

use super::{decide, keep, reasons};
use crate::demand::full_name;
use crate::index::refusal_counts::RefusalSummary;
use crate::index::undo_log::{LeaveReason, PendingPlan};
use crate::index::{Cluster, undo_log};
use crate::rules::{Denial, PlacementQuery, Rank, RefusalExplainer, denial, replaces};
use crate::state::{MachineNo, PeerRef, PeerState, State, UnitKind, UnitNo};

type Verdicts = Vec<(MachineNo, PlacementVerdict)>;

/// The verdict of every machine on one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The unit.
    pub unit: UnitName,
    /// This unit and all units that `MachineOf=` ties to it, sorted by name.
    pub group: Vec<UnitName>,
    /// The verdict of every present machine, in the order of the machine IDs.
    pub machines: Vec<(MachineId, PlacementVerdict)>,
    /// The reason why the unit has no machine. It is present if every machine refuses the unit, or
    /// if the unit waits for its own machine to return (`Reschedule=never`).
    pub reason: Option<Reason>,
}

/// The verdict of one machine on one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementVerdict {
    /// The unit is on the machine and may stay. A global unit is on every machine where it fits.
    Here,
    /// The machine would take the unit.
    Eligible {
        /// Number of wanted units on the machine.
        load: u32,
    },
    /// The machine refuses the unit, or refuses another unit that must be on the same machine.
    Refused(Arc<Refusal>),
}

/// A verdict found without assigning units tentatively.
enum QuickVerdict {
    Refused(Rank, Arc<Refusal>),
    Taken,
    Unclear,
}

/// Explains the placement of a unit in the current state.
pub(super) fn explain(cluster: &mut Cluster, unit: &str) -> Option<Explanation> {
    undo_log::rewind(cluster);
    let number = cluster.state.units.find(&full_name(unit))?;
    let slot = &cluster.state.units[number];
    match slot.kind {
        UnitKind::Unknown | UnitKind::Unreadable => None,
        UnitKind::Single | UnitKind::Global => Some(explain_wanted(cluster, number)),
        UnitKind::Inactive => {
            let changes = decide::assume_wanted(cluster, number);
            let explanation = explain_wanted(cluster, number);
            undo_log::rewind(cluster);
            changes.iter().for_each(|change| cluster.change(change));
            Some(explanation)
        }
    }
}

fn explain_wanted(cluster: &mut Cluster, unit: UnitNo) -> Explanation {
    let changed_machines = keep::recheck_machines(cluster);
    let (verdicts, summary) = match cluster.state.units[unit].kind {
        UnitKind::Global => (verdicts_for_global(&cluster.state, unit), None),
        _ => verdicts_for_single(cluster, unit),
    };
    let is_refused =
        |(_, verdict): &(_, PlacementVerdict)| matches!(verdict, PlacementVerdict::Refused(_));
    let nowhere = verdicts.iter().all(is_refused);
    let unexplained = nowhere || cluster.stranded.contains(&unit);
    let explanation = Explanation {
        unit: cluster.state.units.name(unit).clone(),
        group: tied_names(&cluster.state, unit),
        reason: unexplained.then(|| reasons::reason(cluster, unit, summary.as_ref())),
        machines: verdicts
            .into_iter()
            .map(|(m, v)| (cluster.state.machines.id(m).clone(), v))
            .collect(),
    };
    cluster.pending = Some(PendingPlan { changed_machines, ..PendingPlan::default() });
    explanation
}

fn verdicts_for_global(state: &State, unit: UnitNo) -> Verdicts {
    let verdict = |machine: MachineNo| {
        if state.is_on(unit, machine) {
            return PlacementVerdict::Here;
        }
        let query = PlacementQuery::new(state, unit, machine);
        match query.denial_of_global() {
            Some(denial) => PlacementVerdict::Refused(Arc::new(query.refusal(denial))),
            None => PlacementVerdict::Eligible { load: query.occupancy.load() },
        }
    };
    state.machines.present().map(|machine| (machine, verdict(machine))).collect()
}

/// Returns the verdicts on a unit that is not global. If the unit is on no machine, also returns a
/// summary of the refusals.
fn verdicts_for_single(
    cluster: &mut Cluster,
    unit: UnitNo,
) -> (Verdicts, Option<RefusalSummary<Rank>>) {
    let savepoint = undo_log::savepoint(cluster);
    let here = cluster.state.units[unit].machine;
    if let Some(here) = here.some() {
        // Seen from another machine, the unit must not conflict with itself.
        undo_log::unassign(cluster, unit, here, LeaveReason::Follows(unit));
    }
    let group = reasons::group_of(&cluster.state, unit);
    let (verdicts, summary) = verdicts_for_group(cluster, &group, here);
    undo_log::roll_back(cluster, &savepoint);
    (verdicts, Some(summary).filter(|_| here == MachineNo::NONE))
}

fn verdicts_for_group(
    cluster: &mut Cluster,
    group: &[UnitNo],
    here: MachineNo,
) -> (Verdicts, RefusalSummary<Rank>) {
    let (mut verdicts, mut summary) = (Verdicts::new(), RefusalSummary::new());
    for (machine, quick) in quick_verdicts(&cluster.state, group) {
        let load = cluster.state.machines[machine].occupancy.load();
        let refused = match quick {
            _ if here == machine => {
                verdicts.push((machine, PlacementVerdict::Here));
                continue;
            }
            QuickVerdict::Refused(rank, refusal) => Some((rank, refusal)),
            QuickVerdict::Taken => None,
            QuickVerdict::Unclear => {
                let refused = reasons::refused(cluster, group, machine);
                refused.map(|(_, rank, refusal)| (rank, Arc::new(refusal)))
            }
        };
        let verdict = match refused {
            Some((rank, refusal)) => {
                summary.add(rank, load, machine);
                PlacementVerdict::Refused(refusal)
            }
            None => PlacementVerdict::Eligible { load },
        };
        verdicts.push((machine, verdict));
    }
    (verdicts, summary)
}

/// Returns the denial of every present machine, if it has one.
fn denials_of(
    state: &State,
    ask: impl Fn(MachineNo) -> Option<Denial>,
) -> Vec<(MachineNo, Option<Denial>)> {
    let mut denials = Vec::with_capacity(state.machines.count());
    denials.extend(state.machines.present().map(|machine| (machine, ask(machine))));
    denials
}

/// Returns a verdict for each present machine, as far as the group's first unit determines it. The
/// function assigns no unit, not even tentatively.
///
/// - `Unclear`: the first unit replaces a unit there, or the machine accepts the first unit but the
///   group has further units.
/// - `Refused`: the machine refuses the first unit, which replaces no unit there.
/// - `Taken`: the machine accepts the first unit, which replaces no unit there and is the only unit
///   of the group.
fn quick_verdicts(state: &State, group: &[UnitNo]) -> Vec<(MachineNo, QuickVerdict)> {
    let Some(first) = group.first().copied() else { return Vec::new() };
    let replaces = |machine| !replaces::replaced(state, first, machine).is_empty();
    let denials =
        denials_of(state, |machine| denial(state, first, machine).filter(|_| !replaces(machine)));
    let mut explainer = RefusalExplainer::new(state, first, &denials);
    let quick = |(machine, denial): (MachineNo, Option<Denial>)| {
        let quick = match denial {
            Some(denial) => {
                QuickVerdict::Refused(denial.rank(), explainer.explain(machine, denial))
            }
            None if group.len() == 1 && !replaces(machine) => QuickVerdict::Taken,
            None => QuickVerdict::Unclear,
        };
        (machine, quick)
    };
    denials.into_iter().map(quick).collect()
}

/// Returns the names of a unit and of all single units that `MachineOf=` ties to it, directly or
/// through other single units. The names are sorted.
fn tied_names(state: &State, unit: UnitNo) -> Vec<UnitName> {
    let mut all = BTreeSet::from([unit]);
    let mut next = vec![unit];
    while let Some(unit) = next.pop() {
        let slot = &state.units[unit];
        if slot.kind != UnitKind::Single {
            continue;
        }
        let named =
            slot.peers().iter().filter_map(|peer| match (*peer, state.peer_state(unit, *peer)) {
                (PeerRef::Named(other), _) | (_, PeerState::Waiting(other)) => Some(other),
                _ => None,
            });
        let tied = named.chain(slot.followers().iter().copied());
        let single = |other: &UnitNo| state.units[*other].kind == UnitKind::Single;
        next.extend(tied.filter(single).filter(|other| all.insert(*other)));
    }
    let mut names: Vec<UnitName> = all.iter().map(|u| state.units.name(*u).clone()).collect();
    names.sort();
    names
}

/// Formats a table with a line for each machine.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.unit)?;
        if self.group.len() > 1 {
            let others = self.group.iter().filter(|unit| **unit != self.unit);
            let others: Vec<&str> = others.map(UnitName::as_str).collect();
            write!(f, ", together with {}", others.join(", "))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, "\n  no machine: {reason}")?;
        }
        let width = self.machines.iter().map(|(id, _)| id.as_str().len()).max().unwrap_or(0);
        for (id, verdict) in &self.machines {
            write!(f, "\n  {:width$}  {verdict}", id.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Display for PlacementVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("here"),
            Self::Eligible { load } => write!(f, "eligible, load {load}"),
            Self::Refused(refusal) => write!(f, "refused by {}: {refusal}", refusal.rule_name()),
        }
    }
}

//! Section 4: checks reported reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fleet_core::pattern::Peer;
use fleet_core::reason::{NearestMachine, Tally};
use fleet_core::refusal::Rule;
use fleet_core::{Machine, MachineId, Reason, Refusal, Snapshot};
use fleet_unitfile::UnitName;

use super::assign::{GroupRefusal, RuleIndex, groups, with_group};
use super::state::{PlacementState, is_stranded, requirements, single};
use super::{RuleSet, start};
use crate::Policy;

/// The defect of a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongReason(String);

impl std::error::Error for WrongReason {}

impl fmt::Display for WrongReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks the reason of a unit without a machine, in a cluster that needs no further steps. The
/// reason need not name a nearest machine.
///
/// # Errors
///
/// Returns the first statement of the reason that is not true.
pub fn check_reason(
    cluster: &Snapshot,
    policy: &Policy,
    unit: &UnitName,
    reason: &Reason,
) -> Result<(), WrongReason> {
    let rule_set = RuleSet::default();
    let state = start(&rule_set, cluster, policy);
    let check = ReasonCheck { state: &state, unit };
    match reason {
        Reason::NotRescheduled { machine } => check.is_stranded_on(machine),
        Reason::PeerUnknown { peer } => check.names_no_unit(peer, false),
        Reason::PeerInactive { peer } => check.names_no_unit(peer, true),
        Reason::Cycle { units } => check.is_cycle(units),
        Reason::PeersApart { one, other } => check.are_apart(one, other),
        Reason::NoMachines => check.ensure(cluster.machines().len() == 0, "a machine is present"),
        Reason::NoMachineFits { machines, tallies, nearest } => {
            let alone = [unit.clone()];
            check.is_refused(&alone, *machines, tallies, nearest.as_ref())
        }
        Reason::NoMachineFitsGroup { group, machines, tallies, nearest } => {
            check.is_refused(group, *machines, tallies, nearest.as_ref())
        }
        other => Err(WrongReason(format!("the scheduler never gives this reason: {other}"))),
    }
}

/// Returns the first unit of a waiting unit's group that a machine refuses, and the rule that
/// refuses it. Returns `None` if the machine accepts the group.
#[must_use]
pub fn first_refusal(
    cluster: &Snapshot,
    policy: &Policy,
    unit: &UnitName,
    machine: &Machine,
) -> Option<(UnitName, Rule)> {
    let rule_set = RuleSet::default();
    let state = start(&rule_set, cluster, policy);
    let refused = with_group(&state, &group_of(&state, unit), machine).err()?;
    Some((refused.unit, refused.rule.0))
}

/// Returns the group of a unit; an unsatisfiable unit is alone.
fn group_of(state: &PlacementState<'_>, unit: &UnitName) -> Vec<UnitName> {
    let group = groups(state).into_iter().find(|group| group.contains(unit));
    group.unwrap_or_else(|| vec![unit.clone()])
}

/// A unit with the reason to check.
struct ReasonCheck<'a> {
    state: &'a PlacementState<'a>,
    unit: &'a UnitName,
}

impl ReasonCheck<'_> {
    fn ensure(&self, holds: bool, otherwise: &str) -> Result<(), WrongReason> {
        if holds { Ok(()) } else { Err(WrongReason(format!("{}: {otherwise}", self.unit))) }
    }

    fn is_stranded_on(&self, machine: &MachineId) -> Result<(), WrongReason> {
        let PlacementState { rule_set, cluster, .. } = *self.state;
        let unit = single(cluster, self.unit);
        let placement = cluster.placement(self.unit.as_str());
        let present = placement.is_some_and(|placement| placement.machine == *machine);
        let stranded = unit.is_some_and(|unit| is_stranded(rule_set, cluster, unit));
        self.ensure(present && stranded, "it does not wait for that machine to return")
    }

    /// Checks a reason that reports a peer as unknown or inactive. No participating unit may match
    /// the peer. If `inactive` is true, some known unit must match it; otherwise, no known unit
    /// may.
    fn names_no_unit(&self, peer: &Peer, inactive: bool) -> Result<(), WrongReason> {
        self.ensure(self.peers().contains(peer), "it does not name that peer")?;
        self.ensure(
            self.state.peer_candidates(self.unit, peer).is_empty(),
            "a unit that takes part matches the peer",
        )?;
        let mut known = self.state.cluster.units();
        let known = known.any(|unit| match peer {
            Peer::Named(name) => *name == unit.name,
            Peer::Matching(pattern) => unit.name != *self.unit && pattern.matches(&unit.name),
        });
        self.ensure(known == inactive, "the reason confuses an unknown with an inactive peer")
    }

    fn is_cycle(&self, units: &[UnitName]) -> Result<(), WrongReason> {
        let waiting = self.state.waiting();
        let next = units.iter().cycle().skip(1);
        let leads = |(one, other): (&UnitName, &UnitName)| {
            (self.state.rule_set.waiting_peers)(self.state, one, &waiting).contains(other)
        };
        self.ensure(units.first() == Some(self.unit), "the cycle starts with another unit")?;
        self.ensure(units.iter().zip(next).all(leads), "the units do not form a cycle")
    }

    fn are_apart(
        &self,
        one: &(UnitName, MachineId),
        other: &(UnitName, MachineId),
    ) -> Result<(), WrongReason> {
        let is_there = |(name, machine): &(UnitName, MachineId)| {
            let named = self.peers().iter().any(|peer| *peer == Peer::Named(name.clone()));
            named && self.state.placements.get(name) == Some(machine)
        };
        self.ensure(is_there(one) && is_there(other), "a peer is not on the reported machine")?;
        self.ensure(one.1 != other.1, "both peers are on the same machine")
    }

    fn is_refused(
        &self,
        group: &[UnitName],
        machines: u32,
        tallies: &[Tally],
        nearest: Option<&NearestMachine>,
    ) -> Result<(), WrongReason> {
        self.peers_exist()?;
        let listed: BTreeSet<&UnitName> = group.iter().collect();
        let expected = group_of(self.state, self.unit);
        let same = listed == expected.iter().collect();
        self.ensure(same, &format!("its group is {expected:?}"))?;
        let refusals = self.refusals(&expected)?;
        self.ensure(machines as usize == refusals.len(), "the number of machines is wrong")?;
        let mut counts: BTreeMap<RuleIndex, u32> = BTreeMap::new();
        refusals.values().for_each(|refused| *counts.entry(refused.rule).or_default() += 1);
        let counted =
            tallies.iter().map(|it| (self.rule_index(&it.refusal), it.machines)).collect();
        self.ensure(counts == counted, &format!("the actual refusals are {counts:?}"))?;
        for tally in tallies {
            let reported = (self.rule_index(&tally.refusal), tally.unit.as_ref());
            self.is_the_refusal(&refusals, &tally.example, reported)?;
        }
        nearest.map_or(Ok(()), |nearest| {
            let expected = nearest_of(self.state, &refusals);
            let same = Some(&nearest.machine) == expected.as_ref();
            self.ensure(same, &format!("the nearest machine is {expected:?}"))?;
            let reported = (self.rule_index(&nearest.refusal), nearest.unit.as_ref());
            self.is_the_refusal(&refusals, &nearest.machine, reported)
        })
    }

    /// Returns the refused unit and the rule for each machine.
    fn refusals(
        &self,
        group: &[UnitName],
    ) -> Result<BTreeMap<MachineId, GroupRefusal>, WrongReason> {
        let mut refusals = BTreeMap::new();
        for machine in self.state.cluster.machines() {
            match with_group(self.state, group, machine) {
                Ok(_) => self.ensure(false, &format!("{} accepts it", machine.id))?,
                Err(refused) => drop(refusals.insert(machine.id.clone(), refused)),
            }
        }
        Ok(refusals)
    }

    fn is_the_refusal(
        &self,
        refusals: &BTreeMap<MachineId, GroupRefusal>,
        machine: &MachineId,
        (rule, unit): (RuleIndex, Option<&UnitName>),
    ) -> Result<(), WrongReason> {
        let Some(refused) = refusals.get(machine) else {
            return self.ensure(false, &format!("{machine} is not present"));
        };
        let same_unit = unit.unwrap_or(self.unit) == &refused.unit;
        self.ensure(
            same_unit && rule == refused.rule,
            &format!("{machine} actually refuses by {refused:?}"),
        )
    }

    /// Problems with `MachineOf=` must be reported first.
    fn peers_exist(&self) -> Result<(), WrongReason> {
        let mut peers = self.peers().iter();
        let no_units = peers.any(|peer| self.state.peer_candidates(self.unit, peer).is_empty());
        self.ensure(
            !no_units,
            "it names a peer that matches no unit, which the reason does not say",
        )
    }

    /// Returns the rule of a refusal.
    fn rule_index(&self, refusal: &Refusal) -> RuleIndex {
        let mut own = self.state.policy.rules.iter();
        let at = match refusal {
            Refusal::Custom { rule, .. } => own.position(|it| *it.name() == **rule),
            _ => None,
        };
        (refusal.rule(), at.unwrap_or(0))
    }

    fn peers(&self) -> &[Peer] {
        &requirements(self.state.cluster, self.unit).machine_of
    }
}

/// Returns the nearest machine: the one that refuses by the latest rule. If there are several, it
/// is the least loaded of them, then the one with the lowest ID.
fn nearest_of(
    state: &PlacementState<'_>,
    refusals: &BTreeMap<MachineId, GroupRefusal>,
) -> Option<MachineId> {
    let latest = refusals.values().map(|refused| refused.rule).max()?;
    let late = state.cluster.machines().filter(|machine| refusals[&machine.id].rule == latest);
    late.min_by_key(|machine| state.units_on(machine).len()).map(|machine| machine.id.clone())
}

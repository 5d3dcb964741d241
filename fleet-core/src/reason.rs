//! Reasons for a unit without a machine, as data with a text form.

mod summary;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fleet_unitfile::UnitName;

use crate::cycle::format_cycle;
use crate::pattern::Peer;
use crate::refusal::Rule;
use crate::{MachineId, Refusal};

/// The number of machines that one rule refused, and one of these machines as an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Number of machines for which this rule is the first that fails.
    pub machines: u32,
    /// One of these machines.
    pub example: MachineId,
    /// The refused unit, if a co-located group was to be placed.
    pub unit: Option<UnitName>,
    /// The refusal on the example machine, which also determines the rule.
    pub refusal: Refusal,
}

/// The machine that comes nearest to accepting a unit. Rules are checked in a fixed order, and no
/// other machine passes more of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestMachine {
    /// The machine.
    pub machine: MachineId,
    /// The refused unit, if a co-located group was to be placed.
    pub unit: Option<UnitName>,
    /// The refusal on that machine.
    pub refusal: Refusal,
}

/// Counts how often each rule refused a unit. The unit belongs to no co-located group. The result
/// is in the order of the rules. Each custom rule is counted separately, by its name. The example
/// for a rule is the first machine that the rule refuses.
pub fn tally(refusals: impl IntoIterator<Item = (MachineId, Refusal)>) -> Vec<Tally> {
    let mut by_rule: BTreeMap<(Rule, String), Tally> = BTreeMap::new();
    for (example, refusal) in refusals {
        let key = (refusal.rule(), refusal.rule_name().to_owned());
        by_rule.entry(key).and_modify(|tally| tally.machines += 1).or_insert(Tally {
            machines: 1,
            example,
            unit: None,
            refusal,
        });
    }
    by_rule.into_values().collect()
}

/// The reason why a wanted unit has no machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No machine is present.
    NoMachines,
    /// Every machine refuses the unit.
    NoMachineFits {
        /// Number of machines that are present.
        machines: u32,
        /// The refusals, counted per rule in the order of the rules. Each machine counts for the
        /// first rule that fails on it.
        tallies: Vec<Tally>,
        /// The machine that comes nearest to accepting the unit, or `None` if the planner did not
        /// determine it.
        nearest: Option<NearestMachine>,
    },
    /// No machine accepts the unit together with its co-located group.
    NoMachineFitsGroup {
        /// The units of the group, in order.
        group: Vec<UnitName>,
        /// Number of machines that are present.
        machines: u32,
        /// The refusals, counted per rule. Each machine counts once, for the first unit of the
        /// group that it refuses.
        tallies: Vec<Tally>,
        /// The machine that comes nearest to accepting the group, or `None` if the planner did not
        /// determine it.
        nearest: Option<NearestMachine>,
    },
    /// The planner reached its limit of attempts in one plan before it could decide about the unit.
    /// The limit protects the engine from a plan that never ends.
    AttemptLimit,
    /// `MachineOf=` names a unit that is unknown, or contains a pattern that no other unit matches.
    PeerUnknown {
        /// The required unit or pattern.
        peer: Peer,
    },
    /// `MachineOf=` names a unit that is inactive, or contains a pattern that only inactive units
    /// match. An inactive unit is on no machine.
    PeerInactive {
        /// The required unit or pattern.
        peer: Peer,
    },
    /// The units that `MachineOf=` requires are on different machines.
    PeersApart {
        /// One of these units, with its machine.
        one: (UnitName, MachineId),
        /// Another one, with its machine.
        other: (UnitName, MachineId),
    },
    /// `MachineOf=` forms a dependency cycle.
    Cycle {
        /// The units of the cycle; the last one refers to the first.
        units: Vec<UnitName>,
    },
    /// The machine is absent, and `Reschedule=never` forbids another one. The unit stays placed on
    /// the absent machine.
    NotRescheduled {
        /// The absent machine.
        machine: MachineId,
    },
    /// The machine is absent, but the engine waits for it. The store was unreachable until
    /// recently, so machines that still run may have lost their presence. The unit stays placed on
    /// this machine.
    MachineAwaited {
        /// The absent machine.
        machine: MachineId,
    },
    /// The machine is absent but may still run the unit, and `OnPartition=stop` forbids running the
    /// unit twice. The unit stays placed on this machine.
    MayStillRun {
        /// The absent machine.
        machine: MachineId,
        /// Maximum time from the loss of the machine until the unit has stopped on it. `None` means
        /// that the stop of the unit has no time limit.
        limit: Option<Duration>,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMachines => f.write_str("no machine is present"),
            Self::NoMachineFits { machines, tallies, nearest } => {
                write_none_of(f, *machines)?;
                write_tallies(f, tallies)?;
                write_nearest(f, *machines, nearest.as_ref())
            }
            Self::NoMachineFitsGroup { group, machines, tallies, nearest } => {
                write_none_of(f, *machines)?;
                write!(f, " {} together", names(group, ", "))?;
                write_tallies(f, tallies)?;
                write_nearest(f, *machines, nearest.as_ref())
            }
            Self::AttemptLimit => f.write_str(
                "the planner reached its limit of attempts: it tries again after the next change; \
                 report this as a defect of fleet",
            ),
            Self::PeerUnknown { peer: peer @ Peer::Named(_) } => {
                write!(f, "MachineOf={peer} names an unknown unit: submit it, or correct the name")
            }
            Self::PeerUnknown { peer } => {
                write!(f, "MachineOf={peer} matches no other unit: submit one, or correct it")
            }
            Self::PeerInactive { peer: peer @ Peer::Named(_) } => {
                write!(f, "MachineOf={peer} names a unit that is inactive: load or start it")
            }
            Self::PeerInactive { peer } => {
                write!(f, "MachineOf={peer} matches only inactive units: load or start one")
            }
            Self::PeersApart { one, other } => {
                f.write_str("MachineOf names units that are on different machines: ")?;
                let (one_machine, other_machine) = (one.1.short(), other.1.short());
                write!(f, "{} is on {one_machine}, {} on {other_machine}: ", one.0, other.0)?;
                f.write_str("unload and start one of them again to bring them together")
            }
            Self::Cycle { units } => {
                write!(f, "MachineOf forms a dependency cycle: {}: ", format_cycle(units))?;
                f.write_str("remove one of these options")
            }
            Self::NotRescheduled { machine } => {
                write!(f, "its machine {} is not present, and Reschedule=never ", machine.short())?;
                f.write_str("forbids another machine: bring this one back, or change the unit")
            }
            Self::MachineAwaited { machine } => {
                write!(f, "its machine {} is not present, and the unit waits ", machine.short())?;
                f.write_str("for it because the store was unreachable until recently")
            }
            Self::MayStillRun { machine, limit } => write_may_still_run(f, machine, *limit),
        }
    }
}

fn write_may_still_run(
    f: &mut fmt::Formatter<'_>,
    machine: &MachineId,
    limit: Option<Duration>,
) -> fmt::Result {
    write!(f, "its machine {} is not present: with OnPartition=stop ", machine.short())?;
    let Some(limit) = limit else {
        f.write_str("no other machine runs the unit, which may still run there, since ")?;
        f.write_str("its stop has no time limit; bring the machine back, or, if the unit ")?;
        return f.write_str("cannot run there any more, destroy and submit it");
    };
    write!(f, "no other machine runs the unit for {}s, until it ", limit.as_secs())?;
    f.write_str("must have stopped there")
}

fn write_none_of(f: &mut fmt::Formatter<'_>, machines: u32) -> fmt::Result {
    match machines {
        1 => f.write_str("the only machine does not fit"),
        _ => write!(f, "none of {machines} machines fits"),
    }
}

fn names(units: &[UnitName], separator: &str) -> String {
    units.iter().map(UnitName::as_str).collect::<Vec<_>>().join(separator)
}

/// Writes the number of machines that each rule refused, with one example each.
fn write_tallies(f: &mut fmt::Formatter<'_>, tallies: &[Tally]) -> fmt::Result {
    for (i, Tally { machines, example, unit, refusal }) in tallies.iter().enumerate() {
        let separator = if i == 0 { ": " } else { "; " };
        let such_as = if *machines == 1 { "" } else { "such as " };
        write!(f, "{separator}{} refuses {machines} ", refusal.rule_name())?;
        write!(f, "({such_as}{}: {}{refusal})", example.short(), member_prefix(unit.as_ref()))?;
    }
    Ok(())
}

/// Writes the nearest machine, unless there is only one machine.
fn write_nearest(
    f: &mut fmt::Formatter<'_>,
    machines: u32,
    nearest: Option<&NearestMachine>,
) -> fmt::Result {
    let Some(NearestMachine { machine, unit, refusal }) = nearest.filter(|_| machines > 1) else {
        return Ok(());
    };
    write!(f, "; nearest is {}: {}{refusal}", machine.short(), member_prefix(unit.as_ref()))
}

/// Returns the prefix that names the refused unit of a group.
fn member_prefix(unit: Option<&UnitName>) -> String {
    unit.map_or_else(String::new, |unit| format!("{unit}: "))
}

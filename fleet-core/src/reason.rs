//! Why a unit has no machine: data first, words second.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fleet_unitfile::UnitName;

use crate::cycle::format_cycle;
use crate::{MachineId, Peer, Refusal, Rule};

/// How many machines one rule refused, with one of them as an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// How many machines this rule was the first to refuse.
    pub machines: u32,
    /// One of these machines.
    pub example: MachineId,
    /// Which unit of a group was refused there; none where the unit is alone.
    pub unit: Option<UnitName>,
    /// What the rule saw there; it also says which rule.
    pub refusal: Refusal,
}

/// The machine that comes nearest to taking a unit: its refusal is by the latest rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestMachine {
    /// That machine.
    pub machine: MachineId,
    /// Which unit of a group is refused there; none where the unit is alone.
    pub unit: Option<UnitName>,
    /// What the rule saw there.
    pub refusal: Refusal,
}

/// Counts refusals by rule, in the order of the rules, and those of embedding programs' rules by
/// name; the example is the first one of each. They are those of a unit that is alone.
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

/// Why a wanted unit has no machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No machine is present.
    NoMachines,
    /// Every machine refuses it.
    NoMachineFits {
        /// How many machines are present.
        machines: u32,
        /// The refusals, counted by the first rule that refused, in the order of the rules.
        tallies: Vec<Tally>,
        /// The machine that comes nearest to taking it, where the planner says so.
        nearest: Option<NearestMachine>,
    },
    /// No machine takes it together with the units that must be beside it.
    NoMachineFitsGroup {
        /// The units that must be placed together, in order.
        group: Vec<UnitName>,
        /// How many machines are present.
        machines: u32,
        /// The refusals, of whichever unit of the group each machine refused first.
        tallies: Vec<Tally>,
        /// The machine that comes nearest to taking them, where the planner says so.
        nearest: Option<NearestMachine>,
    },
    /// It must be beside a unit that is not known to the cluster, or one that matches a pattern,
    /// and no other unit does.
    PeerUnknown {
        /// The unit or the pattern.
        peer: Peer,
    },
    /// It must be beside a unit that is inactive, so on no machine, or one that matches a pattern,
    /// and only inactive ones do.
    PeerInactive {
        /// The unit or the pattern.
        peer: Peer,
    },
    /// The units that it must be beside are on different machines.
    PeersApart {
        /// One of these units and where it is.
        one: (UnitName, MachineId),
        /// Another and where it is.
        other: (UnitName, MachineId),
    },
    /// `MachineOf=` leads in a circle.
    Cycle {
        /// The units of the circle; the last one leads to the first.
        units: Vec<UnitName>,
    },
    /// Its machine is not present, and `Reschedule=never` keeps it from having another. It is
    /// placed there all the same.
    NotRescheduled {
        /// The machine.
        machine: MachineId,
    },
    /// Its machine is not present, and may be back in a moment, since the store was out of reach
    /// until just now. It is placed there all the same.
    MachineAwaited {
        /// The machine.
        machine: MachineId,
    },
    /// Its machine is not present and may run it still, and `OnPartition=stop` forbids that it runs
    /// twice. It is placed there all the same.
    MayStillRun {
        /// The machine.
        machine: MachineId,
        /// How long after the machine was lost the unit must have ended there; nothing if nobody
        /// can say, because nothing limits its stop.
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
                write!(f, "{} is on {}, {} on {}", one.0, one.1.short(), other.0, other.1.short())
            }
            Self::Cycle { units } => {
                write!(f, "MachineOf leads in a circle: {}", format_cycle(units))
            }
            Self::NotRescheduled { machine } => {
                write!(f, "its machine {} is not present, and Reschedule=never ", machine.short())?;
                f.write_str("keeps it from another: bring the machine back, or change the unit")
            }
            Self::MachineAwaited { machine } => {
                write!(f, "its machine {} is not present, and is waited for ", machine.short())?;
                f.write_str("because the store was out of reach until just now")
            }
            Self::MayStillRun { machine, limit: Some(limit) } => {
                write!(f, "its machine {} is not present: OnPartition=stop ", machine.short())?;
                write!(f, "keeps it from another for {}s, until it ", limit.as_secs())?;
                f.write_str("must have ended there")
            }
            Self::MayStillRun { machine, limit: None } => {
                write!(f, "its machine {} is not present, and OnPartition=stop ", machine.short())?;
                f.write_str("keeps it from another: nothing limits its stop, so nobody knows ")?;
                f.write_str("when it has ended there; bring the machine back, or, if the unit ")?;
                f.write_str("cannot run there any more, destroy and submit it")
            }
        }
    }
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

/// Says how many machines each rule refused, and what it saw on one of them.
fn write_tallies(f: &mut fmt::Formatter<'_>, tallies: &[Tally]) -> fmt::Result {
    for (i, Tally { machines, example, unit, refusal }) in tallies.iter().enumerate() {
        let separator = if i == 0 { ": " } else { "; " };
        let such_as = if *machines == 1 { "" } else { "such as " };
        write!(f, "{separator}{} refuses {machines} ", refusal.rule_name())?;
        write!(f, "({such_as}{}: {}{refusal})", example.short(), member_prefix(unit.as_ref()))?;
    }
    Ok(())
}

/// Says which machine comes nearest, unless there is no choice.
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

/// Whose refusal it is, in a group.
fn member_prefix(unit: Option<&UnitName>) -> String {
    unit.map_or_else(String::new, |unit| format!("{unit}: "))
}

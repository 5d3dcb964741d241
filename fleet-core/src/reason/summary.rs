//! Short forms of reasons, for tables: one clause of about 60 columns.

use super::{NearestMachine, Reason, Tally};
use crate::Refusal;
use crate::cycle::format_cycle;
use crate::pattern::Peer;

/// Width to which a clause is kept, if it has a shorter form.
const WIDTH: usize = 60;

impl Reason {
    /// Returns a short form for tables: one clause, without the example and the nearest machine.
    ///
    /// If several rules refuse machines, the clause names the rules that refuse most of them.
    ///
    /// ```
    /// use fleet_core::reason::tally;
    /// use fleet_core::{Reason, Refusal};
    ///
    /// let refusals = [("m1".parse()?, Refusal::Cordon {}), ("m2".parse()?, Refusal::Cordon {})];
    /// let tallies = tally(refusals);
    /// let reason = Reason::NoMachineFits { machines: 2, tallies, nearest: None };
    /// assert_eq!(reason.summary(), "all machines are cordoned");
    /// # Ok::<(), fleet_core::machine::MachineIdError>(())
    /// ```
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::NoMachines => self.to_string(),
            Self::NoMachineFits { machines, tallies, nearest }
            | Self::NoMachineFitsGroup { machines, tallies, nearest, .. } => {
                no_machine_fits(*machines, tallies, nearest.as_ref())
            }
            Self::AttemptLimit => "the planner reached its limit of attempts".to_owned(),
            Self::PeerUnknown { peer: peer @ Peer::Named(_) } => {
                format!("MachineOf={peer} is an unknown unit")
            }
            Self::PeerUnknown { peer } => format!("MachineOf={peer} matches no other unit"),
            Self::PeerInactive { peer: peer @ Peer::Named(_) } => {
                format!("MachineOf={peer} is inactive")
            }
            Self::PeerInactive { peer } => format!("MachineOf={peer} matches only inactive units"),
            Self::PeersApart { one: (one, _), other: (other, _) } => {
                format!("{one} and {other} are on different machines")
            }
            Self::Cycle { units } => {
                let general = "MachineOf forms a cycle".to_owned();
                shorter(format!("{general}: {}", format_cycle(units)), general)
            }
            Self::NotRescheduled { machine } => {
                format!("machine {} is not present, and Reschedule=never", machine.short())
            }
            Self::MachineAwaited { machine } => {
                format!("machine {} is not present, and is awaited", machine.short())
            }
            Self::MayStillRun { machine, .. } => {
                format!("machine {} is not present, but may still run it", machine.short())
            }
        }
    }
}

/// Returns `long`, or `short` if `long` is too wide.
fn shorter(long: String, short: String) -> String {
    if long.chars().count() > WIDTH { short } else { long }
}

fn no_machine_fits(machines: u32, tallies: &[Tally], nearest: Option<&NearestMachine>) -> String {
    if let Some(text) = required_machine(tallies, nearest) {
        return text;
    }
    let [only] = tallies else {
        return several_rules(machines, tallies, nearest);
    };
    let clause = match is_uniform(only, nearest) {
        true => clause(&only.refusal, machines),
        false => general_clause(&only.refusal, machines),
    };
    match &only.unit {
        Some(unit) if is_uniform(only, nearest) => format!("{unit}: {clause}"),
        Some(_) => "no machine fits the group".to_owned(),
        None => clause,
    }
}

/// Returns the clause for a unit that requires one machine: the reason why this one does not fit.
/// All other machines are of no interest. Returns `None` if the refusal of that machine is unknown.
fn required_machine(tallies: &[Tally], nearest: Option<&NearestMachine>) -> Option<String> {
    let wanted = tallies.iter().find_map(|tally| match &tally.refusal {
        Refusal::MachineId { wanted } if tally.unit.is_none() => Some(wanted),
        _ => None,
    })?;
    let examples = tallies.iter().map(|tally| (&tally.example, &tally.refusal));
    let mut known = examples.chain(nearest.map(|nearest| (&nearest.machine, &nearest.refusal)));
    match known.find(|(machine, _)| *machine == wanted) {
        Some((_, refusal)) => Some(format!("machine {} {}", wanted.short(), lacks(refusal, 1))),
        None if tallies.len() == 1 => Some(format!("machine {} is not present", wanted.short())),
        None => None,
    }
}

/// Returns the clause for several rules: each with its number of machines, or the one that refuses
/// most machines if this would be too long.
fn several_rules(machines: u32, tallies: &[Tally], nearest: Option<&NearestMachine>) -> String {
    let mut most_first: Vec<&Tally> = tallies.iter().collect();
    most_first.sort_by_key(|tally| std::cmp::Reverse(tally.machines));
    let refused = |tally: &Tally| match is_uniform(tally, nearest) {
        true => lacks(&tally.refusal, tally.machines),
        false => generally_lacks(&tally.refusal, tally.machines),
    };
    let Some(first) = most_first.first() else {
        return "no machine fits".to_owned();
    };
    let all = most_first.iter().map(|tally| format!("{} {}", tally.machines, refused(tally)));
    let all = format!("no machine fits: {}", all.collect::<Vec<_>>().join(", "));
    let first = format!("no machine fits: {} of {machines} {}", first.machines, refused(first));
    shorter(all, first)
}

/// Returns whether the refusal of the example also describes the nearest machine, if the same rule
/// refuses that one. A tally has no data about its other machines.
fn is_uniform(tally: &Tally, nearest: Option<&NearestMachine>) -> bool {
    let Some(NearestMachine { unit, refusal, .. }) = nearest else { return true };
    let needs = |refusal: &Refusal| lacks(refusal, 1);
    refusal.rule_name() != tally.refusal.rule_name()
        || (*unit == tally.unit && needs(refusal) == needs(&tally.refusal))
}

/// Returns the clause for a rule that refuses all machines.
fn clause(refusal: &Refusal, machines: u32) -> String {
    let everywhere = if machines == 1 { "" } else { " on every machine" };
    match refusal {
        Refusal::MachineMetadata { key, wanted, .. } => {
            let general = general_clause(refusal, machines);
            shorter(format!("no machine has {key}={}", wanted.join(" or ")), general)
        }
        Refusal::MachineMetadataExpr { failed, .. } => {
            let general = general_clause(refusal, machines);
            shorter(format!("no machine matches {failed}"), general)
        }
        Refusal::MachineOf { peer: Peer::Named(peer) } => format!("{peer} is on no machine"),
        Refusal::MachineOf { peer } => format!("no machine has {peer}"),
        Refusal::Conflicts { with, .. } if machines == 1 => format!("conflicts with {with}"),
        Refusal::Conflicts { pattern, by_other: false, .. } => {
            format!("conflicts with {pattern}{everywhere}")
        }
        Refusal::MaxPerMachine { limit, .. } => {
            format!("MaxPerMachine={limit} is reached{everywhere}")
        }
        Refusal::Reserve { resource, wanted, .. } => {
            format!("no machine has {} of {resource} free", resource.format(*wanted))
        }
        Refusal::Replaces { with, by_other: false } => format!("{with} cannot leave its machine"),
        Refusal::Replaces { with, by_other: true } => format!("{with} replaces it{everywhere}"),
        Refusal::Custom { rule, detail } if machines == 1 => {
            shorter(format!("{rule}: {detail}"), general_clause(refusal, machines))
        }
        Refusal::Cordon {}
        | Refusal::MachineId { .. }
        | Refusal::Conflicts { .. }
        | Refusal::Custom { .. } => general_clause(refusal, machines),
    }
}

/// Returns the clause for a rule that refuses all machines, for different causes.
fn general_clause(refusal: &Refusal, machines: u32) -> String {
    let text = match refusal {
        Refusal::Cordon {} if machines == 1 => "the only machine is cordoned",
        Refusal::Cordon {} => "all machines are cordoned",
        Refusal::MachineId { .. } => "the required machines are not present",
        Refusal::MachineMetadata { key, .. } if machines == 1 => {
            return format!("no machine has the required {key}");
        }
        Refusal::MachineMetadata { .. } => "no machine has the required metadata",
        Refusal::MachineMetadataExpr { .. } => "no machine matches MachineMetadataExpr",
        Refusal::MachineOf { .. } => "no machine has all units of MachineOf",
        Refusal::Conflicts { .. } => "conflicts with a unit on every machine",
        Refusal::MaxPerMachine { .. } => "MaxPerMachine is reached on every machine",
        Refusal::Reserve { .. } => "no machine has enough free resources",
        Refusal::Replaces { .. } => "Replaces allows no machine",
        Refusal::Custom { rule, .. } => return format!("the rule {rule} refuses all machines"),
    };
    text.to_owned()
}

/// Returns the clause for a rule that refuses some machines. Their number precedes it.
fn lacks(refusal: &Refusal, machines: u32) -> String {
    let (lack, have) = if machines == 1 { ("lacks", "has") } else { ("lack", "have") };
    match refusal {
        Refusal::MachineMetadata { key, wanted, .. } => {
            format!("{lack} {key}={}", wanted.join(" or "))
        }
        Refusal::MachineMetadataExpr { failed, .. } => {
            let do_not = if machines == 1 { "does not" } else { "do not" };
            format!("{do_not} match {failed}")
        }
        Refusal::MachineOf { peer } => format!("{lack} {peer}"),
        Refusal::Conflicts { with, .. } if machines == 1 => {
            format!("{have} {with}, a conflict")
        }
        Refusal::MaxPerMachine { limit, .. } => format!("{have} reached MaxPerMachine={limit}"),
        Refusal::Reserve { resource, wanted, .. } => {
            format!("{lack} {} of free {resource}", resource.format(*wanted))
        }
        Refusal::Replaces { with, by_other: false } => format!("cannot release {with}"),
        Refusal::Replaces { with, by_other: true } => format!("{have} {with}, a replacement"),
        Refusal::Cordon {}
        | Refusal::MachineId { .. }
        | Refusal::Conflicts { .. }
        | Refusal::Custom { .. } => generally_lacks(refusal, machines),
    }
}

/// Returns the clause for a rule that refuses some machines, for different causes.
fn generally_lacks(refusal: &Refusal, machines: u32) -> String {
    let (lack, are, have) =
        if machines == 1 { ("lacks", "is", "has") } else { ("lack", "are", "have") };
    match refusal {
        Refusal::Cordon {} => format!("{are} cordoned"),
        Refusal::MachineId { wanted } => format!("{are} not {}", wanted.short()),
        Refusal::MachineMetadata { .. } | Refusal::MachineMetadataExpr { .. } => {
            format!("{lack} the required metadata")
        }
        Refusal::MachineOf { .. } => format!("{lack} units of MachineOf"),
        Refusal::Conflicts { .. } => format!("{have} a conflicting unit"),
        Refusal::MaxPerMachine { .. } => format!("{have} reached MaxPerMachine"),
        Refusal::Reserve { .. } => format!("{lack} free resources"),
        Refusal::Replaces { .. } => format!("{are} excluded by Replaces"),
        Refusal::Custom { rule, .. } => format!("{are} refused by {rule}"),
    }
}

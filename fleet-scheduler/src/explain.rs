//! Explanations: what every machine says to one unit.

use std::collections::BTreeSet;
use std::fmt;

use fleet_core::{MachineId, Reason, Refusal, Snapshot};
use fleet_unitfile::UnitName;

use crate::board::{Board, Why};
use crate::groups;
use crate::reasons::{reason, trial};
use crate::roster::{Kind, MachineNo, Peer, Roster, UnitNo};
use crate::rules;
use crate::settle::settle;

/// What every machine says to one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The unit.
    pub unit: UnitName,
    /// The units that `MachineOf=` ties together with it, itself included, in order.
    pub group: Vec<UnitName>,
    /// Every machine that is present, in the order of their IDs, and what it says.
    pub machines: Vec<(MachineId, Verdict)>,
    /// Why the unit is nowhere, if it is nowhere and no machine would take it.
    pub reason: Option<Reason>,
}

/// What a machine says to a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The unit is there and may stay; a global unit is in the machine's share.
    Here,
    /// The machine would take it.
    Eligible {
        /// How many wanted units are there.
        load: u32,
    },
    /// The machine does not take it, or not along with all that it must be beside.
    Refused(Refusal),
}

/// Explains where a unit is, where it could be, and why not elsewhere.
///
/// All other units are taken to stay where they are, except those that a plan would take off their
/// machines. A unit that is not wanted is explained as if it were. `None` if there is no such unit.
#[must_use]
pub fn explain(snapshot: &Snapshot, unit: &UnitName) -> Option<Explanation> {
    let roster = Roster::new(snapshot, Some(unit));
    let number = roster.find(unit).filter(|n| roster.unit(*n).kind != Kind::Unreadable)?;
    let mut board = Board::new(&roster);
    settle(&mut board);
    let verdicts: Vec<(MachineNo, Verdict)> = match roster.unit(number).kind {
        Kind::Global => for_global(&board, number),
        Kind::Single | Kind::Unreadable => for_single(&mut board, number),
    };
    let is_refused = |(_, verdict): &(_, Verdict)| matches!(verdict, Verdict::Refused(_));
    let nowhere = verdicts.iter().all(is_refused);
    Some(Explanation {
        unit: unit.clone(),
        group: tied(&roster, number),
        reason: nowhere.then(|| reason(&mut board, number)),
        machines: verdicts.into_iter().map(|(m, v)| (roster.machine(m).id.clone(), v)).collect(),
    })
}

fn for_global(board: &Board<'_>, unit: UnitNo) -> Vec<(MachineNo, Verdict)> {
    let roster = board.roster();
    let verdict = |machine| {
        if board.is_on(unit, machine) {
            return Verdict::Here;
        }
        match rules::denial(board, unit, machine) {
            Some(denial) => Verdict::Refused(denial.refusal(roster, unit, machine)),
            None => Verdict::Eligible { load: board.loads().of(machine) },
        }
    };
    roster.machines().map(|machine| (machine, verdict(machine))).collect()
}

fn for_single(board: &mut Board<'_>, unit: UnitNo) -> Vec<(MachineNo, Verdict)> {
    let roster = board.roster();
    let here = board.seat_of(unit);
    let mark = board.mark();
    if let Some(machine) = here {
        // Elsewhere it would not be in its own way.
        board.unseat(unit, machine, Why::Follows(unit));
    }
    let company = groups::company(board, unit).unwrap_or_else(|| vec![unit]);
    let mut verdicts = Vec::new();
    for machine in roster.machines() {
        let verdict = match trial(board, &company, machine) {
            _ if here == Some(machine) => Verdict::Here,
            Some((denied, denial)) => Verdict::Refused(denial.refusal(roster, denied, machine)),
            None => Verdict::Eligible { load: board.loads().of(machine) },
        };
        verdicts.push((machine, verdict));
    }
    board.undo_to(mark);
    verdicts
}

/// The units that `MachineOf=` ties to one, directly or through others. A global unit ties nobody.
fn tied(roster: &Roster<'_>, unit: UnitNo) -> Vec<UnitName> {
    let mut all = BTreeSet::from([unit]);
    let mut next = vec![unit];
    while let Some(unit) = next.pop() {
        let entry = roster.unit(unit);
        if entry.kind == Kind::Global {
            continue;
        }
        let named = entry.peers.iter().filter_map(|peer| match peer {
            Peer::Known(peer) => Some(*peer),
            Peer::Inactive | Peer::Unknown => None,
        });
        let tied = named.chain(entry.followers.iter().copied());
        let tied = tied.filter(|other| roster.unit(*other).kind != Kind::Global);
        next.extend(tied.filter(|other| all.insert(*other)));
    }
    all.into_iter().map(|unit| roster.unit(unit).name.clone()).collect()
}

/// A table for people: a line for each machine.
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("here"),
            Self::Eligible { load } => write!(f, "eligible, load {load}"),
            Self::Refused(refusal) => write!(f, "refused by {}: {refusal}", refusal.rule()),
        }
    }
}

//! The roster: a snapshot indexed once, so that planning compares numbers instead of names.
//!
//! It holds the units that count (wanted ones, and placed ones whose record cannot be read) and the
//! machines that are present. Both are numbered in the order of their names and IDs, so the order
//! of the numbers is the order in which everything is decided.

mod classes;
mod patterns;

use std::collections::BTreeMap;

use fleet_core::{Epoch, Machine, MachineId, Pattern, Requirements, Snapshot, Unit};
use fleet_unitfile::UnitName;

use crate::rules::NOTHING;
use classes::{Class, ClassNo};
pub(crate) use patterns::PatternNo;

/// A unit of the roster. A lower number is an earlier name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnitNo(u32);

/// A machine of the roster. A lower number is an earlier ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MachineNo(u32);

/// What kind of occupant a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs on one machine, which the plan chooses.
    Single,
    /// Runs wherever its metadata and conflicts allow, other options being void; never placed.
    Global,
    /// Placed, but its record cannot be read. It stays where it is and demands nothing.
    Unreadable,
}

/// What `MachineOf=` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A unit of the roster.
    Known(UnitNo),
    /// A unit that is inactive, or a template.
    Inactive,
    /// Nothing that the cluster knows.
    Unknown,
}

/// Where a unit was placed when the snapshot was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    /// The machine, if it is present.
    pub(crate) machine: Option<MachineNo>,
    /// When the placement was made.
    pub(crate) epoch: Epoch,
}

/// Which machine `MachineID=` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// Any: the unit does not say.
    Any,
    /// This one alone.
    Only(MachineNo),
    /// One that is not present.
    Absent,
}

/// One unit of the roster.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a UnitName,
    pub(crate) kind: Kind,
    pub(crate) requirements: &'a Requirements,
    pub(crate) placed: Option<Placed>,
    pub(crate) pin: Pin,
    /// What `MachineOf=` names, in the order written.
    pub(crate) peers: Vec<Peer>,
    /// The units whose `MachineOf=` names this one.
    pub(crate) followers: Vec<UnitNo>,
    /// The patterns of `Conflicts=`, in the order written.
    pub(crate) conflicts: Vec<PatternNo>,
    /// The patterns of `Replaces=`, in the order written.
    pub(crate) replaces: Vec<PatternNo>,
    /// Every pattern of the roster that matches the name, in order of their numbers.
    pub(crate) matched_by: Vec<PatternNo>,
    class: Option<ClassNo>,
}

/// The snapshot, indexed.
#[derive(Debug)]
pub(crate) struct Roster<'a> {
    units: Vec<Entry<'a>>,
    machines: Vec<&'a Machine>,
    globals: Vec<UnitNo>,
    classes: Vec<Class>,
    patterns: Vec<&'a Pattern>,
}

impl<'a> Roster<'a> {
    /// Indexes a snapshot. The unit called `also` counts even if nobody wants it, for questions
    /// about what would be if somebody did.
    pub(crate) fn new(snapshot: &'a Snapshot, also: Option<&UnitName>) -> Self {
        let machines: Vec<&Machine> = snapshot.machines().map(AsRef::as_ref).collect();
        let mut units = entries(snapshot, &machines, also);
        units.sort_by_key(|unit| unit.name);
        link_peers(&mut units, snapshot);
        let classes = classes::classify(&mut units, &machines);
        let patterns = patterns::intern(&mut units);
        let all = (0..units.len()).map(UnitNo::new);
        let globals = all.filter(|unit| units[unit.at()].kind == Kind::Global).collect();
        Self { units, machines, globals, classes, patterns }
    }

    pub(crate) fn unit(&self, unit: UnitNo) -> &Entry<'a> {
        &self.units[unit.at()]
    }

    pub(crate) fn machine(&self, machine: MachineNo) -> &'a Machine {
        self.machines[machine.at()]
    }

    pub(crate) fn pattern(&self, pattern: PatternNo) -> &'a Pattern {
        self.patterns[pattern.at()]
    }

    /// The number of the unit of that name.
    pub(crate) fn find(&self, name: &UnitName) -> Option<UnitNo> {
        find(&self.units, name)
    }

    /// All units, in order.
    pub(crate) fn units(&self) -> impl Iterator<Item = UnitNo> + use<> {
        (0..self.units.len()).map(UnitNo::new)
    }

    /// The units that the plan chooses a machine for, in order.
    pub(crate) fn singles(&self) -> impl Iterator<Item = UnitNo> {
        self.units().filter(|unit| self.unit(*unit).kind == Kind::Single)
    }

    /// The global units, in order.
    pub(crate) fn globals(&self) -> &[UnitNo] {
        &self.globals
    }

    /// All machines, in order.
    pub(crate) fn machines(&self) -> impl ExactSizeIterator<Item = MachineNo> + use<> {
        (0..self.machines.len()).map(MachineNo::new)
    }

    /// Whether the machine has the metadata that the unit asks for.
    pub(crate) fn has_metadata(&self, unit: UnitNo, machine: MachineNo) -> bool {
        self.unit(unit).class.is_none_or(|class| self.classes[class.at()].takes(machine))
    }

    /// The machines that have the metadata that the unit asks for; `None` if it asks for none.
    pub(crate) fn with_metadata(&self, unit: UnitNo) -> Option<&[MachineNo]> {
        let class = self.unit(unit).class?;
        Some(self.classes[class.at()].machines())
    }
}

impl UnitNo {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a cluster has fewer than four billion units"))
    }

    /// The place in a vector that has one element for each unit.
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

impl MachineNo {
    fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a cluster has fewer than four billion machines"))
    }

    /// The place in a vector that has one element for each machine.
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// An entry for each unit that counts, not linked yet.
fn entries<'a>(
    snapshot: &'a Snapshot,
    machines: &[&Machine],
    also: Option<&UnitName>,
) -> Vec<Entry<'a>> {
    let counts = |unit: &Unit| unit.is_wanted() || Some(&unit.name) == also;
    let wanted = snapshot.units().filter(|unit| counts(unit)).map(|unit| {
        let kind = if unit.is_global() { Kind::Global } else { Kind::Single };
        let place = if unit.is_wanted() { placed(snapshot, machines, &unit.name) } else { None };
        entry(&unit.name, kind, &unit.requirements, place, machines)
    });
    let unreadable = snapshot.faults().filter_map(|(name, _)| {
        // On a machine that is gone it keeps nobody away and is beside nobody.
        let place = placed(snapshot, machines, name).filter(|placed| placed.machine.is_some())?;
        Some(entry(name, Kind::Unreadable, &NOTHING, Some(place), machines))
    });
    wanted.chain(unreadable).collect()
}

fn entry<'a>(
    name: &'a UnitName,
    kind: Kind,
    requirements: &'a Requirements,
    placed: Option<Placed>,
    machines: &[&Machine],
) -> Entry<'a> {
    let pin = match &requirements.machine_id {
        Some(id) if kind == Kind::Single => {
            find_machine(machines, id).map_or(Pin::Absent, Pin::Only)
        }
        _ => Pin::Any,
    };
    Entry {
        name,
        kind,
        requirements,
        placed: placed.filter(|_| kind != Kind::Global),
        pin,
        peers: Vec::new(),
        followers: Vec::new(),
        conflicts: Vec::new(),
        replaces: Vec::new(),
        matched_by: Vec::new(),
        class: None,
    }
}

fn placed(snapshot: &Snapshot, machines: &[&Machine], unit: &UnitName) -> Option<Placed> {
    let placement = snapshot.placement(unit.as_str())?;
    let machine = find_machine(machines, &placement.machine);
    Some(Placed { machine, epoch: placement.epoch })
}

fn find_machine(machines: &[&Machine], id: &MachineId) -> Option<MachineNo> {
    machines.binary_search_by_key(&id, |machine| &machine.id).ok().map(MachineNo::new)
}

fn find(units: &[Entry<'_>], name: &UnitName) -> Option<UnitNo> {
    units.binary_search_by_key(&name, |unit| unit.name).ok().map(UnitNo::new)
}

/// Finds out what the `MachineOf=` of each unit names.
fn link_peers(units: &mut [Entry<'_>], snapshot: &Snapshot) {
    let mut followers: BTreeMap<UnitNo, Vec<UnitNo>> = BTreeMap::new();
    for index in 0..units.len() {
        if units[index].kind == Kind::Global {
            continue;
        }
        let named = units[index].requirements.machine_of.iter();
        let peers: Vec<Peer> = named.map(|named| peer(units, snapshot, named)).collect();
        for peer in &peers {
            if let Peer::Known(target) = peer {
                followers.entry(*target).or_default().push(UnitNo::new(index));
            }
        }
        units[index].peers = peers;
    }
    for (target, followers) in followers {
        units[target.at()].followers = followers;
    }
}

fn peer(units: &[Entry<'_>], snapshot: &Snapshot, named: &fleet_core::Peer) -> Peer {
    let Some(name) = named.name() else {
        return Peer::Unknown;
    };
    match find(units, name) {
        Some(unit) => Peer::Known(unit),
        None if snapshot.unit(name.as_str()).is_some() => Peer::Inactive,
        None => Peer::Unknown,
    }
}

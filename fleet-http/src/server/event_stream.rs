//! Pure: what changed between two snapshots as lines of a stream of events.

use std::collections::BTreeSet;
use std::ops::Range;

use axum::body::Bytes;
use fleet_core::{MachineId, Revision, Snapshot};
use fleet_store::{Report, Tidings};
use fleet_unitfile::UnitName;

use crate::wire::{self, Event, Machine, Unit, UnitState};

/// How many events a batch may have. Who would get more at once is told to look at everything.
const MOST_EVENTS: usize = 4096;

/// What changed up to a revision.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) revision: Revision,
    /// The lines of all events, and of the place in the stream that they lead to.
    lines: Bytes,
    /// Where in the lines the place is.
    place: Range<usize>,
    events: Vec<Piece>,
    /// Whether it says that everything has to be looked at.
    is_resync: bool,
}

/// One event of a batch.
#[derive(Debug)]
struct Piece {
    unit: Option<UnitName>,
    /// The machine that it is about, and one that it was about before.
    machines: [Option<MachineId>; 2],
    /// Whether it may be about another machine as well, which nobody knows any more.
    may_have_left: bool,
    lines: Range<usize>,
}

/// Which events somebody wants: all that match what is given.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    pub(super) unit: Option<UnitName>,
    pub(super) machine: Option<MachineId>,
    pub(super) template: Option<UnitName>,
}

impl Filter {
    fn wants(&self, piece: &Piece) -> bool {
        let template = || piece.unit.as_ref().and_then(UnitName::template);
        self.unit.as_ref().is_none_or(|unit| piece.unit.as_ref() == Some(unit))
            && self.template.as_ref().is_none_or(|wanted| template().as_ref() == Some(wanted))
            && self.machine.as_ref().is_none_or(|machine| {
                piece.may_have_left || piece.machines.iter().flatten().any(|id| id == machine)
            })
    }

    fn wants_all(&self) -> bool {
        self.unit.is_none() && self.machine.is_none() && self.template.is_none()
    }
}

impl Batch {
    /// A batch that says that everything has to be looked at.
    pub(super) fn resync(revision: Revision, lineage: Option<&str>) -> Self {
        let scribe = Scribe { lines: Event::Resync.lines(), events: Vec::new() };
        Self { is_resync: true, ..scribe.finish(revision, lineage) }
    }

    pub(super) fn is_worth_telling(&self) -> bool {
        self.is_resync || !self.events.is_empty()
    }

    /// The lines of what somebody wants; nothing if none of it is wanted.
    pub(super) fn lines_for(&self, filter: &Filter) -> Option<Bytes> {
        if self.is_resync || filter.wants_all() {
            return Some(self.lines.clone());
        }
        let wanted = self.events.iter().filter(|piece| filter.wants(piece));
        let mut lines = Vec::new();
        wanted.for_each(|piece| lines.extend_from_slice(&self.lines[piece.lines.clone()]));
        if lines.is_empty() {
            return None;
        }
        lines.extend_from_slice(&self.lines[self.place.clone()]);
        Some(lines.into())
    }
}

/// The lines that say how far a stream has come, and are no event.
///
/// They come after all that a revision changed, so who begins again from there misses nothing.
pub(super) fn place(revision: Revision, lineage: Option<&str>) -> String {
    match lineage {
        Some(lineage) => format!("id: {revision}-{lineage}\n\n"),
        None => format!("id: {revision}\n\n"),
    }
}

/// What changed since the snapshot `before`, which may be no longer there.
pub(super) fn batch(tidings: &Tidings, before: Option<&Snapshot>, lineage: Option<&str>) -> Batch {
    let now = &tidings.news.snapshot;
    let (Some(difference), Some(reports)) = (&tidings.news.difference, &tidings.reports) else {
        return Batch::resync(now.revision, lineage);
    };
    let mut units: BTreeSet<&UnitName> =
        difference.units.iter().chain(&difference.placements).collect();
    units.extend(reports.iter().filter_map(|report| shown_by(now, report)));
    let states = reports.iter().filter(|report| matches!(report, Report::State(..)));
    if units.len() + difference.machines.len() + states.count() > MOST_EVENTS {
        return Batch::resync(now.revision, lineage);
    }
    let mut scribe = Scribe::default();
    units.into_iter().for_each(|name| scribe.unit(name, now, before));
    for report in reports {
        if let Report::State(unit, machine) = report {
            scribe.state(unit, machine, now);
        }
    }
    difference.machines.iter().for_each(|id| scribe.machine(id, now));
    if difference.rebalancing {
        scribe.rebalancing(now);
    }
    scribe.finish(now.revision, lineage)
}

/// The unit that is shown differently after a report. What a global unit has come to follows from
/// all machines: looking at it each time that one of them says something would cost their square.
fn shown_by<'a>(now: &Snapshot, report: &'a Report) -> Option<&'a UnitName> {
    let (Report::State(unit, _) | Report::Reason(unit)) = report;
    now.unit(unit.as_str()).is_some_and(|unit| !unit.is_global()).then_some(unit)
}

/// Writes a batch.
#[derive(Default)]
struct Scribe {
    lines: String,
    events: Vec<Piece>,
}

impl Scribe {
    fn unit(&mut self, name: &UnitName, now: &Snapshot, before: Option<&Snapshot>) {
        let event = match (now.unit(name.as_str()), now.fault(name.as_str())) {
            (Some(unit), _) => Event::Unit(wire::unit_summary(now, unit).into()),
            (None, Some(fault)) => Event::Unit(wire::broken_unit(name, fault).into()),
            (None, None) => {
                Event::UnitGone(Unit { name: name.to_string(), ..Unit::default() }.into())
            }
        };
        let machine = |snapshot: &Snapshot| {
            snapshot.placement(name.as_str()).map(|placement| placement.machine.clone())
        };
        self.write(&event, Some(name), [machine(now), before.and_then(machine)]);
        if let Some(piece) = self.events.last_mut() {
            piece.may_have_left = before.is_none();
        }
    }

    fn state(&mut self, unit: &UnitName, machine: &MachineId, now: &Snapshot) {
        let event = match now.state(unit.as_str(), machine.as_str()) {
            Some(state) => Event::State(wire::state(state).into()),
            None => {
                let (name, machine_id) = (unit.to_string(), machine.to_string());
                Event::StateGone(UnitState { name, machine_id, ..UnitState::default() }.into())
            }
        };
        self.write(&event, Some(unit), [Some(machine.clone()), None]);
    }

    fn machine(&mut self, id: &MachineId, now: &Snapshot) {
        let event = match now.machine(id.as_str()) {
            Some(machine) => Event::Machine(wire::machine(machine).into()),
            None => Event::MachineGone(Machine { id: id.to_string(), ..Machine::default() }.into()),
        };
        self.write(&event, None, [Some(id.clone()), None]);
    }

    /// The order to rebalance is about no unit and no machine alone.
    fn rebalancing(&mut self, now: &Snapshot) {
        let order = now.rebalancing.as_deref().map(wire::rebalance_order);
        let event = order.map_or(Event::RebalanceGone, |order| Event::Rebalance(order.into()));
        self.write(&event, None, [None, None]);
    }

    fn write(&mut self, event: &Event, unit: Option<&UnitName>, machines: [Option<MachineId>; 2]) {
        let start = self.lines.len();
        self.lines.push_str(&event.lines());
        let (unit, lines) = (unit.cloned(), start..self.lines.len());
        self.events.push(Piece { unit, machines, may_have_left: false, lines });
    }

    fn finish(mut self, revision: Revision, lineage: Option<&str>) -> Batch {
        let start = self.lines.len();
        self.lines.push_str(&place(revision, lineage));
        let place = start..self.lines.len();
        let Self { lines, events } = self;
        Batch { revision, lines: lines.into(), place, events, is_resync: false }
    }
}

//! Encodes changes between two snapshots as server-sent events. Pure.

use std::collections::BTreeSet;
use std::ops::Range;

use axum::body::Bytes;
use fleet_core::{MachineId, Revision, Snapshot};
use fleet_store::mirror::{FullDelta, ResultChange};
use fleet_unitfile::UnitName;

use crate::wire::{self, ClusterEvent, MachineEntity, UnitEntity, UnitStateEntity};

/// Maximum number of events of a batch. A larger batch becomes a resync.
const MAX_EVENTS: usize = 4096;

/// Events of all changes up to a revision.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) revision: Revision,
    /// Encoded events, followed by the ID of the position after them.
    lines: Bytes,
    /// Range of that ID in `lines`.
    id_range: Range<usize>,
    events: Vec<EncodedEvent>,
    /// Whether the batch is a resync.
    is_resync: bool,
}

/// An event of a batch.
#[derive(Debug)]
struct EncodedEvent {
    unit: Option<UnitName>,
    /// Machines whose filter the event passes: the current machine, and the machine that the unit
    /// has left.
    machines: [Option<MachineId>; 2],
    /// Whether the unit may have left a machine that is not known. If so, the event passes every
    /// machine filter.
    may_have_left: bool,
    lines: Range<usize>,
}

/// Filter for events. An event must match all fields that are set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) unit: Option<UnitName>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) template: Option<UnitName>,
}

impl Filter {
    fn matches(&self, event: &EncodedEvent) -> bool {
        let template = || event.unit.as_ref().and_then(UnitName::template);
        self.unit.as_ref().is_none_or(|unit| event.unit.as_ref() == Some(unit))
            && self.template.as_ref().is_none_or(|wanted| template().as_ref() == Some(wanted))
            && self.machine.as_ref().is_none_or(|machine| {
                event.may_have_left || event.machines.iter().flatten().any(|id| id == machine)
            })
    }

    fn matches_all(&self) -> bool {
        self.unit.is_none() && self.machine.is_none() && self.template.is_none()
    }
}

impl Batch {
    /// Creates a resync batch.
    pub(crate) fn resync(revision: Revision, lineage: Option<&str>) -> Self {
        let encoder = EventEncoder { lines: ClusterEvent::Resync.lines(), events: Vec::new() };
        Self { is_resync: true, ..encoder.finish(revision, lineage) }
    }

    pub(crate) fn should_send(&self) -> bool {
        self.is_resync || !self.events.is_empty()
    }

    /// Returns the lines of the events that match the filter, followed by the ID of their position.
    /// Returns `None` if no event matches. A resync passes every filter.
    pub(crate) fn lines_for(&self, filter: &Filter) -> Option<Bytes> {
        if self.is_resync || filter.matches_all() {
            return Some(self.lines.clone());
        }
        let wanted = self.events.iter().filter(|event| filter.matches(event));
        let mut lines = Vec::new();
        wanted.for_each(|event| lines.extend_from_slice(&self.lines[event.lines.clone()]));
        if lines.is_empty() {
            return None;
        }
        lines.extend_from_slice(&self.lines[self.id_range.clone()]);
        Some(lines.into())
    }
}

/// Encodes the ID of a stream's position, without an event.
///
/// The position comes after all changes of its revision, so a client that resumes there misses
/// nothing.
pub(crate) fn id_lines(revision: Revision, lineage: Option<&str>) -> String {
    match lineage {
        Some(lineage) => format!("id: {revision}-{lineage}\n\n"),
        None => format!("id: {revision}\n\n"),
    }
}

/// Encodes the changes of `delta` as a batch. If the changes are unknown or too many, returns a
/// resync. `before` is the snapshot before the changes, if known, and shows the machines that units
/// have left.
pub(crate) fn batch(delta: &FullDelta, before: Option<&Snapshot>, lineage: Option<&str>) -> Batch {
    let now = &delta.inputs.snapshot;
    let (Some(changes), Some(results)) = (&delta.inputs.changes, &delta.results) else {
        return Batch::resync(now.revision, lineage);
    };
    let mut units: BTreeSet<&UnitName> = changes.units.iter().chain(&changes.placements).collect();
    units.extend(results.iter().filter_map(|report| changed_unit(now, report)));
    let states = results.iter().filter(|report| matches!(report, ResultChange::State(..)));
    if units.len() + changes.machines.len() + states.count() > MAX_EVENTS {
        return Batch::resync(now.revision, lineage);
    }
    let mut encoder = EventEncoder::default();
    units.into_iter().for_each(|name| encoder.unit(name, now, before));
    for report in results {
        if let ResultChange::State(unit, machine) = report {
            encoder.state(unit, machine, now);
        }
    }
    changes.machines.iter().for_each(|id| encoder.machine(id, now));
    if changes.rebalancing {
        encoder.rebalancing(now);
    }
    encoder.finish(now.revision, lineage)
}

/// Returns the unit for which an event must be sent because a machine's report about the unit, or
/// its reason, has changed. Returns `None` if the unit no longer exists.
///
/// Also returns `None` for a global unit. Its current state depends on the reports of all its
/// machines, so sending an update for each report would take quadratic time.
fn changed_unit<'a>(now: &Snapshot, report: &'a ResultChange) -> Option<&'a UnitName> {
    let (ResultChange::State(unit, _) | ResultChange::Reason(unit)) = report;
    now.unit(unit.as_str()).is_some_and(|unit| !unit.is_global()).then_some(unit)
}

/// Encodes a batch.
#[derive(Default)]
struct EventEncoder {
    lines: String,
    events: Vec<EncodedEvent>,
}

impl EventEncoder {
    fn unit(&mut self, name: &UnitName, now: &Snapshot, before: Option<&Snapshot>) {
        let event = match (now.unit(name.as_str()), now.fault(name.as_str())) {
            (Some(unit), _) => ClusterEvent::Unit(wire::unit_summary(now, unit).into()),
            (None, Some(fault)) => ClusterEvent::Unit(wire::faulty_unit(name, fault).into()),
            (None, None) => ClusterEvent::UnitGone(
                UnitEntity { name: name.to_string(), ..UnitEntity::default() }.into(),
            ),
        };
        let machine = |snapshot: &Snapshot| {
            snapshot.placement(name.as_str()).map(|placement| placement.machine.clone())
        };
        self.write(&event, Some(name), [machine(now), before.and_then(machine)]);
        if let Some(event) = self.events.last_mut() {
            event.may_have_left = before.is_none();
        }
    }

    fn state(&mut self, unit: &UnitName, machine: &MachineId, now: &Snapshot) {
        let event = match now.state(unit.as_str(), machine.as_str()) {
            Some(state) => ClusterEvent::State(wire::state(state).into()),
            None => {
                let (name, machine_id) = (unit.to_string(), machine.to_string());
                ClusterEvent::StateGone(
                    UnitStateEntity { name, machine_id, ..UnitStateEntity::default() }.into(),
                )
            }
        };
        self.write(&event, Some(unit), [Some(machine.clone()), None]);
    }

    fn machine(&mut self, id: &MachineId, now: &Snapshot) {
        let event = match now.machine(id.as_str()) {
            Some(machine) => ClusterEvent::Machine(wire::machine(machine).into()),
            None => ClusterEvent::MachineGone(
                MachineEntity { id: id.to_string(), ..MachineEntity::default() }.into(),
            ),
        };
        self.write(&event, None, [Some(id.clone()), None]);
    }

    /// Encodes the rebalancing, which belongs to no single unit or machine.
    fn rebalancing(&mut self, now: &Snapshot) {
        let order = now.rebalancing.as_deref().map(wire::rebalance_order);
        let event = order
            .map_or(ClusterEvent::RebalanceGone, |order| ClusterEvent::Rebalance(order.into()));
        self.write(&event, None, [None, None]);
    }

    fn write(
        &mut self,
        event: &ClusterEvent,
        unit: Option<&UnitName>,
        machines: [Option<MachineId>; 2],
    ) {
        let start = self.lines.len();
        self.lines.push_str(&event.lines());
        let (unit, lines) = (unit.cloned(), start..self.lines.len());
        self.events.push(EncodedEvent { unit, machines, may_have_left: false, lines });
    }

    fn finish(mut self, revision: Revision, lineage: Option<&str>) -> Batch {
        let start = self.lines.len();
        self.lines.push_str(&id_lines(revision, lineage));
        let id_range = start..self.lines.len();
        let Self { lines, events } = self;
        Batch { revision, lines: lines.into(), id_range, events, is_resync: false }
    }
}

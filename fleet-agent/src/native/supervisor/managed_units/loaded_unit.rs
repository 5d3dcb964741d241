//! A loaded unit: its file, its requested state, and why it is not in the graph.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::graph::systemd::{CompiledUnit, Relation, Timer};
use fleet_core::graph::{Incarnation, InitUnit, Name};
use fleet_core::{Epoch, Generation, KnownUnit, TargetState};
use fleet_unitfile::{UnitHash, UnitName};

use crate::native::run::adopt::stop_only_definition;
use crate::native::state::unit_directory::RequestedState;

/// All loaded units except timers, by name in the graph.
pub(super) type LoadedUnits = BTreeMap<Name, LoadedUnit>;

/// A loaded unit.
pub(in crate::native) struct LoadedUnit {
    pub(super) unit: UnitName,
    pub(super) hash: UnitHash,
    pub(super) requested: RequestedState,
    pub(super) definition: Definition,
    /// Sequence number of the unit's load.
    pub(super) load_number: u64,
    /// Reason why the unit is not in the graph.
    pub(super) refused: Option<String>,
    /// Whether the unit is being unloaded.
    pub(super) unloading: bool,
    /// Set from a requested start or restart until its result is known, unless the unit was up. An
    /// earlier run that ended is not shown meanwhile, because it does not answer the request.
    pub(super) awaited: Option<AwaitedRun>,
}

/// A requested start whose result is not known yet.
pub(super) struct AwaitedRun {
    /// The run that has to end first.
    pub(super) before: Option<Incarnation>,
}

/// Definition of a loaded unit.
pub(in super::super) enum Definition {
    /// The compiled unit file.
    Valid(Box<CompiledUnit>),
    /// The unit file can no longer be run, for the given reason. A run that was started from an
    /// earlier definition continues and can be stopped.
    Invalid(String),
}

impl LoadedUnit {
    /// Creates the entry of a unit that is being loaded.
    pub(in super::super) fn new(
        unit: UnitName,
        hash: UnitHash,
        requested: RequestedState,
        definition: Definition,
    ) -> Self {
        let (load_number, refused, unloading, awaited) = (0, None, false, None);
        Self { unit, hash, requested, definition, load_number, refused, unloading, awaited }
    }

    /// Returns whether the unit should run even if no other unit needs it, because fleet has
    /// launched it or a timer has started it.
    pub(super) fn should_run(&self) -> bool {
        self.requested.should_run() && !self.unloading
    }

    pub(super) fn is_invalid(&self) -> bool {
        matches!(self.definition, Definition::Invalid(_))
    }

    /// Returns the definition of the unit, based on its own unit file alone.
    pub(super) fn definition(&self) -> Arc<InitUnit> {
        match &self.definition {
            Definition::Valid(compiled) => Arc::clone(&compiled.unit),
            Definition::Invalid(_) => Arc::new(stop_only_definition(name_of(&self.unit))),
        }
    }
}

impl Definition {
    /// Returns the timer and its relations, if the unit is a timer.
    pub(super) fn timer(&self) -> Option<(&Timer, &[Relation])> {
        match self {
            Self::Valid(compiled) => Some((compiled.timer.as_ref()?, &compiled.relations)),
            Self::Invalid(_) => None,
        }
    }
}

/// Returns what fleet knows of a loaded unit.
pub(in super::super) fn known(hash: UnitHash, requested: RequestedState) -> KnownUnit {
    let launched = requested.launched;
    KnownUnit {
        hash,
        requested: if launched { TargetState::Launched } else { TargetState::Loaded },
        epoch: Epoch(requested.epoch),
        generation: Generation(requested.generation),
    }
}

/// Returns the name of a unit in the graph.
pub(in super::super) fn name_of(unit: &UnitName) -> Name {
    Name::new(unit.as_str()).expect("each name of a unit of systemd is one of the graph")
}

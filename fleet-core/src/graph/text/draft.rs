//! A stanza under construction: the values of the fields read so far.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_unitfile::Span;

use super::HostResource;
use super::types::TypeWord;
use crate::graph::{EdgeKind, InitUnit, LinePattern, Name, Run, Target, Timeouts};

/// Contents of the stanza that is being read.
#[derive(Debug)]
pub(super) struct Draft {
    /// The unit. It is virtual and without edges until all fields are read.
    pub(super) unit: InitUnit,
    /// Type of the unit.
    pub(super) type_word: Option<TypeWord>,
    /// Dependencies as written.
    pub(super) edges: Vec<(EdgeKind, Target, Span)>,
    /// Positions of the provided targets.
    pub(super) provides: Vec<Span>,
    /// Whether part of `provides` could not be read.
    pub(super) provides_incomplete: bool,
    /// Time after which the process counts as ready.
    pub(super) ready_wait: Option<Duration>,
    /// Pattern of the readiness line.
    pub(super) ready_grep: Option<LinePattern>,
    /// Path of the PID file.
    pub(super) pidfile: Option<String>,
    /// Whether a oneshot stays active after its commands.
    pub(super) remain: bool,
    /// Growth factor of the restart delay.
    pub(super) factor: Option<u32>,
    /// Number of steps in which the restart delay grows.
    pub(super) steps: Option<u32>,
    /// Variables used in commands.
    pub(super) variables: Vec<(String, Span)>,
    /// Programs, accounts and paths that the unit needs on its machine.
    pub(super) host_resources: Vec<(HostResource, Span)>,
    /// Positions of all given keys, whether their values could be read or not.
    pub(super) given: BTreeMap<&'static str, Vec<KeyPosition>>,
    /// Keys that unknown keys probably mean. They are not reported as missing.
    pub(super) meant: BTreeSet<&'static str>,
}

/// Position of a given key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyPosition {
    /// Line, counted from 1.
    pub(super) line: usize,
    /// Position of the key.
    pub(super) key: Span,
    /// Position of the key's value.
    pub(super) value: Span,
}

impl Draft {
    /// Creates the draft of a unit without fields.
    pub(super) fn new(name: Name, timeouts: Timeouts) -> Self {
        Self {
            unit: InitUnit { timeouts, ..InitUnit::new_virtual(name, []) },
            type_word: None,
            edges: Vec::new(),
            provides: Vec::new(),
            provides_incomplete: false,
            ready_wait: None,
            ready_grep: None,
            pidfile: None,
            remain: true,
            factor: None,
            steps: None,
            variables: Vec::new(),
            host_resources: Vec::new(),
            given: BTreeMap::new(),
            meant: BTreeSet::new(),
        }
    }

    /// Returns the commands of the unit.
    pub(super) fn run(&mut self) -> &mut Run {
        &mut self.unit.run
    }
}

/// Returns whether a command may use the variable: it is `MAINPID`, the stanza sets it, or an
/// environment file of the stanza may set it.
pub(super) fn sets_variable(run: &Run, name: &str) -> bool {
    let around = &run.exec_environment;
    name == "MAINPID"
        || !around.environment_files.is_empty()
        || around.pass_environment.iter().any(|known| known == name)
        || around.environment.iter().any(|(known, _)| known == name)
}

//! A stanza on its way to a unit: what its fields have said so far.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_unitfile::Span;

use super::types::TypeWord;
use crate::graph::{EdgeKind, InitUnit, LinePattern, Name, Run, Target, Timeouts};

/// What is known of a unit whose stanza is being read.
#[derive(Debug)]
pub(super) struct Draft {
    /// The unit; it is virtual and its edges are none until all fields are read.
    pub(super) unit: InitUnit,
    /// Its type.
    pub(super) type_word: Option<TypeWord>,
    /// What it depends on, as it is written.
    pub(super) edges: Vec<(EdgeKind, Target, Span)>,
    /// Where it says what it provides.
    pub(super) provides: Vec<Span>,
    /// Whether something of what it provides could not be read.
    pub(super) provides_more: bool,
    /// How long it has to be alive to be ready.
    pub(super) ready_wait: Option<Duration>,
    /// What its output has to say for it to be ready.
    pub(super) ready_grep: Option<LinePattern>,
    /// Where it leaves its process id.
    pub(super) pidfile: Option<String>,
    /// Whether it stays up when its commands have ended.
    pub(super) remain: bool,
    /// The factor of its restart's delay, or its steps.
    pub(super) factor: Option<u32>,
    /// The steps in which its restart's delay grows.
    pub(super) steps: Option<u32>,
    /// Variables in its commands.
    pub(super) variables: Vec<(String, Span)>,
    /// Programs that it executes.
    pub(super) programs: Vec<(String, Span)>,
    /// Which keys are given, whether they could be read or not, and where.
    pub(super) given: BTreeMap<&'static str, Vec<Given>>,
}

/// Where a key is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The key itself.
    pub(super) key: Span,
    /// Its value.
    pub(super) value: Span,
}

impl Draft {
    /// The stanza of this unit, before its first field.
    pub(super) fn new(name: Name, timeouts: Timeouts) -> Self {
        Self {
            unit: InitUnit { timeouts, ..InitUnit::new_virtual(name, []) },
            type_word: None,
            edges: Vec::new(),
            provides: Vec::new(),
            provides_more: false,
            ready_wait: None,
            ready_grep: None,
            pidfile: None,
            remain: true,
            factor: None,
            steps: None,
            variables: Vec::new(),
            programs: Vec::new(),
            given: BTreeMap::new(),
        }
    }

    /// What the unit runs.
    pub(super) fn run(&mut self) -> &mut Run {
        &mut self.unit.run
    }
}

/// Whether a variable may stand in a command: the process's own, or one that the stanza gives.
pub(super) fn knows_variable(run: &Run, name: &str) -> bool {
    let around = &run.exec_environment;
    name == "MAINPID"
        || !around.environment_files.is_empty()
        || around.pass_environment.iter().any(|known| known == name)
        || around.environment.iter().any(|(known, _)| known == name)
}

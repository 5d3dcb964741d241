//! A stanza while it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_unitfile::Span;

use super::stanza::HostResource;
use crate::graph::model::{
    EdgeKind, InitUnit, LinePattern, Name, Run, ServiceType, Target, Timeouts,
};

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

/// A unit type as written in a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeWord {
    Notified,
    Supervised,
    Pidfile,
    Scripted,
    Oneshot,
    Virtual,
}

impl TypeWord {
    /// All types.
    pub(super) const ALL: [Self; 6] = [
        Self::Notified,
        Self::Supervised,
        Self::Pidfile,
        Self::Scripted,
        Self::Oneshot,
        Self::Virtual,
    ];

    /// Returns the type of a unit.
    pub(super) fn of(unit: &InitUnit) -> Self {
        Self::of_kind(&unit.kind)
    }

    fn of_kind(kind: &ServiceType) -> Self {
        match kind {
            ServiceType::ForegroundNotified => Self::Notified,
            ServiceType::ForegroundSupervised(_) => Self::Supervised,
            ServiceType::BackgroundPidfile { .. } => Self::Pidfile,
            ServiceType::BackgroundScripted => Self::Scripted,
            ServiceType::Oneshot { .. } => Self::Oneshot,
            ServiceType::Virtual => Self::Virtual,
        }
    }

    /// Returns the type as written.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Notified => "foreground-notified",
            Self::Supervised => "foreground-supervised",
            Self::Pidfile => "background-pidfile",
            Self::Scripted => "background-scripted",
            Self::Oneshot => "oneshot",
            Self::Virtual => "virtual",
        }
    }

    /// Returns the set that contains only this type.
    pub(super) const fn alone(self) -> Types {
        Types(1 << self as u8)
    }
}

impl ServiceType {
    /// Returns the type's name in a stanza, such as `oneshot`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        TypeWord::of_kind(self).as_str()
    }
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    /// All types.
    pub(super) const ALL: Self = Self(0b11_1111);
    /// All types that execute something.
    pub(super) const RUNNING: Self = Self::ALL.without(TypeWord::Virtual);

    /// Returns the set without one type.
    pub(super) const fn without(self, word: TypeWord) -> Self {
        Self(self.0 & !word.alone().0)
    }

    /// Returns whether the set contains a type.
    pub(super) fn contains(self, word: TypeWord) -> bool {
        self.0 & word.alone().0 != 0
    }

    /// Formats the set as in `oneshot, virtual`.
    pub(super) fn names(self) -> String {
        let words = TypeWord::ALL.into_iter().filter(|word| self.contains(*word));
        words.map(TypeWord::as_str).collect::<Vec<_>>().join(", ")
    }
}

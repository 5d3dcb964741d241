//! Kinds of dependencies between units.

use std::fmt;

/// How a unit depends on the provider of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// The unit starts once the dependency is active, and stops when it is no longer active.
    DependsOn,
    /// The unit starts once the dependency is active. A later loss of the dependency does not stop
    /// the unit.
    DependsMs,
    /// The unit starts once the dependency is active, has failed, or can never start.
    WaitsFor,
    /// If the unit is needed, the dependency is needed too. Neither waits for the other. Only units
    /// from systemd use this kind.
    Pulls,
    /// The unit does not make the dependency needed. If another unit needs the dependency, this
    /// unit starts after it, as with `waits-for`. Only units from systemd use this kind.
    After,
}

impl EdgeKind {
    /// All kinds, strongest first.
    pub const ALL: [Self; 5] =
        [Self::DependsOn, Self::DependsMs, Self::WaitsFor, Self::Pulls, Self::After];

    /// Returns the kind's key in a stanza.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DependsOn => "depends-on",
            Self::DependsMs => "depends-ms",
            Self::WaitsFor => "waits-for",
            Self::Pulls => "pulls",
            Self::After => "after",
        }
    }

    /// Returns whether the dependency is needed whenever the dependent is needed.
    #[must_use]
    pub fn requires(self) -> bool {
        self != Self::After
    }

    /// Returns whether the edge orders the starts and stops of its two units. Cycles of ordering
    /// edges are not allowed.
    #[must_use]
    pub fn orders(self) -> bool {
        self != Self::Pulls
    }
}

impl fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

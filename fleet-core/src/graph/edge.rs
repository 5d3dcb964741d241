//! The kinds of dependencies between units.

use std::fmt;

/// How a unit depends on the provider of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// It starts when the dependency is active, and stops when that is no longer so.
    DependsOn,
    /// It starts when the dependency is active; what becomes of that later does not stop it.
    DependsMs,
    /// It starts when the dependency is active, or failed, or can never start.
    WaitsFor,
    /// The dependency is needed, too, but in no order. Only units of systemd ask for this.
    Pulls,
    /// If the dependency is needed by somebody, this one starts after it, as with `waits-for`. Only
    /// units of systemd ask for this.
    After,
}

impl EdgeKind {
    /// All kinds, the strongest first.
    pub const ALL: [Self; 5] =
        [Self::DependsOn, Self::DependsMs, Self::WaitsFor, Self::Pulls, Self::After];

    /// Its key in a unit's stanza.
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

    /// Whether the dependency is needed when the dependent is.
    #[must_use]
    pub fn requires(self) -> bool {
        self != Self::After
    }

    /// Whether starts and stops keep an order along it, so that no circle of these is allowed.
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

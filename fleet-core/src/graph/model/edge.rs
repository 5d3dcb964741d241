//! The kinds of dependencies.

use std::fmt;

/// The kind of a unit's dependency on the provider of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeKind {
    /// The unit starts once the dependency is active. If the dependency is lost or has to stop, the
    /// unit stops too.
    DependsOn,
    /// The unit starts once the dependency is active or has completed. A later loss of the
    /// dependency does not stop the unit.
    DependsMs,
    /// The unit starts once the dependency is active, but does not make it needed. A unit that
    /// nothing else makes needed, and is not active, blocks the start. A later loss of the
    /// dependency does not stop the unit. Corresponds to `Requisite=` in systemd.
    Requisite,
    /// The unit starts once the dependency is active, has failed or completed, or cannot start.
    WaitsFor,
    /// If the unit is needed, the dependency is needed too, but neither waits for the other.
    /// Corresponds to `Wants=` or `Requires=` without `After=` in systemd.
    Pulls,
    /// If something else makes the dependency needed, the unit starts after it, as with
    /// `waits-for`. The edge itself does not make the dependency needed. Corresponds to `After=`
    /// alone in systemd.
    After,
}

impl EdgeKind {
    /// All kinds, strongest first.
    pub const ALL: [Self; 6] = [
        Self::DependsOn,
        Self::DependsMs,
        Self::Requisite,
        Self::WaitsFor,
        Self::Pulls,
        Self::After,
    ];

    /// Returns the kind's key in a stanza.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DependsOn => "depends-on",
            Self::DependsMs => "depends-ms",
            Self::Requisite => "requisite",
            Self::WaitsFor => "waits-for",
            Self::Pulls => "pulls",
            Self::After => "after",
        }
    }

    /// Returns whether the dependency is needed whenever the dependent is needed.
    #[must_use]
    pub fn requires(self) -> bool {
        !matches!(self, Self::After | Self::Requisite)
    }

    /// Returns whether the edge orders the starts and stops of its two units. Ordering edges must
    /// not form a cycle.
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

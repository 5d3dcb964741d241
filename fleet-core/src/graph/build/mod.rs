//! Builds the graph of units, or reports all errors in them.

pub(super) mod adjacency;
mod assembly;
pub(super) mod cycle;
mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::graph::model::{EdgeKind, ExecOutput, InitUnit, Name, Target, Timeouts};
use adjacency::{Adjacency, Link};
use assembly::Assembly;

pub use error::{DependencyCycle, GraphError, SettingConflict};

/// Graph of valid units. Every target has one provider, and no unit waits for itself, even
/// indirectly.
///
/// The graph does not depend on the order in which the units are passed.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Sorted by name; a unit's number is its index.
    pub(in crate::graph) units: Vec<Arc<InitUnit>>,
    pub(in crate::graph) providers: BTreeMap<Target, u32>,
    pub(in crate::graph) adjacency: Arc<Adjacency>,
    /// Dependencies of each unit on targets without a provider.
    pub(in crate::graph) missing: BTreeMap<u32, Vec<(EdgeKind, Target)>>,
}

impl Graph {
    /// Maximum number of units in a graph.
    pub const MAX_UNITS: usize = 1 << 20;
    /// Maximum number of dependencies in a graph.
    pub const MAX_EDGES: usize = 1 << 24;

    /// Builds a graph of all units, if none of them has an error.
    ///
    /// # Errors
    ///
    /// Returns every error in the units and the settings.
    pub fn strict(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> Result<Self, Vec<GraphError>> {
        let (graph, errors) = Assembly::strict(units, settings);
        if errors.is_empty() { Ok(graph) } else { Err(errors) }
    }

    /// Builds a graph of the valid units. Returns it together with the errors of the other units.
    ///
    /// These units are left out:
    ///
    /// - Units with errors of their own, and units that share a name.
    /// - All units of a cycle.
    /// - All but one of the units that provide the same target. The unit with the target's name is
    ///   kept or, without such a unit, the first by name.
    ///
    /// A unit that depends on a missing target stays in the graph. If the kind of the dependency is
    /// `depends-on` or `depends-ms`, the unit never starts.
    pub fn lenient(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> (Self, Vec<GraphError>) {
        Assembly::lenient(units, settings)
    }

    /// Returns the units, sorted by name.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &Arc<InitUnit>> {
        self.units.iter()
    }

    /// Returns the unit of this name.
    #[must_use]
    pub fn unit(&self, name: &Name) -> Option<&Arc<InitUnit>> {
        self.find(name).map(|at| &self.units[at as usize])
    }

    /// Replaces each unit by the unit of the `earlier` graph that equals it, if there is one. Both
    /// graphs then share one copy in memory. Without sharing, an unchanged definition would be in
    /// memory twice, because a running unit keeps the definition that it was started from.
    pub fn share_unchanged(&mut self, earlier: &Self) {
        for unit in &mut self.units {
            if let Some(same) = earlier.unit(&unit.name).filter(|it| *it == unit) {
                *unit = Arc::clone(same);
            }
        }
    }

    /// Returns whether both graphs consist of the same units in memory, and each target has the
    /// same provider in both.
    pub(in crate::graph) fn is_same_as(&self, other: &Self) -> bool {
        let mut units = self.units.iter().zip(&other.units);
        self.units.len() == other.units.len()
            && units.all(|(one, other)| Arc::ptr_eq(one, other))
            && self.providers == other.providers
    }

    /// Returns the unit that provides this target.
    #[must_use]
    pub fn provider(&self, target: &Target) -> Option<&Arc<InitUnit>> {
        self.providers.get(target).map(|&at| &self.units[at as usize])
    }

    /// Returns the dependencies of a unit, sorted by name, each with the kind of the edge to it. If
    /// several edges lead to a dependency, this is the kind of the strongest. Returns an empty list
    /// if the graph has no unit of this name.
    #[must_use]
    pub fn dependencies(&self, name: &Name) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        self.find(name).map(|at| self.named(self.adjacency.dependencies(at))).unwrap_or_default()
    }

    /// Returns the dependents of a unit, sorted by name, each with the kind of its edge to the
    /// unit. If a dependent has several such edges, this is the kind of the strongest. Returns an
    /// empty list if the graph has no unit of this name.
    #[must_use]
    pub fn dependents(&self, name: &Name) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        self.find(name).map(|at| self.named(self.adjacency.dependents(at))).unwrap_or_default()
    }

    fn named(&self, links: &[Link]) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        links.iter().map(|link| (link.kind, &self.units[link.node as usize])).collect()
    }

    fn find(&self, name: &Name) -> Option<u32> {
        let at = self.units.binary_search_by(|unit| unit.name.cmp(name)).ok()?;
        u32::try_from(at).ok()
    }
}

/// Central settings. The default has no goal and no limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Target that the init maintains.
    pub goal: Option<Target>,
    /// Maximum number of units that are starting at once; `None` means no limit.
    pub max_starting: Option<NonZeroU32>,
    /// Units that do not count toward `max_starting` while they start.
    pub unlimited_starts: BTreeSet<Name>,
    /// Chosen provider of each target that several units provide.
    pub alternatives: BTreeMap<Target, Name>,
    /// Masked targets: the unit that provides one must not start.
    pub mask: BTreeSet<Target>,
    /// Output of units that set none and have no readiness line; `None` means their logs.
    pub output: Option<ExecOutput>,
    /// Timeouts of units that set none.
    pub timeouts: Timeouts,
}

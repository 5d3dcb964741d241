//! Validated dependency graphs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::adjacency::{Adjacency, Link};
use super::assembly::Assembly;
use super::{EdgeKind, GraphError, InitUnit, Name, Settings, Target};

/// Valid units: every target has one provider, and no unit waits for itself through others.
///
/// The order in which units are passed does not matter.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Sorted by name; a unit's number is its index.
    pub(super) units: Vec<Arc<InitUnit>>,
    pub(super) providers: BTreeMap<Target, u32>,
    pub(super) adjacency: Arc<Adjacency>,
    /// Dependencies of each unit on targets without a provider.
    pub(super) missing: BTreeMap<u32, Vec<(EdgeKind, Target)>>,
}

impl Graph {
    /// Maximum number of units in a graph.
    pub const MAX_UNITS: usize = 1 << 20;
    /// Maximum number of dependencies in a graph.
    pub const MAX_EDGES: usize = 1 << 24;

    /// Builds a graph of all units.
    ///
    /// # Errors
    ///
    /// Returns every error in the units and settings. No graph is built then.
    pub fn strict(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> Result<Self, Vec<GraphError>> {
        let (graph, errors) = Assembly::strict(units, settings);
        if errors.is_empty() { Ok(graph) } else { Err(errors) }
    }

    /// Builds a graph of the valid units, and returns it with the errors of the others.
    ///
    /// Units with errors of their own are left out, as are all units of a cycle. If several units
    /// provide a target, the unit named like the target stays, or else the first by name. A unit
    /// with a missing dependency stays in the graph. It never starts if it requires that
    /// dependency.
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

    /// Replaces units that are equal to those of an earlier graph by these. A running unit keeps
    /// the definition that it was started from, so sharing avoids a second copy.
    pub fn share_unchanged(&mut self, earlier: &Self) {
        for unit in &mut self.units {
            if let Some(same) = earlier.unit(&unit.name).filter(|it| *it == unit) {
                *unit = Arc::clone(same);
            }
        }
    }

    /// Returns whether the graph shares all units with `other` and its targets have the same
    /// providers.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
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

    /// Returns the units that a unit depends on, by name, each with the strongest kind.
    #[must_use]
    pub fn dependencies(&self, name: &Name) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        self.find(name).map(|at| self.named(self.adjacency.dependencies(at))).unwrap_or_default()
    }

    /// Returns the units that depend on a unit, by name, each with the strongest kind.
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

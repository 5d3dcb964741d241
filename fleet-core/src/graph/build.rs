//! A set of units as a graph: whole, or with what is wrong with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::adjacency::{Adjacency, Link};
use super::assembly::Assembly;
use super::{EdgeKind, GraphError, InitUnit, Name, Settings, Target};

/// Valid units: each target has one provider, and none waits for itself by way of others.
///
/// It does not matter in which order the units are given.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// By name, so that the numbers of units are in the order of their names.
    pub(super) units: Vec<Arc<InitUnit>>,
    pub(super) providers: BTreeMap<Target, u32>,
    pub(super) adjacency: Arc<Adjacency>,
    /// What each unit depends on that is not there.
    pub(super) missing: BTreeMap<u32, Vec<(EdgeKind, Target)>>,
}

impl Graph {
    /// How many units a graph takes.
    pub const MAX_UNITS: usize = 1 << 20;
    /// How many dependencies a graph takes.
    pub const MAX_EDGES: usize = 1 << 24;

    /// A graph of all these units.
    ///
    /// # Errors
    ///
    /// All that is wrong with them, if anything is: then there is no graph.
    pub fn strict(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> Result<Self, Vec<GraphError>> {
        let (graph, errors) = Assembly::strict(units, settings);
        if errors.is_empty() { Ok(graph) } else { Err(errors) }
    }

    /// A graph of those of these units that are fit for one, and what is wrong with the others.
    ///
    /// Units with errors of their own are left out, and so are all of a circle. Of several units
    /// that provide a target, the one whose name it is stays, or else the first by name. Units that
    /// depend on what is not there stay, and never start if they cannot do without it.
    pub fn lenient(
        units: impl IntoIterator<Item: Into<Arc<InitUnit>>>,
        settings: &Settings,
    ) -> (Self, Vec<GraphError>) {
        Assembly::lenient(units, settings)
    }

    /// The units, by name.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &Arc<InitUnit>> {
        self.units.iter()
    }

    /// The unit of this name.
    #[must_use]
    pub fn unit(&self, name: &Name) -> Option<&Arc<InitUnit>> {
        self.find(name).map(|at| &self.units[at as usize])
    }

    /// Has the units that are the same in an earlier graph in common with that: whoever runs one
    /// holds on to the one that it was started from, and it need not be there twice.
    pub fn share_unchanged(&mut self, earlier: &Self) {
        for unit in &mut self.units {
            if let Some(same) = earlier.unit(&unit.name).filter(|it| *it == unit) {
                *unit = Arc::clone(same);
            }
        }
    }

    /// Whether all units are the same ones as in another graph, and provide the same targets.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let mut units = self.units.iter().zip(&other.units);
        self.units.len() == other.units.len()
            && units.all(|(one, other)| Arc::ptr_eq(one, other))
            && self.providers == other.providers
    }

    /// The unit that provides this target.
    #[must_use]
    pub fn provider(&self, target: &Target) -> Option<&Arc<InitUnit>> {
        self.providers.get(target).map(|&at| &self.units[at as usize])
    }

    /// The units that a unit depends on, by name, each by the strongest kind.
    #[must_use]
    pub fn dependencies(&self, name: &Name) -> Vec<(EdgeKind, &Arc<InitUnit>)> {
        self.find(name).map(|at| self.named(self.adjacency.dependencies(at))).unwrap_or_default()
    }

    /// The units that depend on a unit, by name, each by the strongest kind.
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

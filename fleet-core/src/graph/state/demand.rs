//! Demand for a unit, counted from its dependents.

use std::collections::BTreeMap;

use crate::graph::EdgeKind;
use crate::graph::adjacency::Adjacency;
use crate::graph::cycle::components_by;

/// Demand for one unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    /// Number of the unit's targets that are the goal or an extra target.
    pub(super) wanted: u32,
    /// Number of the unit's targets that are masked.
    pub(super) masks: u32,
    /// Number of needed units outside the unit's own component that require the unit.
    pub(super) support: u32,
    /// Heights of the needed units that are ordered after the unit.
    pub(super) above: Heights,
}

/// A multiset of heights.
#[derive(Debug, Clone, Default)]
pub(super) struct Heights(Vec<(u32, u32)>);

/// Groups of units that require each other in a cycle: strongly connected components along
/// requiring edges. Each component is evaluated as a whole. Requirements within it do not count as
/// demand, because its units would otherwise keep each other needed forever.
#[derive(Debug, Default)]
pub(super) struct Components {
    all: Vec<Vec<u32>>,
    of: BTreeMap<u32, usize>,
}

impl Demand {
    /// Returns whether demand from outside the unit's component makes the unit needed.
    pub(super) fn is_required(&self) -> bool {
        self.masks == 0 && (self.wanted > 0 || self.support > 0)
    }
}

impl Heights {
    /// Replaces one height.
    pub(super) fn replace(&mut self, before: Option<u32>, after: Option<u32>) {
        if let Some(before) = before {
            self.remove(before);
        }
        if let Some(after) = after {
            match self.position(after) {
                Ok(at) => self.0[at].1 += 1,
                Err(at) => self.0.insert(at, (after, 1)),
            }
        }
    }

    /// Returns the height of a unit, where `self` holds the heights of the units that are ordered
    /// after it. The result is one more than the highest of them, or zero if there are none.
    pub(super) fn next(&self) -> u32 {
        self.0.last().map_or(0, |&(height, _)| height + 1)
    }

    fn remove(&mut self, height: u32) {
        let Ok(at) = self.position(height) else { return };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    fn position(&self, height: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&height, |&(height, _)| height)
    }
}

impl Components {
    /// Finds the components. Without `pulls` edges there are none, because all other requiring
    /// edges also order, and ordering edges form no cycle.
    pub(super) fn of(adjacency: &Adjacency) -> Self {
        let mut pulls = adjacency.order().iter().flat_map(|&at| adjacency.dependencies(at));
        if !pulls.any(|link| link.kind == EdgeKind::Pulls) {
            return Self::default();
        }
        let all = components_by(adjacency, EdgeKind::requires);
        let members = |(number, component): (usize, &Vec<u32>)| {
            component.iter().map(move |&at| (at, number)).collect::<Vec<_>>()
        };
        let of = all.iter().enumerate().flat_map(members).collect();
        Self { all, of }
    }

    /// Returns the component that contains a unit, if any.
    pub(super) fn of_unit(&self, at: u32) -> Option<&[u32]> {
        self.of.get(&at).map(|&number| &*self.all[number])
    }

    /// Returns whether two units belong to one component.
    pub(super) fn same_component(&self, one: u32, other: u32) -> bool {
        let component = self.of.get(&one);
        component.is_some() && component == self.of.get(&other)
    }
}

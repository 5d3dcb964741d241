//! What makes a unit needed, counted, and how much depends on it.

use std::collections::BTreeMap;

use crate::graph::EdgeKind;
use crate::graph::adjacency::Adjacency;
use crate::graph::cycle::components_by;

/// What counts for a unit, and above it.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    /// How many of the goal and what is beside it are its targets.
    pub(super) wanted: u32,
    /// How many of its targets are masked.
    pub(super) masks: u32,
    /// How many needed units require it, those of its own component aside.
    pub(super) support: u32,
    /// The heights of the needed units that come after it.
    pub(super) above: Heights,
}

/// Some heights, and how often each occurs.
#[derive(Debug, Clone, Default)]
pub(super) struct Heights(Vec<(u32, u32)>);

/// Units that all require one another, by way of others or not. That a unit of such a component
/// requires another one of it keeps neither, so they are looked at together.
#[derive(Debug, Default)]
pub(super) struct Components {
    all: Vec<Vec<u32>>,
    of: BTreeMap<u32, usize>,
}

impl Demand {
    /// Whether it is needed for what is known outside of its component.
    pub(super) fn is_required(&self) -> bool {
        self.masks == 0 && (self.wanted > 0 || self.support > 0)
    }
}

impl Heights {
    /// One of them is another one.
    pub(super) fn replace(&mut self, before: Option<u32>, after: Option<u32>) {
        if let Some(before) = before {
            self.remove(before);
        }
        if let Some(after) = after {
            match self.place(after) {
                Ok(at) => self.0[at].1 += 1,
                Err(at) => self.0.insert(at, (after, 1)),
            }
        }
    }

    /// How high a chain is that goes on from the highest.
    pub(super) fn next(&self) -> u32 {
        self.0.last().map_or(0, |&(height, _)| height + 1)
    }

    fn remove(&mut self, height: u32) {
        let Ok(at) = self.place(height) else { return };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.remove(at);
        }
    }

    fn place(&self, height: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&height, |&(height, _)| height)
    }
}

impl Components {
    /// Those of a adjacency. What orders leads in no circle, so there are none without `pulls`.
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

    /// The component of a unit, if it is in one.
    pub(super) fn of_unit(&self, at: u32) -> Option<&[u32]> {
        self.of.get(&at).map(|&number| &*self.all[number])
    }

    /// Whether two units are in one component.
    pub(super) fn same_component(&self, one: u32, other: u32) -> bool {
        let component = self.of.get(&one);
        component.is_some() && component == self.of.get(&other)
    }
}

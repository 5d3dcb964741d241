//! Published states of one unit.

use std::fmt;
use std::sync::Arc;

use crate::map::Map;
use crate::{MachineId, UnitState};

/// States of one unit. Nearly every unit is on one machine only.
#[derive(Clone)]
pub(super) enum States {
    One(Arc<UnitState>),
    Many(Map<MachineId, Arc<UnitState>>),
}

impl States {
    pub(super) fn get(&self, machine: &str) -> Option<&Arc<UnitState>> {
        match self {
            Self::One(state) => Some(state).filter(|state| state.machine.as_str() == machine),
            Self::Many(states) => states.get(machine),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<UnitState>> {
        let (one, many) = match self {
            Self::One(state) => (Some(state), None),
            Self::Many(states) => (None, Some(states.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn put(&mut self, state: Arc<UnitState>) {
        match self {
            Self::One(one) if one.machine == state.machine => *one = state,
            Self::One(one) => {
                let mut states = Map::default();
                states.insert(one.machine.clone(), one.clone());
                states.insert(state.machine.clone(), state);
                *self = Self::Many(states);
            }
            Self::Many(states) => drop(states.insert(state.machine.clone(), state)),
        }
    }
}

/// Formats both variants alike, as a list of states.
impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

//! Telling one unit what every machine says, without saying the same thing twice.

use std::sync::Arc;

use fleet_core::Refusal;

use super::{Denial, Question, max_per_machine, met, metadata};
use crate::index::{Index, Lookup, MachineNo, UnitNo};

/// What makes a refusal of one unit differ from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gist<'a> {
    Cordon,
    MachineId,
    /// The key that does not match, and what the machine has of it.
    Metadata(&'a str, Option<&'a str>),
    /// The place of the peer that is missing.
    MachineOf(usize),
    /// How many instances there are, and how many there may be.
    MaxPerMachine(u32, u32),
}

/// Tells what machines say to one unit.
#[derive(Debug)]
pub(crate) struct Teller<'a> {
    index: &'a Index,
    unit: UnitNo,
    told: Lookup<Gist<'a>, Arc<Refusal>>,
    met: Vec<Option<Arc<Refusal>>>,
}

impl<'a> Teller<'a> {
    /// For a unit that is nowhere and to which the machines have answered so.
    pub(crate) fn new(
        index: &'a Index,
        unit: UnitNo,
        answers: &[(MachineNo, Option<Denial>)],
    ) -> Self {
        let met = met::refusals(index, unit, answers);
        Self { index, unit, told: Lookup::default(), met }
    }

    /// What a machine says.
    pub(crate) fn tell(&mut self, machine: MachineNo, denial: Denial) -> Arc<Refusal> {
        let question = Question::new(self.index, self.unit, machine);
        if let Some(told) = self.met.get_mut(machine.at()).and_then(Option::take) {
            return told;
        }
        let Some(gist) = gist(&question, denial) else {
            return Arc::new(question.refusal(denial));
        };
        if let Some(told) = self.told.get(&gist) {
            return told.clone();
        }
        let told = Arc::new(question.refusal(denial));
        self.told.insert(gist, told.clone());
        told
    }
}

/// What makes the refusal of a machine differ from those of others; `None` if each is another.
fn gist<'a>(question: &Question<'a>, denial: Denial) -> Option<Gist<'a>> {
    match denial {
        Denial::Cordon => Some(Gist::Cordon),
        Denial::MachineId => Some(Gist::MachineId),
        Denial::Metadata => {
            let (key, found) = metadata::missing(question)?;
            Some(Gist::Metadata(key, found))
        }
        Denial::MachineOf(at) => Some(Gist::MachineOf(at)),
        Denial::MaxPerMachine => {
            let (there, limit) = max_per_machine::count(question)?;
            Some(Gist::MaxPerMachine(there, limit))
        }
        _ => None,
    }
}

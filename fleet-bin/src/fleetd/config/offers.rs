//! What the machine offers to units: all that it has, less, or something else.

use fleet_core::{Resource, Resources};

use super::error::ConfigError;
use super::resolve::Values;

/// How much of each resource the machine offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    cpu: Offer,
    memory: Offer,
    disk: Offer,
}

/// How much of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Offer {
    /// All that the machine has.
    #[default]
    All,
    /// All but so much.
    AllBut(u64),
    /// So much, whatever the machine has.
    Just(u64),
}

impl Offers {
    pub(super) fn resolve(values: &Values<'_>) -> Result<Self, ConfigError> {
        let cores = "cores such as 3.5, or -0.5 for all but half of one";
        let bytes = "a size such as 8G, or -2G for all but that";
        let read = |key, expected, resource| {
            let offer = values.parsed(key, expected, |text| offer(text, resource))?;
            Ok(offer.unwrap_or_default())
        };
        Ok(Self {
            cpu: read("offer_cpu", cores, Resource::Cpu)?,
            memory: read("offer_memory", bytes, Resource::Memory)?,
            disk: read("offer_disk", bytes, Resource::Disk)?,
        })
    }

    /// What a machine offers that has so much.
    pub(crate) fn of(self, has: Resources) -> Resources {
        Resources {
            cpu: self.cpu.of(has.cpu),
            memory: self.memory.of(has.memory),
            disk: self.disk.of(has.disk),
        }
    }
}

impl Offer {
    fn of(self, has: u64) -> u64 {
        match self {
            Self::All => has,
            Self::AllBut(held_back) => has.saturating_sub(held_back),
            Self::Just(amount) => amount,
        }
    }
}

fn offer(text: &str, resource: Resource) -> Option<Offer> {
    match text.strip_prefix('-') {
        Some(held_back) => resource.parse(held_back).ok().map(Offer::AllBut),
        None => resource.parse(text).ok().map(Offer::Just),
    }
}

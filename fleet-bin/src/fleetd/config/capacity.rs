//! Capacity that the machine offers to units.

use fleet_core::{Resource, Resources};

use super::error::ConfigError;
use super::resolve::Values;

/// Offered amount of each resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CapacitySettings {
    cpu: Capacity,
    memory: Capacity,
    disk: Capacity,
}

/// Offered amount of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Capacity {
    /// All of it.
    #[default]
    All,
    /// All but this amount.
    AllExcept(u64),
    /// This amount, regardless of the machine's total.
    Fixed(u64),
}

impl CapacitySettings {
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

    /// Returns the offers of a machine with these total resources.
    pub(crate) fn apply(self, total: Resources) -> Resources {
        Resources {
            cpu: self.cpu.apply(total.cpu),
            memory: self.memory.apply(total.memory),
            disk: self.disk.apply(total.disk),
        }
    }
}

impl Capacity {
    fn apply(self, total: u64) -> u64 {
        match self {
            Self::All => total,
            Self::AllExcept(held_back) => total.saturating_sub(held_back),
            Self::Fixed(amount) => amount,
        }
    }
}

fn offer(text: &str, resource: Resource) -> Option<Capacity> {
    match text.strip_prefix('-') {
        Some(held_back) => resource.parse(held_back).ok().map(Capacity::AllExcept),
        None => resource.parse(text).ok().map(Capacity::Fixed),
    }
}

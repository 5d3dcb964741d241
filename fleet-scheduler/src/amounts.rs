//! Amounts of resources, to be added up.
//!
//! ```
//! use fleet_core::Resources;
//! use fleet_scheduler::amounts::{cpu, disk, gib, memory, millicpu};
//!
//! let offers = cpu(4) + memory(gib(16)) + disk(gib(500));
//! assert_eq!(offers, Resources { cpu: 4000, memory: 16 << 30, disk: 500 << 30 });
//! assert!((millicpu(1500) + memory(gib(1))).fits_in(offers));
//! ```

use fleet_core::Resources;

/// Returns that many processor cores.
#[must_use]
pub const fn cpu(cores: u64) -> Resources {
    millicpu(cores.saturating_mul(1000))
}

/// Returns that many thousandths of a processor core.
#[must_use]
pub const fn millicpu(thousandths: u64) -> Resources {
    Resources { cpu: thousandths, ..Resources::ZERO }
}

/// Returns that many bytes of memory.
#[must_use]
pub const fn memory(bytes: u64) -> Resources {
    Resources { memory: bytes, ..Resources::ZERO }
}

/// Returns that many bytes of disk.
#[must_use]
pub const fn disk(bytes: u64) -> Resources {
    Resources { disk: bytes, ..Resources::ZERO }
}

/// Returns the number of bytes in that many mebibytes.
#[must_use]
pub const fn mib(count: u64) -> u64 {
    count.saturating_mul(1 << 20)
}

/// Returns the number of bytes in that many gibibytes.
#[must_use]
pub const fn gib(count: u64) -> u64 {
    count.saturating_mul(1 << 30)
}

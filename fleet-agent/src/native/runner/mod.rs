//! Runs the units of a graph.
//!
//! ```text
//! lead ── owns the graph's System: every decision to start, stop, restart, retry, and the order
//!  │ ^
//!  │ └── reports: what happened, and how a run is
//!  └───> orders: one task for each run of a unit: course ──> drive ──> service
//! ```
//!
//! The lead is one task. Whatever wakes it (a report, a request, the moment that the System named)
//! it looks at what is owed and has it carried out; no turn costs more for units that it does not
//! concern. A course sees one run of one unit from its start until none of its processes is left.

mod config;
mod course;
mod error;
mod front;
mod inbox;
pub(in crate::native) mod lead;
mod lost;
mod member;
mod recall;
pub(in crate::native) mod services;
mod snapshot;
#[cfg(test)]
mod tests;
mod trial;
mod wanted;

pub use config::RunnerConfig;
pub use error::RunnerError;
pub use front::Runner;
pub use snapshot::{Snapshot, UnitStatus};
pub use trial::{Trial, Tried};
pub use wanted::Wanted;

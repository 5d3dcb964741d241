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
mod desired_targets;
mod dry_run;
mod error;
pub(in crate::native) mod event_loop;
mod handle;
pub(in crate::native) mod managed_units;
mod recovery;
mod run_channel;
mod run_task;
mod snapshot;
mod supervised_unit;
#[cfg(test)]
mod tests;
mod unrecoverable;

pub use config::SupervisorConfig;
pub use desired_targets::DesiredTargets;
pub use dry_run::{InitDryRun, InitDryRunResult};
pub use error::SupervisorError;
pub use handle::InitSupervisor;
pub use snapshot::{InitSnapshot, UnitSnapshot};

//! Runs the units of a graph.
//!
//! ```text
//! event loop ── owns the InitState: every decision to start, stop, restart or retry, and the order
//!  │ ^
//!  │ └── reports: events and the state of a run
//!  └───> actions: a task for each run of a unit: run_task ──> run_driver ──> run_machine
//! ```
//!
//! The event loop is one task. It wakes up for a report, a request or a deadline of the
//! `InitState`, and then carries out the pending actions. Each such turn works only on the units
//! that have changed, so its cost does not depend on the number of idle units.
//!
//! A run task covers one run of one unit, from its start until no process of the run is left.

pub(super) mod compile;
pub(super) mod external;
pub(super) mod specifier_values;
pub(super) mod support;
#[cfg(test)]
pub(super) mod support_tests;

mod config;
mod desired_targets;
mod dry_run;
mod error;
pub(in crate::native) mod event_loop;
mod handle;
pub(super) mod host_capabilities;
pub(in crate::native) mod managed_units;
mod masks;
mod recovery;
mod run_channel;
mod run_task;
mod snapshot;
mod supervised_unit;
#[cfg(test)]
mod tests;
mod unit_log;
mod unrecoverable;

pub use config::SupervisorConfig;
pub use desired_targets::DesiredTargets;
pub use dry_run::{InitDryRun, InitDryRunResult};
pub use error::SupervisorError;
pub use handle::InitSupervisor;
pub use snapshot::{InitSnapshot, UnitSnapshot};

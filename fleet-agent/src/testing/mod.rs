//! Test support for service managers and for their callers.
//!
//! - [`FakeManager`] is a scripted service manager that runs nothing.
//! - [`conformance()`] checks that a service manager provides the guarantees of [`ServiceManager`].
//! - [`Planner`] is the planner of an engine, for benchmarks.
//!
//! [`ServiceManager`]: crate::ServiceManager

mod conformance;
mod fake;
mod harness;
mod journals;

pub use conformance::conformance;
pub use fake::{Behaviour, Call, FakeManager};
pub use harness::{Harness, ManagerWithJournals, UnitKind};

pub use crate::engine::planner::Planner;

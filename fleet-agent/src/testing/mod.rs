//! What service managers, and those who drive them, are tested with.
//!
//! [`FakeManager`] is a service manager that runs nothing and does what a test tells it to.
//! [`conformance`] checks any service manager against what [`ServiceManager`] promises.
//! [`Planner`] is what an engine plans with, to be measured.
//!
//! [`ServiceManager`]: crate::ServiceManager

mod conformance;
mod fake;
mod harness;
mod journals;
mod script;

pub use conformance::conformance;
pub use fake::FakeManager;
pub use harness::{Harness, UnitKind};
pub use script::{Behaviour, Call};

pub use crate::planner::Planner;

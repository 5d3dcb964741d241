#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod amounts;
mod check;
mod demand;
mod drain;
mod explain;
mod index;
mod plan;
mod planner;
pub mod policy;
pub mod prelude;
mod rebalance;
mod rules;
mod share;
#[cfg(feature = "testing")]
pub mod testing;

pub use check::{Violation, check, check_with};
pub use demand::{Change, Demand, DemandError};
pub use drain::{Drain, DrainPlan, HoldReason};
pub use explain::{Explanation, PlacementVerdict, explain};
pub use index::Cluster;
pub use plan::{Plan, RemovalReason, Step, StepAction, StepCause, apply};
pub use planner::plan;
pub use policy::Policy;
pub use rebalance::Rebalance;
pub use share::{Share, share};

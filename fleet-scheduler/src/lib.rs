#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod amounts;
mod check;
mod demand;
mod drain;
mod index;
mod plan;
mod planner;
pub mod policy;
pub mod prelude;
mod ranking;
mod rebalance;
mod rules;
mod share;
mod state;
#[cfg(feature = "testing")]
pub mod testing;

pub use check::{Violation, check, check_with};
pub use demand::{Change, Demand, DemandError};
pub use drain::{Drain, DrainPlan, HoldReason};
pub use index::Cluster;
pub use plan::{Plan, RemovalReason, Step, StepAction, StepCause, apply};
pub use planner::{Explanation, PlacementVerdict, explain, plan};
pub use policy::Policy;
pub use rebalance::Rebalance;
pub use share::{Share, share};

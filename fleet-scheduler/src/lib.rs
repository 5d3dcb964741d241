#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

// From the bottom up; each layer knows only those before it, and `policy` and `demand`:
//
// - `state`: the machines, the units, and which unit is on which machine
// - `rules`: the hard rules, which read the state
// - `ranking`: the order in which units try machines
// - `index`: `Cluster`; records changes, and queues the units that they may help
// - `planner`: decides, drains, rebalances and explains
//
// `plan` has the result, `check` verifies it by other code, and `testing` has the tools for that.

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

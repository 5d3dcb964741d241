#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apply;
mod change;
mod check;
mod drain;
mod explain;
mod index;
mod plan;
mod planner;
mod policy;
mod rebalance;
mod rules;
mod share;
mod step;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use apply::apply;
pub use change::{ClusterChange, UnitSpec};
pub use check::{Violation, check, check_with};
pub use drain::{Drain, DrainPlan, HoldReason};
pub use explain::{Explanation, PlacementVerdict, explain};
pub use index::Index;
pub use plan::{Plan, plan};
pub use policy::{Candidate, HardRule, Policy, Ranking, RetryOn, Score};
pub use rebalance::Rebalance;
pub use share::{Share, share};
pub use step::{RemovalReason, Step, StepAction, StepCause};
pub use view::View;

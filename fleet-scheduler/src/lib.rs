#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apply;
mod board;
mod check;
mod explain;
mod globals;
mod groups;
#[cfg(feature = "check")]
pub mod naive;
mod place;
mod plan;
mod policy;
mod rank;
mod reasons;
mod roster;
mod rules;
mod settle;
mod share;
mod step;
mod steps;
#[cfg(feature = "proptest")]
pub mod strategies;

pub use apply::apply;
pub use check::{Violation, check};
pub use explain::{Explanation, Verdict, explain};
pub use plan::{Plan, plan};
pub use policy::{Policy, Ranking};
pub use share::{Share, share};
pub use step::{Action, Cause, NotWanted, Step};

//! Types of a fleet cluster and the rules by which its state changes.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod cycle;
pub mod expression;
pub mod failures;
#[cfg(feature = "graph")]
pub mod graph;
pub mod health;
pub mod history;
pub mod job;
pub mod journal;
pub mod machine;
pub mod manager;
mod map;
mod numbers;
pub mod pattern;
pub mod reason;
pub mod rebalancing;
pub mod refusal;
pub mod requirements;
pub mod resources;
pub mod rollout;
pub mod schedule;
pub mod snapshot;
pub mod start_order;
mod stop;
pub mod task;
pub mod unit;

pub use expression::Expression;
pub use machine::{Intent, Machine, MachineId, Metadata};
pub use numbers::{Epoch, Generation, Revision, Term, Timestamp};
pub use pattern::Pattern;
pub use reason::Reason;
pub use refusal::Refusal;
pub use requirements::{Requirements, Strictness};
pub use resources::{Resource, Resources};
pub use snapshot::Snapshot;
pub use task::{DesiredUnit, KnownUnit, Task, converge};
pub use unit::{ActiveState, Placement, SystemdState, TargetState, Unit, UnitState, Verb};

//! Types of a fleet cluster and the rules by which its state changes.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod converge;
mod cycle;
mod expression;
#[cfg(feature = "graph")]
pub mod graph;
mod intent;
pub mod journal;
mod machine;
mod map;
mod numbers;
mod pattern;
mod peer;
mod placement;
mod reason;
mod rebalancing;
mod refusal;
mod requirements;
mod resources;
mod snapshot;
mod stop;
mod target_state;
mod task;
mod time;
mod unit;
mod unit_state;

pub use converge::{DesiredUnit, KnownUnit, converge};
pub use cycle::{Cycle, machine_of_cycle, replaces_cycle};
pub use expression::{ExpectedToken, Expression, ExpressionError, ExpressionProblem, FalsePart};
pub use intent::Intent;
pub use machine::{Machine, MachineId, MachineIdError, Metadata};
pub use numbers::{Epoch, Generation, Revision, Term};
pub use pattern::{Pattern, PatternError};
pub use peer::{Peer, PeerError};
pub use placement::Placement;
pub use reason::{NearestMachine, Reason, Tally, tally};
pub use rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
pub use refusal::{Refusal, Rule};
pub use requirements::{
    FleetOption, InvalidRequirements, MetadataProblem, OnPartition, ParsedRequirements, Preference,
    RequirementError, RequirementErrorKind, RequirementErrors, RequirementWarning,
    RequirementWarningKind, Requirements, Reschedule, Spread, Strictness,
};
pub use resources::{AmountError, Resource, Resources};
pub use snapshot::{Fault, Snapshot};
pub use target_state::{InvalidTransition, TargetState, Transition, UnknownTargetState, Verb};
pub use task::{Task, TaskReason};
pub use time::Timestamp;
pub use unit::Unit;
pub use unit_state::{
    ActiveState, ExitStatus, LoadState, SystemdState, UnitState, UnknownSystemdState,
};

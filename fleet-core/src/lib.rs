//! The nouns of a fleet cluster and the rules by which they change.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod converge;
mod cycle;
mod machine;
mod map;
mod numbers;
mod pattern;
mod placement;
mod reason;
mod requirements;
mod snapshot;
mod target_state;
mod task;
mod time;
mod unit;
mod unit_state;

pub use converge::{DesiredUnit, KnownUnit, converge};
pub use cycle::{Cycle, machine_of_cycle, replaces_cycle};
pub use machine::{Machine, MachineId, MachineIdError, Metadata};
pub use numbers::{Epoch, Generation, Revision, Term};
pub use pattern::{Pattern, PatternError};
pub use placement::Placement;
pub use reason::{Reason, Refusal, Rule, Tally, tally};
pub use requirements::{
    FleetOption, MetadataProblem, Parsed, RequirementError, RequirementErrorKind,
    RequirementErrors, RequirementWarning, RequirementWarningKind, Requirements, Strictness,
};
pub use snapshot::{Fault, Snapshot};
pub use target_state::{InvalidTransition, TargetState, Transition, UnknownTargetState, Verb};
pub use task::{Task, TaskReason};
pub use time::Timestamp;
pub use unit::Unit;
pub use unit_state::{
    ActiveState, ExitStatus, LoadState, SystemdState, UnitState, UnknownSystemdState,
};

//! The nouns of a fleet cluster and the rules by which they change.
//!
//! Everything here is pure: no clock, no socket, no file, no thread. The other crates bring those;
//! this one says what a unit, a machine and a placement are, what a unit file's `[X-Fleet]` section
//! demands, which changes of a desired state make sense, and what a machine has to do to reach it.
//!
//! | question | answered by |
//! |---|---|
//! | What does this unit demand of a machine? | [`Requirements::parse`] |
//! | May `fleetctl stop` follow `fleetctl submit`? | [`Verb::apply`] |
//! | What must this machine do next? | [`converge`] |
//! | Why does this unit not run? | [`Reason`] |
//! | What did the cluster look like at one revision? | [`Snapshot`] |
#![forbid(unsafe_code)]

mod converge;
mod cycle;
mod machine;
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
pub use unit_state::{ActiveState, ExitStatus, LoadState, SystemdState, UnitState};

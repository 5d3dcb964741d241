//! Everything that most embedders need, types of `fleet_core` and `fleet_unitfile` included.
//!
//! ```
//! use fleet_scheduler::prelude::*;
//! ```

pub use fleet_core::refusal::Rule;
pub use fleet_core::{
    Epoch, Machine, MachineId, Reason, Refusal, Requirements, Resources, Revision, Snapshot,
    TargetState, Unit,
};
pub use fleet_unitfile::{UnitFile, UnitName};

pub use crate::amounts::{cpu, disk, gib, memory, mib, millicpu};
pub use crate::policy::{Candidate, HardRule, Policy, Ranking, RetryOn, Score, View};
pub use crate::{
    Change, Cluster, Demand, DemandError, Drain, DrainPlan, Explanation, HoldReason,
    PlacementVerdict, Plan, Rebalance, RemovalReason, Step, StepAction, StepCause, Violation,
    apply, check, check_with, explain, plan, share,
};

//! Model of an init, in which all unit states are computed from the dependency graph.
//!
//! An [`InitUnit`] provides *targets* and depends on targets of other units. The kind of each
//! dependency is an [`EdgeKind`]. One target is the *goal*. The goal and the dependencies determine
//! which units are needed, so no command starts or stops a single unit.
//!
//! | folder | contents | imports |
//! |---|---|---|
//! | `model` | what a unit is | |
//! | `build` | units to a [`Graph`], or all their errors | `model` |
//! | `planner` | [`InitState`]: a graph and events to actions | `model`, `build` |
//! | [`mod@format`] | stanzas to units, and units to stanzas | `model`, `build` |
//! | [`systemd`] | unit files of systemd to units; timers | `model`, `build` |
//! | `convert` (feature) | files of other inits to stanzas | all but `planner` |

mod build;
#[cfg(feature = "convert")]
pub mod convert;
pub mod format;

mod model;
mod planner;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod systemd;

pub use build::{DependencyCycle, Graph, GraphError, SettingConflict, Settings};
pub use model::condition;
pub use model::{
    Amount, Command, ConditionKind, ConditionResult, ConditionTest, DelayGrowth, DirectoryPath,
    EdgeKind, EnvironmentFile, ExecEnvironment, ExecOutput, Exit, ExitType, InitUnit, InvalidName,
    Kill, KillMode, LinePattern, LinePatternError, Name, NotifyAccess, OnCleanExit, Readiness,
    ResourceLimits, Restart, RestartLimit, RestartWhen, Rlimits, Run, ServiceType, Signal,
    StatusSet, Target, Timeouts, UnitCondition, WatchdogAction, WorkingDirectory, cgroup_filters,
    exec_options, sandbox,
};
pub use planner::{
    ActionKind, Activity, BlockedBy, DerivedState, EventKind, FailureCause, Incarnation, InitState,
    NotReloadable, Observation, ObservedUnit, Phase, PlannedAction, Preview, Retry, StartRateLimit,
    StatusReport, StopOutcome, StopReason, UnitAction, UnitEvent, UnitPreview, WaitReason,
};

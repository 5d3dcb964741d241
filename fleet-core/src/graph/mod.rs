//! Model of an init, in which all unit states are computed from the dependency graph.
//!
//! An [`InitUnit`] provides *targets* and depends on targets of other units. The kind of each
//! dependency is an [`EdgeKind`]. One target is the *goal*. The goal and the dependencies determine
//! which units are needed, so no command starts or stops a single unit.

mod adjacency;
mod assembly;
mod build;
mod command;
mod condition;
pub mod convert;
mod cycle;
mod derived_state;
mod edge;
mod error;
mod event;
mod exec_environment;
mod name;
mod observation;
mod phase;
mod restart;
mod run;
mod settings;
mod signal;
mod state;
mod status_set;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod systemd;
pub mod text;
mod unit;
mod validity;

pub use build::Graph;
pub use command::Command;
pub use condition::{ConditionResult, ConditionTest, UnitCondition};
pub use derived_state::{BlockedBy, DerivedState, Retry, StatusReport, WaitReason};
pub use edge::EdgeKind;
pub use error::{DependencyCycle, GraphError, SettingConflict};
pub use event::{ActionKind, EventKind, Incarnation, UnitAction, UnitEvent};
pub use exec_environment::{
    DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, ResourceLimits, Rlimits,
    WorkingDirectory,
};
pub use name::{InvalidName, Name, Target};
pub use observation::{Observation, ObservedUnit, StartRateLimit};
pub use phase::{Activity, Exit, FailureCause, Phase, StopOutcome, StopReason};
pub use restart::{DelayGrowth, Restart, RestartLimit, RestartWhen};
pub use run::{Kill, KillMode, NotifyAccess, OnCleanExit, Run, WatchdogAction};
pub use settings::Settings;
pub use signal::Signal;
pub use state::{InitState, NotReloadable, PlannedAction, Preview, UnitPreview};
pub use status_set::StatusSet;
pub use unit::{InitUnit, LinePattern, LinePatternError, Readiness, ServiceType, Timeouts};

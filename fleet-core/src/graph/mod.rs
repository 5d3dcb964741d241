//! The model of an init whose state is a computed function of its dependency graph.
//!
//! A [`InitUnit`] provides *targets*, and depends on targets of other units by [`EdgeKind`]s. One
//! target is the *goal*; which units have to be up follows from it alone, and nobody starts or
//! stops a unit by a command.

mod assembly;
mod build;
mod circle;
mod command;
mod condition;
pub mod convert;
mod edge;
mod event;
mod flaw;
mod name;
mod net;
mod observation;
mod phase;
mod restart;
mod run;
mod settings;
mod shown;
mod signal;
mod status;
#[cfg(feature = "proptest")]
pub mod strategies;
mod surroundings;
mod system;
pub mod systemd;
pub mod text;
mod unit;
mod validity;

pub use build::Graph;
pub use command::Command;
pub use condition::{Condition, ConditionResult, ConditionTest};
pub use edge::EdgeKind;
pub use event::{ActionKind, EventKind, Incarnation, UnitAction, UnitEvent};
pub use flaw::{DependencyCycle, GraphError, SettingConflict};
pub use name::{InvalidName, Name, Target};
pub use observation::{Observation, ObservedUnit, StartRateLimit};
pub use phase::{Activity, Exit, FailureCause, Phase, StopOutcome, StopReason};
pub use restart::{DelayGrowth, Restart, RestartLimit, RestartWhen};
pub use run::{Kill, KillMode, NotifyAccess, OnCleanExit, Run, WatchdogAction};
pub use settings::Settings;
pub use shown::{BlockedBy, DerivedState, Retry, StatusReport, WaitReason};
pub use signal::Signal;
pub use status::StatusSet;
pub use surroundings::{
    DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, ResourceLimits, Rlimits,
    WorkingDirectory,
};
pub use system::{InitState, NotReloadable, PlannedAction, Preview, UnitPreview};
pub use unit::{InitUnit, LinePattern, LinePatternError, Readiness, ServiceType, Timeouts};

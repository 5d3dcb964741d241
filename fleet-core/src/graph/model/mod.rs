//! What a unit is.

pub mod condition;
pub mod exec_options;
mod run;
pub mod sandbox;
mod signal;
mod unit;

pub use condition::{ConditionKind, ConditionResult, ConditionTest, UnitCondition};
pub use run::{
    Command, DelayGrowth, DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, Exit, Kill,
    KillMode, NotifyAccess, OnCleanExit, ResourceLimits, Restart, RestartLimit, RestartWhen,
    Rlimits, Run, StatusSet, WatchdogAction, WorkingDirectory,
};
pub use signal::Signal;
pub use unit::{
    EdgeKind, InitUnit, InvalidName, LinePattern, LinePatternError, Name, Readiness, ServiceType,
    Target, Timeouts,
};

//! What a unit is.

pub mod condition;
mod edge;
pub mod exec_options;
mod run;
pub mod sandbox;
mod signal;
mod unit;

pub use condition::{ConditionKind, ConditionResult, ConditionTest, UnitCondition};
pub use edge::EdgeKind;
pub use run::{
    Command, DelayGrowth, DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, Exit, Kill,
    KillMode, NotifyAccess, OnCleanExit, ResourceLimits, Restart, RestartLimit, RestartWhen,
    Rlimits, Run, StatusSet, WatchdogAction, WorkingDirectory,
};
pub use signal::Signal;
pub use unit::{
    InitUnit, InvalidName, LinePattern, LinePatternError, Name, Readiness, ServiceType, Target,
    Timeouts,
};

//! What a unit is.

pub mod cgroup_filters;
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
    Amount, Command, DelayGrowth, DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput,
    Exit, ExitType, Kill, KillMode, NotifyAccess, OnCleanExit, ResourceLimits, Restart,
    RestartLimit, RestartWhen, Rlimits, Run, StatusSet, WatchdogAction, WorkingDirectory,
};
pub use signal::Signal;
pub use unit::{
    InitUnit, InvalidName, LinePattern, LinePatternError, Name, Readiness, ServiceType, Target,
    Timeouts,
};

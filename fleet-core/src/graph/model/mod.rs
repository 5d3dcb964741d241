//! What a unit is.

mod edge;
mod run;
mod signal;
mod unit;

pub use edge::EdgeKind;
pub use run::{
    Command, DelayGrowth, DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, Exit, Kill,
    KillMode, NotifyAccess, OnCleanExit, ResourceLimits, Restart, RestartLimit, RestartWhen,
    Rlimits, Run, StatusSet, WatchdogAction, WorkingDirectory,
};
pub use signal::Signal;
pub use unit::{
    ConditionResult, ConditionTest, InitUnit, InvalidName, LinePattern, LinePatternError, Name,
    Readiness, ServiceType, Target, Timeouts, UnitCondition,
};

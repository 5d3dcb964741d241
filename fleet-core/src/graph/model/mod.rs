//! What a unit is.

mod condition;
mod exec_environment;
mod run;
mod signal;
mod unit;

pub use self::unit::{InvalidName, Name, Target};
pub use condition::{ConditionResult, ConditionTest, UnitCondition};
pub use exec_environment::{
    DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, ResourceLimits, Rlimits,
    WorkingDirectory,
};
pub use run::{
    Command, DelayGrowth, Exit, Kill, KillMode, NotifyAccess, OnCleanExit, Restart, RestartLimit,
    RestartWhen, Run, StatusSet, WatchdogAction,
};
pub use signal::Signal;
pub use unit::{
    EdgeKind, InitUnit, LinePattern, LinePatternError, Readiness, ServiceType, Timeouts,
};

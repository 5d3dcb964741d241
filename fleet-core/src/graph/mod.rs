//! The model of an init whose state is a computed function of its dependency graph.
//!
//! A [`Unit`] provides *targets*, and depends on targets of other units by [`EdgeKind`]s. One
//! target is the *goal*; which units have to be up follows from it alone, and nobody starts or
//! stops a unit by a command.

mod command;
mod condition;
mod edge;
mod name;
mod restart;
mod run;
mod settings;
mod signal;
mod status;
mod surroundings;
pub mod systemd;
mod unit;

pub use command::Command;
pub use condition::{Condition, Test, Verdict};
pub use edge::EdgeKind;
pub use name::{Name, NameProblem, Target};
pub use restart::{Growth, Limit, Restart, RestartWhen};
pub use run::{Abort, AfterExit, Kill, KillMode, NotifyAccess, Run};
pub use settings::Settings;
pub use signal::Signal;
pub use status::StatusSet;
pub use surroundings::{
    Directory, EnvironmentFile, Limits, Output, Place, Resources, Surroundings,
};
pub use unit::{Kind, Pattern, PatternProblem, Readiness, TimeOuts, Unit};

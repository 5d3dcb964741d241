//! The model of an init whose state is a computed function of its dependency graph.
//!
//! A [`Unit`] provides *targets*, and depends on targets of other units by [`EdgeKind`]s. One
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
pub use condition::{Condition, Test, Verdict};
pub use edge::EdgeKind;
pub use event::{Action, Event, Happening, Incarnation, Order};
pub use flaw::{Circle, Contradiction, Flaw};
pub use name::{Name, NameProblem, Target};
pub use observation::{Observation, Observed, Starts};
pub use phase::{Activity, Cause, Ending, Exit, Phase, StopReason};
pub use restart::{Growth, Limit, Restart, RestartWhen};
pub use run::{Abort, AfterExit, Kill, KillMode, NotifyAccess, Run};
pub use settings::Settings;
pub use shown::{Obstacle, Retry, Shown, State, Waiting};
pub use signal::Signal;
pub use status::StatusSet;
pub use surroundings::{
    Directory, EnvironmentFile, Limits, Output, Place, Resources, Surroundings,
};
pub use system::{Fate, Foreseen, Foresight, NotReloadable, System};
pub use unit::{Kind, Pattern, PatternProblem, Readiness, TimeOuts, Unit};

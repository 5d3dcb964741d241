//! Units of systemd as units of the graph.
//!
//! ```text
//! unit file ── compile ──> Compiled ┐
//! unit file ── compile ──> Compiled ┼── link ──> units with edges, refusals, remarks
//! unit file ── compile ──> Refusals ┘
//! ```
//!
//! [`compile`] reads one file by itself. Every option is honoured, known to mean nothing here, or
//! refused with its place, the reason and what to write instead; [`standing`] tells which, and
//! [`Site`] what an operator accepts all the same. [`link`] knows all units, and makes edges of
//! what they say of one another.

mod command;
mod compile;
mod condition;
mod draft;
mod limit;
mod link;
mod refusal;
mod relation;
mod resource;
mod restart;
mod service;
mod site;
mod standing;
mod statuses;
mod surroundings;
mod table;
mod table_of_services;
mod timer;
mod value;

pub use compile::{Compiled, compile};
pub use link::{Linked, Outside, link};
pub use refusal::{Cause, Position, Refusal, Refusals, Remark};
pub use relation::{Relation, RelationKind};
pub use site::Site;
pub use standing::{Standing, standing};
pub use timer::{
    Delay, Due, Look, Moment, Origin, Past, Sight, Timer, TimerLife, TimerMemory, TimerPhase,
    Trigger, Zones,
};

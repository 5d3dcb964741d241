//! Compiles systemd unit files to units of the graph.
//!
//! ```text
//! unit file ── compile ──> CompiledUnit ┐
//! unit file ── compile ──> CompiledUnit ┼── link ──> units with edges, refusals, remarks
//! unit file ── compile ──> UnitRefusals ┘
//! ```
//!
//! [`compile`] reads a single file. Each option is honoured, ignored with a reason, or refused with
//! its position, the reason and a remedy. [`support`] returns how an option is handled.
//! [`AcceptedOptions`] lists refused options that an operator accepts. [`link`] gets all units and
//! turns their relations into edges and [`Effects`].

mod accept;
mod activator;
mod cgroup_filters;
mod compile;
mod condition;
mod draft;
mod effects;
mod exec_environment;
mod exec_options;
mod link;
mod privileges;
mod relation;
mod sandbox;
mod service;
mod service_options;
mod socket_options;
mod support;
mod system_calls;
mod timer;
mod value;

pub use self::support::{
    OptionPosition, RefusalCause, Remark, RemarkKind, Support, UnitRefusal, UnitRefusals,
    Unsupported, support,
};
pub use accept::{AcceptedOptions, Confinement, OptionGroup, UnknownOption};
pub use activator::{
    Activator, ActivatorFailure, ActivatorMachine, ActivatorPhase, ActivatorSource, ActivatorState,
    BindIpv6Only, ListenerKind, Path, PathTrigger, PathTriggerKind, Socket, SocketAddress,
    SocketListener, SocketOptions, TriggerLimit,
};
pub use compile::{CompileOptions, CompiledUnit, compile};
pub use effects::{Effects, UnitIndex};
pub use link::{ExternalUnits, LinkedUnits, link};
pub use relation::{Relation, RelationKind};
pub use service::ServiceDescriptors;
pub use timer::{
    DualTimestamp, LastTriggers, NextElapse, RandomizedDelay, TimeZones, Timer, TimerBase,
    TimerContext, TimerMachine, TimerPhase, TimerState, Trigger, TriggeredUnitState,
};

//! fleet's two loops, and the service managers that carry out what they decide.
//!
//! The *engine* decides which machine runs which unit; the *agent* makes its machine's
//! [`ServiceManager`] agree. Both look at the whole cluster through a
//! [`Mirror`](fleet_store::Mirror) each time something wakes them, and both decide first and act
//! afterwards.

mod agent;
mod backoff;
mod balancing;
mod clock;
mod emptying;
mod engine;
mod limit;
mod lock;
mod missing;
#[cfg(test)]
mod missing_tests;
mod native;
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "only who measures it reaches it from outside")
)]
mod planner;
mod pulse;
mod readable;
pub mod remote;
mod service_manager;
mod shutdown;
#[cfg(feature = "systemd")]
mod systemd;
mod wake;
mod whole;
mod witness;

#[cfg(feature = "testing")]
pub mod testing;

pub use agent::{Agent, AgentConfig, Note, Notes, NotesInMemory, NotesOnDisk};
pub use clock::{Clock, SystemClock, wall_time};
pub use engine::{Engine, EngineConfig};
pub use native::{
    BadExternal, External, NativeConfig, NativeManager, Runner, RunnerConfig, RunnerError,
    Snapshot, Tracking, Trial, Tried, UnitStatus, Wanted, give_back_memory,
    hand_down_no_descriptors, keep_one_heap, machine_facts, raise_file_limit, remove_empty_groups,
};
pub use pulse::{Beat, LONGEST_TURN, Pulse, Watched};
pub use service_manager::{
    Drift, Journal, JournalLine, JournalQuery, ManagedUnit, Particulars, ServiceError,
    ServiceManager, StateChanges, StateFeed,
};
pub use shutdown::{Shutdown, ShutdownTrigger};
#[cfg(feature = "systemd")]
pub use systemd::{SystemdConfig, SystemdManager, SystemdScope};
pub use witness::{AgentTally, EngineWitness};

/// The examples of the page that introduces the crate compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

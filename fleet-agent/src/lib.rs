//! The two loops of fleet, and the service managers that run the units.
//!
//! The *engine* decides which machine runs which unit. The *agent* makes the [`ServiceManager`] of
//! its machine agree with these decisions. When a change wakes one of these loops, the loop reads
//! the whole cluster from a [`Mirror`](fleet_store::Mirror), decides, and acts only afterwards.

pub mod agent;
mod async_fd;
mod backoff;
mod clock;
mod engine;
pub mod files;
pub mod journal;
#[cfg(any(feature = "native", feature = "systemd"))]
mod lock;
mod mirror_changes;
#[cfg(feature = "native")]
pub mod native;
mod observer;
mod service_manager;
mod shutdown;
#[cfg(feature = "native")]
mod sleep;
mod stop_deadline;
#[cfg(feature = "systemd")]
mod systemd;
pub mod usage;
pub mod watchdog;

#[cfg(feature = "testing")]
pub mod testing;

pub use agent::{
    Agent, AgentConfig, AgentState, DiskState, HealthProber, MemoryState, SystemProber,
};
pub use clock::{Clock, SystemClock, wall_time};
pub use engine::{Engine, EngineConfig};
#[cfg(feature = "native")]
#[doc(inline)]
pub use native::rpc as remote;
#[cfg(feature = "native")]
pub use native::{NativeConfig, NativeManager};
pub use observer::{AgentMetrics, EngineObserver};
pub use service_manager::{
    ChangeReceiver, ChangeSender, Drift, ManagedUnit, ServiceError, ServiceManager, UnitDetails,
    is_wait_reason,
};
pub use shutdown::{Shutdown, ShutdownTrigger};
#[cfg(feature = "systemd")]
pub use systemd::{SystemdConfig, SystemdManager, SystemdScope};

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

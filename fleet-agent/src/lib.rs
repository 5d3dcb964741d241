//! The two loops of fleet, and the service managers that run the units.
//!
//! The *engine* decides which machine runs which unit. The *agent* makes the [`ServiceManager`] of
//! its machine agree with these decisions. When a change wakes one of these loops, the loop reads
//! the whole cluster from a [`Mirror`](fleet_store::Mirror), decides, and acts only afterwards.

mod agent;
mod async_fd;
mod backoff;
mod clock;
mod engine;
mod files;
#[cfg(any(feature = "native", feature = "systemd"))]
mod lock;
mod mirror_changes;
#[cfg(feature = "native")]
mod native;
mod observer;
mod service_manager;
mod shutdown;
#[cfg(feature = "native")]
mod sleep;
mod stop_deadline;
#[cfg(feature = "systemd")]
mod systemd;
mod watchdog;

#[cfg(feature = "testing")]
pub mod testing;

pub use agent::{
    Agent, AgentConfig, AgentState, DiskState, MemoryState, StateKey, accept_any_store,
    protected_lineage,
};
pub use clock::{Clock, SystemClock, wall_time};
pub use engine::{Engine, EngineConfig};
pub use files::{create_dir_with_mode, create_private_dir, write_atomic};
#[cfg(feature = "native")]
pub use native::rpc as remote;
#[cfg(feature = "native")]
pub use native::{
    BadExternal, DesiredTargets, External, InitDryRun, InitDryRunResult, InitSnapshot,
    InitSupervisor, NativeConfig, NativeManager, SupervisorConfig, SupervisorError, Tracking,
    UnitSnapshot, current_boot, group_exists, is_current_boot, machine_specifiers,
    raise_file_limit, remove_empty_cgroups, set_cloexec_on_all, user_exists,
};
pub use observer::{AgentMetrics, EngineObserver};
pub use service_manager::{
    ChangeReceiver, ChangeSender, Drift, Journal, JournalLine, JournalQuery, ManagedUnit,
    ServiceError, ServiceManager, UnitDetails,
};
pub use shutdown::{Shutdown, ShutdownTrigger};
#[cfg(feature = "systemd")]
pub use systemd::{SystemdConfig, SystemdManager, SystemdScope};
pub use watchdog::{Heartbeat, MAX_BUSY, Monitored, Watchdog};

/// Compiles and runs the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

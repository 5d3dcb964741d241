//! A service manager that runs units itself, on machines without systemd.
//!
//! ```text
//! frontends ── Command ──> supervisor ── RunUpdate ──> run ──> linux   processes, cgroups, signals
//!     ^  ^                   │  │  ^                   │ └───> log     output of the units
//!     │  └──── statuses ─────┘  │  └──── RunReport ────┘
//! rpc ┘                         └──> state   everything that outlives this process
//! ```
//!
//! | folder | contents |
//! |---|---|
//! | `frontends` | the units of fleet-init's files, and the service manager of fleetd |
//! | `rpc` | a service manager in another process, over a unix socket |
//! | `supervisor` | the one task that decides for all units, by the graph; timers; recovery |
//! | `run` | one run of one unit: the state machine (pure) and its driver |
//! | `log` | the output of one unit: a file within a limit, its lines and their times |
//! | `state` | records on disk, from which the next process continues |
//! | `linux` | system calls and `/proc`; `host` is the public part |
//!
//! An idle manager polls nothing and does not wake up. Processes are reaped as children or watched
//! through a pidfd. Timers use the clock, and log writes are noticed through inotify.

mod frontends;
pub mod host;
mod linux;
mod log;
#[doc(hidden)] // Public as `fleet_agent::remote`
pub mod rpc;
mod run;
mod state;
mod supervisor;

pub use frontends::files::InitSupervisor;
pub use frontends::manager::{NativeConfig, NativeManager};
pub use linux::process_table::Tracking;
pub use state::desired_targets::DesiredTargets;
pub use supervisor::managed_units::external::{BadExternal, External};
pub use supervisor::{
    InitDryRun, InitDryRunResult, InitSnapshot, SupervisorConfig, SupervisorError, UnitSnapshot,
};

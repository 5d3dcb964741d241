//! A service manager that runs units itself, on machines without systemd.
//!
//! ```text
//!         fleet-init                         fleetd
//!             │                                │   another process, over a socket: rpc
//!   frontends: files                  frontends: manager  (ServiceManager)
//!             │  ^                             │  ^
//!     Command │  │ InitSnapshot        Command │  │ PublishedStatus
//!             v  │                             v  │
//!        ┌───────────────────────────────────────────┐  events   ┌──────────────────────┐
//!        │ supervisor: one task for all units        │ ────────> │ planner, pure:       │
//!        │                                           │ <──────── │ fleet_core::graph    │
//!        └───────────────────────────────────────────┘  actions  └──────────────────────┘
//!           │  ^                             │
//! RunUpdate │  │ RunReport                   │ records
//!           v  │                             v
//!        run: one task per run ── records ─> state: everything that outlives this process
//!           │            │
//!           v            v
//!        linux          log <── output ── processes of the unit
//! ```
//!
//! 1. A frontend sends a [`Command`](supervisor::command::Command), and reads what the supervisor
//!    publishes. It touches nothing else.
//! 2. The supervisor passes requests and events to the planner, and carries out the actions that
//!    follow: it starts the task of a run, or sends it an action or an update.
//! 3. A run drives its processes through `linux`, and reports events and its state.
//! 4. The supervisor publishes the changed states, and answers the callers that wait for them.
//!
//! Each record is written by `state` before the action that it describes. Units write to their logs
//! themselves; `log` limits and reads these files.
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
pub use linux::cgroup::remove_empty_cgroups;
pub use linux::identity::{group_exists, machine_specifiers, user_exists};
pub use linux::limits::{raise_file_limit, set_cloexec_on_all};
pub use linux::proc::{current_boot, is_current_boot};
pub use linux::process_table::Tracking;
pub use state::desired_targets::DesiredTargets;
pub use supervisor::managed_units::external::{BadExternal, External};
pub use supervisor::{
    InitDryRun, InitDryRunResult, InitSnapshot, SupervisorConfig, SupervisorError, UnitSnapshot,
};

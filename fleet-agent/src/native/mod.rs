//! A service manager that runs units itself, on machines without systemd.
//!
//! ```text
//!        command line of fleet-init      fleetd: RemoteManager
//!                 │           │                    │
//!     socket: rpc │           └────────┐           │ socket: rpc
//!                 v                    v           v
//!        fleet-init run PATH         fleet-init run --fleet         fleetd itself
//!                 │                                └──────┬───────────────┘
//!                 v                                       v
//!  frontends: InitSupervisor                        NativeManager    (both) <── lines ── log
//!              ^     │                             ^      │
//!              │     │                             │   requests ── records ──> state
//!      changes │     │ Command           Statuses, │      │ Command
//!              │     v                        feed │      v
//!    ┌─────────────────────────────────────────────────────┐  events   ┌───────────────────┐
//!    │ supervisor: one task for all units                  │ ────────> │ planner, pure:    │
//!    │                                                     │ <──────── │ fleet_core::graph │
//!    └─────────────────────────────────────────────────────┘  actions  └───────────────────┘
//!      │ ActionKind,  ^                         │
//!      │ RunUpdate    │ RunReport               │ records
//!      v              │                         v
//!    run: one task per run ───── records ────> state: everything that outlives this process
//!      │                  │
//!      v                  v
//!    linux               log <── output ── processes of the unit
//! ```
//!
//! 1. A frontend sends a `Command` and gets its answer, such as an [`InitSnapshot`]. For loaded
//!    units it does so through `requests`, which stores the requested state first. A frontend also
//!    reads published states and logs, and `NativeManager` marks a shutdown on disk. A frontend
//!    never touches a process or the planner.
//! 2. The supervisor passes requests and events to the planner, and carries out the actions that
//!    follow: it starts the task of a run, or sends it an action or an update.
//! 3. A run drives its processes through `linux`, and reports events and its state.
//! 4. The supervisor publishes the changed states, and answers the callers that wait for them.
//!    Published are the `Statuses` of loaded units, the `feed` of their changes, and `changes`, a
//!    counter that increases whenever a snapshot may have changed.
//!
//! A loaded file, a requested state, a goal and an operator's mask are stored before they take
//! effect, and a run with its definition before it starts a process. A change of phase is stored
//! before it is reported. Restart counters and other decisions after the end of a run are stored
//! once they are made. If a write fails, a load, a start, a goal or an operator's mask is refused.
//! A failed write never prevents the stop of a loaded unit or a shutdown.
//!
//! Units write to their logs themselves; `log` limits and reads these files.
//!
//! | folder | contents |
//! |---|---|
//! | `frontends` | the units of fleet-init's files, and the service manager of fleetd |
//! | `rpc` | the protocol of a running fleet-init, over a unix socket |
//! | `supervisor` | the one task that decides for all units, by the graph; timers; recovery |
//! | `run` | one run of one unit: the state machine (pure) and its driver |
//! | `executor` | the program that confines a process before it executes that of its unit |
//! | `log` | the output of one unit: a file within a limit, its lines and their times |
//! | `state` | records on disk, from which the next process continues; shared state of all units |
//! | `linux` | system calls and `/proc`; facts of this host |
//!
//! An idle manager does not wake up. Processes are reaped as children or watched through a pidfd.
//! Timers use the clock, and log writes are noticed through inotify. Only these are polled:
//!
//! - An external unit that a loaded unit needs, once a second until it is up.
//! - A log that inotify does not report, every five seconds.
//! - The wall clock, once a second, if a timer waits for it and the kernel provides no alarm.

mod executor;
mod frontends;
pub mod linux;
mod log;
#[doc(hidden)] // Public as `fleet_agent::remote`
pub mod rpc;
mod run;
mod state;
mod supervisor;
mod unit_check;

pub use executor::{Executor, run_if_invoked};
pub use frontends::files::InitSupervisor;
pub use frontends::manager::{NativeConfig, NativeManager};
pub use linux::process_table::Tracking;
pub use state::desired_targets::DesiredTargets;
pub use supervisor::managed_units::external::{BadExternal, External};
pub use supervisor::{
    InitDryRun, InitDryRunResult, InitSnapshot, SupervisorConfig, SupervisorError, UnitSnapshot,
};
pub use unit_check::{check_unit, native_info};

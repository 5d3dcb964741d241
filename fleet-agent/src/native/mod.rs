//! A service manager that runs units itself, on machines without systemd.
//!
//! ```text
//! manager ── client ──> supervisor ── a task per run: run_driver ──> run_machine  next step (pure)
//!    │                      │                             │
//!    │ compile:             └ decides, by a graph         ├──> process, child     spawn, reap
//!    └ unit file ->                                       ├──> kill_all, cgroup   signal, wait
//!      unit of the graph                                  └──> unit_directory, log   storage
//! ```
//!
//! An idle manager polls nothing and does not wake up. Processes are reaped as children or watched
//! through a pidfd. Timers use the clock, and log writes are noticed through inotify.

mod adopt;
mod best_effort_limits;
mod blocking_fs;
mod boot;
mod cgroup;
mod child;
mod client;
mod close_on_exec;
mod compile;
mod conditions;
mod cursor;
mod descriptors;
mod environment;
mod exec_context;
mod exec_step;
mod exit;
mod external;
mod identity;
mod inotify;
mod journal;
mod kill_all;
mod log;
#[cfg(test)]
mod log_bound_tests;
mod manager;
mod manager_context;
mod nonblocking_open;
#[cfg(test)]
mod notification_tests;
mod os_release;
mod outcome;
mod pidfile;
mod probe_cache;
mod proc;
mod process;
mod process_info;
mod process_table;
mod program;
mod rate_limited_log;
mod readiness_line;
#[cfg(test)]
mod readiness_tests;
mod resources;
mod run_driver;
mod run_journal;
mod run_machine;
#[cfg(test)]
mod run_machine_tests;
#[cfg(test)]
mod run_property_tests;
mod run_state;
mod running_units;
mod runtime_directory;
mod sd_notify_message;
mod sd_notify_socket;
mod shutdown_marker;
mod signals;
mod spawn;
#[cfg(test)]
mod spawn_tests;
mod specifier_values;
mod supervisor;
mod support;
#[cfg(test)]
mod support_tests;
mod systemd_states;
mod time_index;
mod timer;
mod timer_targets;
mod tracking;
mod unit_directory;
mod vfork;

pub use cgroup::remove_empty_cgroups;
pub use close_on_exec::set_cloexec_on_all;
pub use descriptors::raise_file_limit;
pub use external::{BadExternal, External};
pub use identity::{group_exists, user_exists};
pub use manager::{NativeConfig, NativeManager};
pub(crate) use proc::boot_id;
pub use specifier_values::machine_specifiers;
pub use supervisor::{
    DesiredTargets, InitDryRun, InitDryRunResult, InitSnapshot, InitSupervisor, SupervisorConfig,
    SupervisorError, UnitSnapshot,
};
pub use tracking::Tracking;

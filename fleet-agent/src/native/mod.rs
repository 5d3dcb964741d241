//! A service manager that runs units itself, on machines without systemd.
//!
//! ```text
//! manager ── calls ──> runner ── one task for each run: drive ──> service   what to do next (pure)
//!    │                   │                          │
//!    │ compile:          └ decides, by a graph      ├──> process, child  start
//!    └ unit file ->                                 ├──> sweep, cgroup   signal, wait
//!      unit of the graph                            └──> record, log     what is kept on disk
//! ```
//!
//! Nothing is polled: processes are waited for as children or by a descriptor of the kernel's, time
//! by the clock, and the writing of logs by inotify. While nothing happens nobody wakes.

mod abilities;
#[cfg(test)]
mod abilities_tests;
mod adopt;
#[cfg(test)]
mod any_life_tests;
mod birth;
#[cfg(test)]
mod birth_tests;
mod boot;
mod calls;
mod census;
mod cgroup;
mod changes;
mod child;
mod closest;
mod compile;
mod conditions;
mod descriptors;
mod drive;
mod end;
mod environment;
mod exit;
mod external;
mod facts;
mod heap;
mod identity;
mod inherited;
mod journal;
mod life;
mod log;
#[cfg(test)]
mod log_bound_tests;
mod look;
mod machine;
mod manager;
mod moments;
mod notice;
mod notify;
mod opening;
mod outcome;
mod patience;
mod pidfile;
mod plan;
mod position;
mod proc;
mod process;
mod program;
#[cfg(test)]
mod readiness_tests;
mod ready;
mod record;
mod records;
mod release;
mod resources;
mod runner;
mod seldom;
mod service;
#[cfg(test)]
mod service_tests;
mod signals;
mod step;
mod sweep;
#[cfg(test)]
mod talking_tests;
mod timer;
mod tracking;
mod triggered;
mod vfork;
mod words;

pub use cgroup::remove_empty_groups;
pub use descriptors::raise_file_limit;
pub use external::{BadExternal, External};
pub use facts::machine_facts;
pub use heap::{give_back_memory, keep_one_heap};
pub use inherited::hand_down_no_descriptors;
pub use manager::{NativeConfig, NativeManager};
pub(crate) use proc::boot_id;
pub use runner::{Runner, RunnerConfig, RunnerError, Snapshot, Trial, Tried, UnitStatus, Wanted};
pub use tracking::Tracking;

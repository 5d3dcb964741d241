//! A service manager that runs units itself, on machines without systemd.
//!
//! ```text
//! manager ── one task for each unit: supervise ──> drive ──> service      what to do next (pure)
//!    │                                               │
//!    │ compile: unit file -> spec (pure)             ├──> process, child  start
//!    │                                               ├──> sweep, cgroup   signal, wait
//!    └ adopt: what an earlier daemon left            └──> record, log     what is kept on disk
//! ```
//!
//! Nothing is polled: processes are waited for as children or by a descriptor of the kernel's, time
//! by the clock, followers of a log by inotify. How large logs are, and when they were written, is
//! the one thing that is looked at now and then, and only while something runs.

mod adopt;
mod cgroup;
mod changes;
mod child;
mod command;
mod compile;
#[cfg(test)]
mod compile_tests;
mod context;
mod drive;
mod environment;
mod exit;
mod identity;
mod journal;
mod life;
mod log;
mod machine;
mod manager;
mod moments;
mod notice;
mod notify;
mod options;
mod outcome;
mod pidfile;
mod proc;
mod process;
mod record;
mod service;
#[cfg(test)]
mod service_tests;
mod signals;
mod spec;
mod start_limit;
mod supervise;
mod sweep;
#[cfg(test)]
mod talking_tests;
mod tracking;
mod words;

pub use manager::{NativeConfig, NativeManager};
pub(crate) use proc::boot_id;
pub use tracking::Tracking;

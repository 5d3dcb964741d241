//! One run of one unit, from its start until none of its processes is left.
//!
//! `machine` decides, without I/O. `driver` carries its actions out and passes events to it.

pub(super) mod adopt;
pub(super) mod blocking_fs;
pub(super) mod conditions;
pub(super) mod driver;
pub(super) mod exec_context;
pub(super) mod kill_all;
#[cfg(test)]
pub(super) mod log_bound_tests;
pub(super) mod machine;
pub(super) mod pidfile;
pub(super) mod process;
pub(super) mod readiness_line;
#[cfg(test)]
pub(super) mod readiness_tests;
pub(super) mod sd_notify_socket;
#[cfg(test)]
mod spawn_tests;

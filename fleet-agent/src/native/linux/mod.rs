//! The kernel's interfaces: processes, control groups, users, limits, signals and file events.
//!
//! It imports no other folder of the service manager.

pub(super) mod boot;
pub(super) mod cgroup;
pub(super) mod child;
pub(super) mod descriptors;
pub(super) mod environment_file;
pub(super) mod exit;
pub(super) mod identity;
pub(super) mod inotify;
pub(super) mod nonblocking_open;
pub(super) mod probe_cache;
pub(super) mod proc;
pub(super) mod process_info;
pub(super) mod process_table;
pub(super) mod program;
pub(super) mod resources;
pub(super) mod signals;
pub(super) mod spawn;
pub(super) mod specifiers;
pub(super) mod vfork;

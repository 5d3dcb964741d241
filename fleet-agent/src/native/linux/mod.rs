//! The kernel's interfaces: processes, control groups, users, limits, signals and file events.
//!
//! It imports no other folder of the service manager. Public are the facts of this host, and the
//! settings of this process, that a supervisor needs.
//!
//! | module | topic |
//! |---|---|
//! | `spawn`, `child`, `vfork` | the start of a process, up to the exec of its program |
//! | `proc`, `exit` | the end of a process, also of one that is not a child; the current boot |
//! | `process_info`, `process_table`, `probe_cache` | the processes of a run, found by a scan |
//! | `cgroup`, `limits` | control groups; limits of open files and of groups |
//! | `identity` | users, groups, and the values of specifiers |
//! | `dynamic_user`, `ipc` | users that exist while a unit runs, and their IPC objects |
//! | `sockets` | sockets and FIFOs at which services listen |
//! | `files` | files that units name, and changes of files |

pub(super) mod cgroup;
pub(super) mod child;
pub(super) mod dynamic_user;
pub(super) mod exit;
pub(super) mod files;
pub(super) mod identity;
pub(super) mod ipc;
pub(super) mod limits;
pub(super) mod probe_cache;
pub(super) mod proc;
pub(super) mod process_info;
pub(super) mod process_table;
pub(super) mod sockets;
pub(super) mod spawn;
pub(super) mod vfork;

pub use cgroup::remove_empty_cgroups;
pub use identity::{group_exists, machine_specifiers, user_exists};
pub use limits::{raise_file_limit, set_cloexec_on_all};
pub use proc::{current_boot, is_current_boot};

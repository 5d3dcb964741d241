//! Facts of this host, and settings of this process, that a supervisor needs.

pub use super::linux::cgroup::remove_empty_cgroups;
pub use super::linux::identity::{group_exists, machine_specifiers, user_exists};
pub use super::linux::limits::{raise_file_limit, set_cloexec_on_all};
pub use super::linux::proc::{current_boot, is_current_boot};

//! Facts of this host, and settings of this process, that a supervisor needs.

pub use super::cgroup::remove_empty_cgroups;
pub use super::identity::{group_exists, machine_specifiers, user_exists};
pub use super::limits::{raise_file_limit, set_cloexec_on_all};
pub use super::proc::{current_boot, is_current_boot};

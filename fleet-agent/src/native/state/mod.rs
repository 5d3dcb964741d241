//! Everything on disk from which the next process continues, and the state that all units share.
//!
//! The records are unit files, requested states, runs with their definitions (stanzas), desired
//! targets, timers, and the marks of the boot and of a shutdown. Other folders use them only
//! through this one. There are two exceptions:
//!
//! - `log` stores the base offset of a log in a file beside it (`log/hole.rs`).
//! - `crate::lock` locks the directory. The [context](manager_context::ManagerContext) holds the
//!   lock.
//!
//! | module | topic |
//! |---|---|
//! | `manager_context` | state shared by all units of one manager; marks of boot and shutdown |
//! | `runtime_directory` | the directory for state that a reboot makes meaningless |
//! | `unit_directory`, `run_journal` | records of a unit: a directory, or one file for all units |
//! | `desired_targets`, `timer_record` | goal, extra targets and masks; the state of timers |

pub(super) mod desired_targets;
pub(super) mod manager_context;
pub(super) mod run_journal;
pub(super) mod runtime_directory;
pub(super) mod timer_record;
pub(super) mod unit_directory;

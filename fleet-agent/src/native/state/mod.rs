//! Everything on disk from which the next process continues, and the state that all units share.
//!
//! The records are unit files, requested states, runs with their definitions (stanzas), desired
//! targets, timers, activators, and the marks of the boot and of a shutdown. Other folders use them
//! only through this one. There are two exceptions:
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
//! | `desired_targets` | goal, extra targets and masks |
//! | `timer_record`, `activator_record` | the state of timers, sockets and paths |

pub(super) mod activator_record;
pub(super) mod desired_targets;
pub(super) mod manager_context;
pub(super) mod run_journal;
pub(super) mod runtime_directory;
pub(super) mod timer_record;
pub(super) mod unit_directory;

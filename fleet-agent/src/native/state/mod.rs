//! Everything on disk from which the next process continues: records of runs, requested states, and
//! the mark of a shutdown.

pub(super) mod desired_targets;
pub(super) mod manager_context;
pub(super) mod run_journal;
pub(super) mod runtime_directory;
pub(super) mod shutdown_marker;
pub(super) mod timer_record;
pub(super) mod unit_directory;

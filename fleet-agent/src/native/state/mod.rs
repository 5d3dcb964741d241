//! Everything on disk from which the next process continues: records of runs, requested states, and
//! the mark of a shutdown. No other folder reads or writes records.
//!
//! | module | topic |
//! |---|---|
//! | `manager_context` | what all units of one manager share; the mark of a shutdown |
//! | `runtime_directory` | the directory for state that a reboot makes meaningless |
//! | `unit_directory`, `run_journal` | records of a unit: a directory, or one file for all units |
//! | `desired_targets`, `timer_record` | goal, extra targets and masks; the state of timers |

pub(super) mod desired_targets;
pub(super) mod manager_context;
pub(super) mod run_journal;
pub(super) mod runtime_directory;
pub(super) mod timer_record;
pub(super) mod unit_directory;

//! One run of one unit, from its start until none of its processes is left.
//!
//! | module | topic |
//! |---|---|
//! | `machine` | decides, without I/O: phases, outcome, events for the planner |
//! | `driver` | carries out the actions of `machine`, and passes events to it |
//! | `conditions`, `exec_context`, `process` | the start of a process |
//! | `exec_resources`, `exec_directories` | directories and files that exist for the run |
//! | `sd_notify_socket`, `readiness_line`, `pidfile` | how a service reports that it is ready |
//! | `descriptors` | sockets and stored descriptors that services get |
//! | `kill_all` | the end of all processes |
//! | `adopt` | continues a run that an earlier daemon has left |

pub(super) mod adopt;
pub(super) mod conditions;
pub(super) mod descriptors;
pub(super) mod driver;
#[cfg(test)]
pub(super) mod driver_tests;
pub(super) mod exec_context;
pub(super) mod exec_directories;
pub(super) mod exec_resources;
pub(super) mod kill_all;
pub(super) mod machine;
pub(super) mod pidfile;
pub(super) mod process;
pub(super) mod readiness_line;
pub(super) mod sd_notify_socket;

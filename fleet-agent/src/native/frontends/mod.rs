//! What drives a supervisor: a goal in a graph of files, or the calls of fleetd.
//!
//! | frontend | of | units |
//! |---|---|---|
//! | `files` | fleet-init | the graph of its files; a goal, extra targets and masks select units |
//! | `manager` | fleetd, by the trait `ServiceManager` | loaded one by one, and requested by name |
//!
//! A frontend sends commands to its supervisor and reads published states. It touches nothing else
//! of the supervisor, and no process.

pub(super) mod files;
pub(super) mod manager;

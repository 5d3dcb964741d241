//! The two users of a supervisor: a goal in a graph of files, and the calls of fleetd.
//!
//! | frontend | runs in | units |
//! |---|---|---|
//! | `files`: `InitSupervisor` | `fleet-init run PATH` | selected by a goal, targets and masks |
//! | `manager`: `NativeManager` | fleetd, `fleet-init run --fleet` | loaded and requested by name |
//!
//! A frontend sends commands, for loaded units through `requests`, which stores the requested state
//! first. It reads published states and logs. `NativeManager` also marks a shutdown on disk. Before
//! a supervisor is opened, `has_used` and `running_units` read the records of its directory. A
//! frontend never touches a process or the planner.

pub(super) mod files;
pub(super) mod manager;

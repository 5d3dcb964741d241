//! The service manager of fleetd: compiles unit files, and passes calls to the supervisor in order.
//!
//! A frontend sends commands and reads states. It touches no process and no record.

pub(super) mod client;
pub(super) mod manager;
pub(super) mod timer;
pub(super) mod timer_targets;

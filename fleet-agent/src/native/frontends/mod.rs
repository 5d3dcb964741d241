//! The service manager of fleetd: passes calls for one unit to the supervisor in order, and starts
//! units by timers.
//!
//! A frontend sends requests to the supervisor and reads states. It touches no process.

pub(super) mod client;
pub(super) mod manager;
pub(super) mod timer;
pub(super) mod timer_targets;

//! What a service manager can tell of a unit beyond its state.

use std::time::Duration;

/// What a service manager can tell of a unit beyond its state, for people. It is asked for, and
/// not reported: much of it changes with each moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Particulars {
    /// In how long it is started again by itself, if it is.
    pub retry_in: Option<Duration>,
    /// What keeps it degraded, though it is up.
    pub degraded_by: Vec<String>,
    /// How its processes are found, and why not better.
    pub tracking: Option<String>,
}

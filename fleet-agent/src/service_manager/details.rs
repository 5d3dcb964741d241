//! Details of a unit beyond its state.

use std::time::Duration;

/// Details of a unit beyond its state, for display. They are read when a client asks and are not
/// published, because many of them change constantly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitDetails {
    /// Time until it is restarted automatically, if it is.
    pub retry_in: Option<Duration>,
    /// Reasons why it is degraded, though it is active.
    pub degraded_by: Vec<String>,
    /// How its processes are tracked, and why not better.
    pub tracking: Option<String>,
}

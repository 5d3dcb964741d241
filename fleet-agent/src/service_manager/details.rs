//! Details of a unit beyond its state.

use std::time::Duration;

/// Details of a unit beyond its state, for display. Many of them change constantly, so they are not
/// published, but read when a client asks for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitDetails {
    /// Time until it is restarted automatically, if it is.
    pub retry_in: Option<Duration>,
    /// Reasons why it is degraded, though it is active.
    pub degraded_by: Vec<String>,
    /// How its processes are tracked, and why not better.
    pub tracking: Option<String>,
}

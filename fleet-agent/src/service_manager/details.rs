//! Details of a unit beyond its state.

use std::time::Duration;

use fleet_core::Timestamp;

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
    /// Time of the next elapse of a timer, as in [`wall_time`](crate::wall_time). `None` for other
    /// units, and for a timer that is not waiting.
    pub next_elapse: Option<Timestamp>,
    /// Time of the last elapse of a timer, as in [`wall_time`](crate::wall_time).
    pub last_elapse: Option<Timestamp>,
}

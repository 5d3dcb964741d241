//! Pure: no I/O, no clock. Deadline by which a unit with `OnPartition=stop` has ended on a machine
//! that has lost its lease.

use std::time::Duration;

use fleet_core::Unit;

/// Inverse of the largest relative difference between two clocks that is allowed for (1 %).
/// Hardware clocks are a hundred times more accurate, but the clocks of virtual machines may be
/// worse.
const DRIFT: u32 = 100;

/// Allowance for the sum of two delays. The first passes from the time at which the agent has to
/// stop a unit until the service manager receives the call. The second passes from the SIGKILL of a
/// process until the process is gone.
const MARGIN: Duration = Duration::from_secs(5);

/// Returns the time after the end of a machine's lease by which the unit has certainly ended on
/// that machine. Callers may also count it from a later time, such as the detection of the loss.
/// The result is in whole seconds. `None` means that the stop has no time limit.
///
/// The machine stops the unit at the latest when its lease of `ttl` is over by its own clock. The
/// machine also measures the duration of the stop by that clock. So the allowance for clock drift
/// covers both the lease and the stop.
pub(crate) fn stop_deadline(unit: &Unit, ttl: Duration) -> Option<Duration> {
    let stop = unit.max_stop_duration()?;
    let drift = ttl.saturating_add(stop) / DRIFT;
    let limit = stop.saturating_add(drift).saturating_add(MARGIN);
    Some(Duration::from_secs(limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0))))
}

//! Pure: no I/O, no clock. Deadline by which a unit with `OnPartition=stop` has ended on a machine
//! that has lost its lease.

use std::time::Duration;

use fleet_core::Unit;

/// Allowance for clock drift, as a divisor: in a given time, the clocks of two machines may drift
/// apart by a hundredth of that time. Hardware clocks are a hundred times more accurate, but the
/// clocks of virtual machines may be worse.
const DRIFT: u32 = 100;

/// Allowance for the sum of two delays. The first passes from the time at which the agent has to
/// stop a unit until the service manager receives the call. The second passes from the SIGKILL of a
/// process until the process is gone.
const MARGIN: Duration = Duration::from_secs(5);

/// Returns the longest time for which a unit may still run on a machine after the machine's lease
/// of `ttl` has ended, in whole seconds. Returns `None` if the stop of the unit has no time limit.
/// A caller that does not know the end of the lease may count from a later time, such as the
/// detection of the loss.
///
/// The machine begins to stop the unit when the lease is over by its own clock, or earlier. It
/// measures the duration of the stop by the same clock. So the allowance for clock drift covers
/// both the lease and the stop.
pub(crate) fn stop_deadline(unit: &Unit, ttl: Duration) -> Option<Duration> {
    let stop = unit.max_stop_duration()?;
    let drift = ttl.saturating_add(stop) / DRIFT;
    let limit = stop.saturating_add(drift).saturating_add(MARGIN);
    Some(Duration::from_secs(limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0))))
}

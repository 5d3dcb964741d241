//! Deadline by which a unit with `OnPartition=stop` has ended on a lost machine. Pure: no I/O, no
//! clock.

use std::time::Duration;

use fleet_core::Unit;

/// Inverse of the largest assumed relative difference between two clocks that measure the same time
/// (1 %). Hardware clocks are a hundred times more accurate. The rest of the allowance is for the
/// clocks of virtual machines.
const DRIFT: u32 = 100;

/// Allowance for the sum of two delays. The first delay passes from the time at which the agent has
/// to stop a unit until its service manager has received the call. The second delay passes from the
/// SIGKILL of a process until the process is gone.
const MARGIN: Duration = Duration::from_secs(5);

/// Returns how long after the end of a machine's lease, or after a later time, the unit must have
/// ended on that machine. The result is in whole seconds. `None` means that the stop has no time
/// limit.
///
/// The machine stops the unit at the latest when its lease of `ttl` is over by the machine's own
/// clock. The machine also measures the duration of the stop by that clock. So the allowance for
/// clock drift covers both the lease and the stop.
pub(crate) fn stop_deadline(unit: &Unit, ttl: Duration) -> Option<Duration> {
    let stop = unit.max_stop_duration()?;
    let drift = ttl.saturating_add(stop) / DRIFT;
    let limit = stop.saturating_add(drift).saturating_add(MARGIN);
    Some(Duration::from_secs(limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0))))
}

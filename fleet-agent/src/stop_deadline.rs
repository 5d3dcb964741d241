//! Pure: no I/O, no clock. Deadline by which a unit with `OnPartition=stop` has ended on a lost
//! machine.

use std::time::Duration;

use fleet_core::Unit;

/// Inverse of the largest relative difference between two clocks that measure the same time (1 %).
/// Hardware clocks are a hundred times better; the rest is for virtual machines.
const DRIFT: u32 = 100;

/// Allowance for two delays together. The agent may take a while from the instant at which it has
/// to stop a unit until its service manager has the call. A process may take a while from SIGKILL
/// until it is gone.
const MARGIN: Duration = Duration::from_secs(5);

/// Returns how long after the end of a machine's lease, or a later instant, the unit must have
/// ended there, in whole seconds. `None` means that the stop has no limit.
///
/// The machine stops the unit at the latest when its lease of `ttl` is over by its own clock. It
/// measures the stop by that clock too, so the drift counts for both.
pub(crate) fn stop_deadline(unit: &Unit, ttl: Duration) -> Option<Duration> {
    let stop = unit.max_stop_duration()?;
    let drift = ttl.saturating_add(stop) / DRIFT;
    let limit = stop.saturating_add(drift).saturating_add(MARGIN);
    Some(Duration::from_secs(limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0))))
}

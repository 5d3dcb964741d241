//! Pure: no I/O, no clock. When a unit with `OnPartition=stop` must have ended on a lost machine.

use std::time::Duration;

use fleet_core::Unit;

/// By which part of a time two clocks may differ that measure it. Those of computers are a hundred
/// times better; what is left is for virtual ones.
const DRIFT: u32 = 100;

/// How long an agent may take from the moment when it must stop a unit until its service manager
/// has heard of it, and a process from its SIGKILL until it is gone.
const MARGIN: Duration = Duration::from_secs(5);

/// How long after the lease of a machine has ended, or a later moment, a unit must have ended
/// there, in whole seconds; nothing if that can take for ever.
///
/// The machine stops it at the latest when the lease, which lasts for `ttl`, is over by its own
/// clock, and so tells how long it took by that clock, too.
pub(crate) fn must_have_ended(unit: &Unit, ttl: Duration) -> Option<Duration> {
    let stop = unit.longest_stop()?;
    let drift = ttl.saturating_add(stop) / DRIFT;
    let limit = stop.saturating_add(drift).saturating_add(MARGIN);
    Some(Duration::from_secs(limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0))))
}

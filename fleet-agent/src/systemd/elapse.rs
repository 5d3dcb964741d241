//! Reads when systemd's timers elapse.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;
use rustix::time::{ClockId, clock_gettime};

use super::bus::{Bus, CallError, unit_path};
use crate::{UnitDetails, wall_time};

const TIMER: &str = "org.freedesktop.systemd1.Timer";

/// Reads when a timer elapses next, and when it last elapsed.
pub(crate) async fn timer_details(bus: &Bus, unit: &UnitName) -> Result<UnitDetails, CallError> {
    let path = unit_path(unit.as_str());
    let read = async |name| {
        let micros: u64 = bus.property(&path, TIMER, name).await?;
        Ok::<_, CallError>(timestamp(micros))
    };
    let monotonic = read("NextElapseUSecMonotonic").await?;
    let wall = read("NextElapseUSecRealtime").await?;
    let last = read("LastTriggerUSec").await?;
    let monotonic = monotonic.map(|at| wall_time().after(at.since(monotonic_time())));
    let next_elapse = monotonic.into_iter().chain(wall).min();
    Ok(UnitDetails { next_elapse, last_elapse: last, ..UnitDetails::default() })
}

/// Converts one of systemd's times, which are in microseconds. Zero and the maximum mean that there
/// is no time.
fn timestamp(micros: u64) -> Option<Timestamp> {
    (micros != 0 && micros != u64::MAX).then(|| Timestamp::from_millis(micros / 1000))
}

/// Returns the time of the clock that systemd's monotonic times refer to. It differs from fleet's
/// clock: it stops while the machine sleeps.
fn monotonic_time() -> Timestamp {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at zero on boot, and never has a negative time.
    let since = Duration::try_from(now).unwrap_or_default();
    Timestamp::from_millis(0).after(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_times_of_systemd_are_none() {
        assert_eq!(timestamp(0), None);
        assert_eq!(timestamp(u64::MAX), None);
        assert_eq!(timestamp(1_500_999), Some(Timestamp::from_millis(1500)));
    }
}

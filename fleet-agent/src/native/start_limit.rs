//! Pure: no I/O, no clock. How many starts are too many.

use fleet_core::Timestamp;
use fleet_core::graph::Limit;

/// Counts the starts of one service in windows of time, as systemd does: a window opens with a
/// start, and the first start after its end opens the next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StartLimit {
    opened: Option<Timestamp>,
    starts: u32,
}

impl StartLimit {
    /// Counts a start, unless it would be one too many.
    pub(crate) fn allows(&mut self, limit: Limit, now: Timestamp) -> bool {
        let Limit::Starts { burst, interval } = limit else {
            return true;
        };
        let over = self.opened.is_none_or(|opened| now >= opened.after(interval));
        if over {
            *self = Self { opened: Some(now), starts: 0 };
        }
        let allowed = self.starts < burst;
        self.starts += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn allowed(limit: Limit, starts: &[u64]) -> Vec<bool> {
        let mut count = StartLimit::default();
        let at = |&second: &u64| Timestamp::from_millis(second * 1000);
        starts.iter().map(|start| count.allows(limit, at(start))).collect()
    }

    #[test]
    fn a_burst_is_allowed_in_each_window() {
        let limit = Limit::Starts { burst: 2, interval: Duration::from_secs(10) };
        let expected = [true, true, false, true, true, false];
        assert_eq!(allowed(limit, &[0, 1, 9, 10, 11, 12]), expected);
        let for_ever = Limit::Starts { burst: 1, interval: Duration::MAX };
        assert_eq!(allowed(for_ever, &[0, 1_000_000]), [true, false]);
    }

    #[test]
    fn without_a_limit_every_start_is_allowed() {
        assert_eq!(allowed(Limit::None, &[0, 0, 0]), [true; 3]);
    }
}

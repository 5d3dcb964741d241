//! Pure: no I/O, no clock. How many starts are too many.

use fleet_core::Timestamp;

use super::spec::StartLimitSpec;

/// Counts the starts of one service in windows of time, as systemd does: a window opens with a
/// start, and the first start after its end opens the next.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StartLimit {
    opened: Option<Timestamp>,
    starts: u32,
}

impl StartLimit {
    /// Counts a start, unless it would be one too many.
    pub(crate) fn allows(&mut self, spec: StartLimitSpec, now: Timestamp) -> bool {
        if spec.burst == 0 || spec.interval.is_some_and(|interval| interval.is_zero()) {
            return true;
        }
        let ends = |opened: Timestamp| spec.interval.map(|interval| opened.after(interval));
        let over = self.opened.is_none_or(|opened| ends(opened).is_some_and(|end| now >= end));
        if over {
            *self = Self { opened: Some(now), starts: 0 };
        }
        let allowed = self.starts < spec.burst;
        self.starts += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn allowed(interval: Option<u64>, burst: u32, starts: &[u64]) -> Vec<bool> {
        let spec = StartLimitSpec { interval: interval.map(Duration::from_secs), burst };
        let mut limit = StartLimit::default();
        let at = |&second: &u64| Timestamp::from_millis(second * 1000);
        starts.iter().map(|start| limit.allows(spec, at(start))).collect()
    }

    #[test]
    fn a_burst_is_allowed_in_each_window() {
        assert_eq!(
            allowed(Some(10), 2, &[0, 1, 9, 10, 11, 12]),
            [true, true, false, true, true, false]
        );
        assert_eq!(allowed(None, 1, &[0, 1_000_000]), [true, false]);
    }

    #[test]
    fn zero_means_no_limit() {
        assert_eq!(allowed(Some(0), 1, &[0, 0, 0]), [true; 3]);
        assert_eq!(allowed(Some(10), 0, &[0, 0, 0]), [true; 3]);
    }
}

//! Pure: the poll interval of a log that is being written.

use std::time::Duration;

use fleet_core::Timestamp;

/// Bounds of the poll interval. Between two polls nothing reports that a unit has begun to write
/// fast. So a log can exceed its limit by as much as the unit writes in one interval.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(100);

/// Poll interval of one log.
#[derive(Debug, Clone)]
pub(super) struct PollInterval {
    pause: Duration,
    /// Time since which the log has not been polled.
    rests: Timestamp,
}

impl PollInterval {
    /// Creates the interval of a log that is not being written.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { pause: SHORTEST, rests: now }
    }

    /// Returns the time of the next poll after a poll at `now`. Polls with the longest interval
    /// fall on multiples of that interval, so that one wakeup serves many logs.
    pub(super) fn due(&self, now: Timestamp) -> Timestamp {
        let due = now.after(self.pause);
        let beyond = due.as_millis() % to_millis(LONGEST);
        if self.pause < LONGEST { due } else { Timestamp::from_millis(due.as_millis() - beyond) }
    }

    /// Records that the log is no longer polled.
    pub(super) fn on_rest(&mut self, now: Timestamp) {
        self.rests = now;
    }

    /// Sets the interval after the first write to a log that was not being polled:
    ///
    /// - If the log had not been polled for at least the longest interval, sets the shortest
    ///   interval.
    /// - Otherwise doubles the last interval, so that frequent small writes do not cause one wakeup
    ///   each.
    pub(super) fn on_written(&mut self, now: Timestamp) {
        let rested = now.since(self.rests);
        self.pause = if rested >= LONGEST { SHORTEST } else { self.slower() };
    }

    /// Sets the next interval, after the log has grown by `grown` bytes during the last one. The
    /// next interval is the time in which the unit would write a quarter of `limit` at the same
    /// rate. But it is at most twice the last interval.
    pub(super) fn on_growth(&mut self, grown: u64, limit: u64) {
        let nanos = self.pause.as_nanos() * u128::from(limit / 4) / u128::from(grown.max(1));
        let pause = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.pause = pause.min(self.slower()).max(SHORTEST);
    }

    fn slower(&self) -> Duration {
        (self.pause * 2).min(LONGEST)
    }
}

fn to_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn constant_writer_is_polled_ten_times_a_second() {
        let mut poll_interval = PollInterval::new(at(0));
        poll_interval.on_written(at(60_000));
        let mut pauses = vec![poll_interval.pause.as_millis()];
        for _ in 0..8 {
            poll_interval.on_growth(10, 1000);
            pauses.push(poll_interval.pause.as_millis());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 100, 100, 100]);
        let due: Vec<u64> =
            [0, 1, 99, 100].map(|now| poll_interval.due(at(now)).as_millis()).to_vec();
        assert_eq!(due, [100, 100, 100, 200], "all at once");
    }

    #[test]
    fn fast_writer_shortens_the_interval() {
        let mut poll_interval = PollInterval { pause: LONGEST, rests: at(0) };
        let mut pauses = Vec::new();
        for grown in [250, 500, 0, 125, 1000, 1000, u64::MAX] {
            poll_interval.on_growth(grown, 1000);
            pauses.push(poll_interval.pause.as_millis());
        }
        assert_eq!(pauses, [100, 50, 100, 100, 25, 6, 2]);
        assert_eq!(poll_interval.pause, SHORTEST);
    }

    /// A unit that has written slowly may suddenly write fast. The fast writes are noticed within
    /// the longest interval, and from then on the log stays within twice its limit.
    #[test]
    fn log_exceeds_limit_by_one_interval() {
        let (limit, fast) = (1 << 20, 64 << 10);
        for before in [SHORTEST, LONGEST] {
            let mut poll_interval = PollInterval { pause: before, rests: at(0) };
            let mut sizes = Vec::new();
            for _ in 0..20 {
                let grown = fast * to_millis(poll_interval.pause);
                sizes.push(limit / 2 + grown);
                poll_interval.on_growth(grown, limit);
            }
            assert!(sizes[0] <= limit / 2 + fast * to_millis(LONGEST), "{sizes:?}");
            assert!(sizes[1..].iter().all(|&sizes| sizes <= 2 * limit), "{sizes:?}");
        }
    }

    #[test]
    fn repeated_writes_do_not_each_wake_the_daemon() {
        let (mut poll_interval, mut now, mut polls) = (PollInterval::new(at(0)), 10_000, 0);
        // A line every 10 ms for a minute: an early poll finds nothing.
        while now < 70_000 {
            poll_interval.on_written(at(now));
            polls += 1;
            let pause = to_millis(poll_interval.pause);
            now += pause;
            if pause >= 10 {
                poll_interval.on_growth(10, 1000);
            }
            poll_interval.on_rest(at(now));
            now = now.next_multiple_of(10);
        }
        assert!(polls < 700, "{polls}");
    }
}

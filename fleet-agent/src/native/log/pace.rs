//! Pure: how long after a look at a log that is written it is looked at again.

use std::time::Duration;

use fleet_core::Timestamp;

/// The shortest and the longest pause between two looks.
const SHORTEST: Duration = Duration::from_millis(50);
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// How often one log is looked at.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    pause: Duration,
    /// Since when nobody has to look.
    rests: Timestamp,
}

impl Pace {
    /// Of a log that nobody writes.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { pause: SHORTEST, rests: now }
    }

    /// How long after a look the next one comes.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// It is not written any more.
    pub(super) fn on_rest(&mut self, now: Timestamp) {
        self.rests = now;
    }

    /// It is written again. Who writes now and then is looked at less and less, who has long been
    /// silent soon.
    pub(super) fn on_written(&mut self, now: Timestamp) {
        let rested = now.since(self.rests);
        self.pause = if rested >= LONGEST { SHORTEST } else { self.slower() };
    }

    /// So much was written within the pause.
    pub(super) fn on_growth(&mut self, grown: u64, limit: u64) {
        let is_fast = grown > limit / 4;
        self.pause = if is_fast { (self.pause / 2).max(SHORTEST) } else { self.slower() };
    }

    fn slower(&self) -> Duration {
        (self.pause * 2).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn who_writes_without_a_pause_is_looked_at_every_five_seconds() {
        let mut pace = Pace::new(at(0));
        pace.on_written(at(60_000));
        let mut pauses = vec![pace.pause().as_millis()];
        for _ in 0..9 {
            pace.on_growth(100, 1000);
            pauses.push(pace.pause().as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn who_fills_a_log_is_looked_at_in_time() {
        let mut pace = Pace { pause: LONGEST, rests: at(0) };
        let mut pauses = Vec::new();
        for grown in [251, 251, 251, 250, 1000] {
            pace.on_growth(grown, 1000);
            pauses.push(pace.pause().as_millis());
        }
        assert_eq!(pauses, [2500, 1250, 625, 1250, 625]);
        (0..20).for_each(|_| pace.on_growth(u64::MAX, 1000));
        assert_eq!(pace.pause(), SHORTEST);
    }

    #[test]
    fn whoever_writes_again_and_again_wakes_nobody_each_time() {
        let (mut pace, mut now, mut looks) = (Pace::new(at(0)), 10_000, 0);
        // A line each 100 ms, for a minute: nothing has come when it is looked at soon.
        while now < 70_000 {
            pace.on_written(at(now));
            looks += 1;
            let pause = u64::try_from(pace.pause().as_millis()).expect("it is short");
            now += pause;
            if pause >= 100 {
                pace.on_growth(10, 1000);
            }
            pace.on_rest(at(now));
            now = now.next_multiple_of(100);
        }
        assert!(looks < 30, "{looks}");
    }
}

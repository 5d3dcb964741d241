//! Pure: no I/O, no clock. The queue of elapses.

use std::collections::BTreeSet;

use fleet_core::Timestamp;
use fleet_core::graph::systemd::{DualTimestamp, NextElapse};
use fleet_unitfile::UnitName;

/// Next elapse of all timers, by both clocks.
#[derive(Debug, Default)]
pub(super) struct TimerQueue {
    clock: BTreeSet<(Timestamp, UnitName)>,
    wall: BTreeSet<(Timestamp, UnitName)>,
}

impl TimerQueue {
    /// Moves a timer in the queue.
    pub(super) fn change(&mut self, timer: &UnitName, before: NextElapse, after: NextElapse) {
        let change = |set: &mut BTreeSet<_>, before: Option<_>, after: Option<_>| {
            before.map(|at| set.remove(&(at, timer.clone())));
            after.map(|at| set.insert((at, timer.clone())));
        };
        change(&mut self.clock, before.clock, after.clock);
        change(&mut self.wall, before.wall, after.wall);
    }

    /// Returns the first elapse by each clock.
    pub(super) fn first(&self) -> NextElapse {
        let first = |set: &BTreeSet<(Timestamp, UnitName)>| set.first().map(|(at, _)| *at);
        NextElapse { clock: first(&self.clock), wall: first(&self.wall) }
    }

    /// Returns a timer that is due.
    pub(super) fn due(&self, now: DualTimestamp) -> Option<UnitName> {
        let by_clock = self.clock.first().filter(|(at, _)| *at <= now.clock);
        let by_wall = self.wall.first().filter(|(at, _)| *at <= now.wall);
        by_clock.or(by_wall).map(|(_, timer)| timer.clone())
    }

    /// Returns all timers with a wall-clock time.
    pub(super) fn by_wall(&self) -> Vec<UnitName> {
        self.wall.iter().map(|(_, timer)| timer.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_elapse_of_each_clock_comes_first() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        let due = |clock: Option<u64>, wall: Option<u64>| NextElapse {
            clock: clock.and_then(at),
            wall: wall.and_then(at),
        };
        let name = |text: &str| text.parse::<UnitName>().expect("it is a name");
        let (a, b) = (name("a.timer"), name("b.timer"));
        let mut queue = TimerQueue::default();
        queue.change(&a, NextElapse::default(), due(Some(5), Some(100)));
        queue.change(&b, NextElapse::default(), due(Some(3), None));
        assert_eq!(queue.first(), due(Some(3), Some(100)));
        let now = |clock, wall| DualTimestamp {
            clock: Timestamp::from_millis(clock),
            wall: Timestamp::from_millis(wall),
        };
        assert_eq!(queue.due(now(2, 99)), None);
        assert_eq!(queue.due(now(3, 99)), Some(b.clone()));
        assert_eq!(queue.due(now(2, 100)), Some(a.clone()));
        assert_eq!(queue.by_wall(), vec![a.clone()]);
        queue.change(&b, due(Some(3), None), NextElapse::default());
        queue.change(&a, due(Some(5), Some(100)), due(None, Some(90)));
        assert_eq!(queue.first(), due(None, Some(90)));
    }
}

//! Elapses of a calendar event that are due.

use std::time::Duration;

use fleet_unitfile::Calendar;
use fleet_unitfile::calendar::Zone;

use super::ScheduleSettings;
use crate::Timestamp;

/// Maximum number of elapses that are counted one by one.
const MAX_COUNTED: u64 = 1000;

/// The elapses in a period: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The first of them.
    pub(super) first: Timestamp,
    /// The last one before `last`, if there is one.
    pub(super) before_last: Option<Timestamp>,
    /// The last of them.
    pub(super) last: Timestamp,
    /// Their number, which is at least 1.
    pub(super) count: u64,
    /// Whether there are more of them than `count`.
    pub(super) or_more: bool,
}

/// Returns the first elapse after a time. The calendar counts microseconds. An elapse within a
/// millisecond is rounded up, so that it is never early.
pub(super) fn next(calendar: &Calendar, zone: &dyn Zone, after: Timestamp) -> Option<Timestamp> {
    let next = calendar.next_after(Duration::from_millis(after.as_millis()), zone)?;
    let millis = next.as_micros().div_ceil(1000);
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

impl ScheduleSettings {
    /// Returns the first elapse after a time; `None` if the event never occurs again.
    #[must_use]
    pub fn next_elapse(&self, zone: &dyn Zone, after: Timestamp) -> Option<Timestamp> {
        next(&self.calendar, zone, after)
    }
}

/// Returns the elapses after `after`, up to `now`.
pub(super) fn between(
    calendar: &Calendar,
    zone: &dyn Zone,
    after: Timestamp,
    now: Timestamp,
) -> Option<Due> {
    let next_due = |after| next(calendar, zone, after).filter(|next| *next <= now);
    let first = next_due(after)?;
    let mut due = Due { first, before_last: None, last: first, count: 1, or_more: false };
    while let Some(next) = next_due(due.last) {
        (due.before_last, due.last) = (Some(due.last), next);
        due.count += 1;
        if due.count == MAX_COUNTED {
            // All times before the last elapse have a due elapse after them, and no later time has.
            let latest = last_matching(due.last, now, |at| next_due(at).is_some());
            if let Some(last) = next_due(latest) {
                let before = last_matching(due.last, latest, |at| next_due(at) < Some(last));
                let before = next_due(before).filter(|before| *before < last);
                due.before_last = Some(before.unwrap_or(due.last));
                (due.last, due.or_more) = (last, true);
            }
            break;
        }
    }
    Some(due)
}

/// Returns the last time between `low` and `high` that matches, by bisection. All times up to the
/// result match. Returns `low` if no later time matches.
fn last_matching(
    low: Timestamp,
    high: Timestamp,
    matches: impl Fn(Timestamp) -> bool,
) -> Timestamp {
    let (mut low, mut high) = (low.as_millis(), high.as_millis());
    while high > low {
        let middle = high - (high - low) / 2;
        if matches(Timestamp::from_millis(middle)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Timestamp::from_millis(low)
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::calendar::Utc;

    use super::*;

    const HOUR: u64 = 3_600_000;

    fn naive(calendar: &Calendar, after: Timestamp, now: Timestamp) -> Vec<Timestamp> {
        let step = |at: &Timestamp| next(calendar, &Utc, *at);
        std::iter::successors(next(calendar, &Utc, after), step)
            .take_while(|at| *at <= now)
            .collect()
    }

    #[test]
    fn due_elapses_are_those_of_a_plain_search() {
        let events = ["*:*:*", "*-*-* *:0/7", "Mon *:*:0/3", "*:*:0.0005", "*:0:0/0.3", "daily"];
        for event in events {
            let calendar: Calendar = event.parse().unwrap();
            for (after, now) in [(0, 1), (0, HOUR), (5, 999), (HOUR, 25 * HOUR), (HOUR, 300 * HOUR)]
            {
                let [after, now] = [after, now].map(Timestamp::from_millis);
                let all = naive(&calendar, after, now);
                let expected = all.last().map(|last| Due {
                    first: all[0],
                    before_last: all.len().checked_sub(2).map(|at| all[at]),
                    last: *last,
                    count: (all.len() as u64).min(MAX_COUNTED),
                    or_more: all.len() as u64 > MAX_COUNTED,
                });
                assert_eq!(between(&calendar, &Utc, after, now), expected, "{event} {now:?}");
            }
        }
    }

    #[test]
    fn due_elapses_are_counted_up_to_the_bound() {
        let calendar: Calendar = "*:*:*".parse().unwrap();
        for (seconds, count, or_more) in
            [(999, 999, false), (1000, 1000, false), (1001, 1000, true)]
        {
            let now = Timestamp::from_millis(seconds * 1000);
            let due = between(&calendar, &Utc, Timestamp::default(), now).unwrap();
            assert_eq!((due.count, due.or_more, due.last), (count, or_more, now));
            assert_eq!(due.before_last, Some(Timestamp::from_millis((seconds - 1) * 1000)));
        }
    }
}

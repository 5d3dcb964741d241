//! Computation of the next time at which a calendar event elapses.
//!
//! The search runs in local time: it first finds a matching date, and then a time on that date.
//! Each period between two clock changes is searched separately, because the UTC offset is constant
//! within it.

use std::time::Duration;

use super::Calendar;
use super::civil::{Date, days_in};
use super::zone::Zone;

/// The last year of the calendar.
const LAST_YEAR: u32 = 2199;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Maximum number of periods with a constant UTC offset that one search tries. No time zone has
/// this many clock changes before the year 2200.
const MAX_PERIODS: usize = 10_000;

impl Calendar {
    /// Returns the first time later than `after` at which the event elapses. Returns `None` if
    /// there is no such time before the end of 2199.
    ///
    /// Both times are durations since 1 January 1970 UTC. Fractions of a microsecond are ignored.
    /// `zone` must be the time zone that [`Calendar::zone`] names.
    ///
    /// If the clock skips a local time on some day, the event does not elapse at that time on that
    /// day. If a local time occurs twice, the event elapses only the first time.
    pub fn next_after(&self, after: Duration, zone: &dyn Zone) -> Option<Duration> {
        let next = self.next_micros(i64::try_from(after.as_micros()).ok()?, zone)?;
        u64::try_from(next).ok().map(Duration::from_micros)
    }

    /// Does the same with microseconds since 1970, which may be negative.
    pub(super) fn next_micros(&self, after: i64, zone: &dyn Zone) -> Option<i64> {
        let mut at = after.checked_add(1)?;
        for _ in 0..MAX_PERIODS {
            let period = zone.offset_period(at.div_euclid(SECOND));
            let offset = i64::from(period.offset) * SECOND;
            // Local times before this were already shown before the clock was set back.
            let earliest_local = period.since.map_or(i64::MIN, |(since, before)| {
                since.saturating_add(before.max(period.offset).into()).saturating_mul(SECOND)
            });
            let instant = self.next_local((at.checked_add(offset)?).max(earliest_local))? - offset;
            let until = period.until.map_or(i64::MAX, |until| until.saturating_mul(SECOND));
            if instant < until {
                return Some(instant);
            }
            // Clocks are never set by more than this, so no earlier period can show the instant.
            at = until.max(instant - 2 * DAY).max(at + 1);
        }
        None
    }

    /// Returns the first matching local time at or after `from`. Both times are in microseconds
    /// since the start of 1970 in local time.
    fn next_local(&self, from: i64) -> Option<i64> {
        let (day, time) = (from.div_euclid(DAY), from.rem_euclid(DAY));
        let today = Date::from_number(day);
        let mut date = self.next_date(today)?;
        if date == today {
            if let Some(time) = self.next_time(time) {
                return Some(day * DAY + time);
            }
            date = self.next_date(Date::from_number(day + 1))?;
        }
        Some(date.number() * DAY + self.next_time(0)?)
    }

    fn next_date(&self, from: Date) -> Option<Date> {
        let Date { mut year, mut month, mut day } = from;
        loop {
            let next = self.years.next(year, LAST_YEAR)?;
            if next > year {
                (year, month, day) = (next, 1, 1);
            }
            while let Some(next) = self.months.next(month, 12) {
                if next > month {
                    (month, day) = (next, 1);
                }
                if let Some(day) = self.next_day(year, month, day) {
                    return Some(Date { year, month, day });
                }
                (month, day) = (month + 1, 1);
            }
            (year, month, day) = (year + 1, 1, 1);
        }
    }

    /// Returns the next matching day within the month.
    fn next_day(&self, year: u32, month: u32, from: u32) -> Option<u32> {
        let most = days_in(year, month);
        let mirrored = self.from_end.then(|| self.days.mirrored(most));
        let days = mirrored.as_ref().unwrap_or(&self.days);
        let mut day = days.next(from, most)?;
        while self.weekdays & (1 << Date { year, month, day }.weekday()) == 0 {
            day = days.next(day + 1, most)?;
        }
        Some(day)
    }

    /// Returns the next matching time within a day, in microseconds since its beginning.
    fn next_time(&self, from: i64) -> Option<i64> {
        let part = |length: i64, of: i64| u32::try_from(from % of / length).ok();
        let mut hour = part(HOUR, DAY)?;
        let (mut minute, mut micros) = (part(MINUTE, HOUR)?, part(1, MINUTE)?);
        while let Some(next) = self.hours.next(hour, 23) {
            if next > hour {
                (hour, minute, micros) = (next, 0, 0);
            }
            while let Some(next) = self.minutes.next(minute, 59) {
                if next > minute {
                    (minute, micros) = (next, 0);
                }
                if let Some(micros) = self.micros.next(micros, 59_999_999) {
                    let whole = i64::from(hour) * HOUR + i64::from(minute) * MINUTE;
                    return Some(whole + i64::from(micros));
                }
                (minute, micros) = (minute + 1, 0);
            }
            (hour, minute, micros) = (hour + 1, 0, 0);
        }
        None
    }
}

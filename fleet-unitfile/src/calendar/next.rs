//! The next elapse of a calendar event, and days of the civil calendar.

use std::time::Duration;

use crate::calendar::{Calendar, Zone};

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

/// A calendar date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Date {
    pub(super) year: u32,
    /// Counted from one.
    pub(super) month: u32,
    /// Counted from one.
    pub(super) day: u32,
}

/// Number of days in four hundred years, the period of the calendar.
const DAYS_IN_400_YEARS: i64 = 146_097;

/// Days from 1 March of the year zero to 1 January 1970.
const EPOCH: i64 = 719_468;

impl Date {
    /// Converts a day number, counted from 1 January 1970.
    pub(super) fn from_number(number: i64) -> Self {
        let number = number + EPOCH;
        let (cycle, day) =
            (number.div_euclid(DAYS_IN_400_YEARS), number.rem_euclid(DAYS_IN_400_YEARS));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Years begin in March here, so that the leap day comes last.
        let month = (5 * day + 2) / 153;
        let year = year + cycle * 400 + i64::from(month >= 10);
        let number = |number: i64| u32::try_from(number).unwrap_or(0);
        Self {
            year: number(year),
            month: number(if month < 10 { month + 3 } else { month - 9 }),
            day: number(day - (153 * month + 2) / 5 + 1),
        }
    }

    /// Returns the day number, counted from 1 January 1970.
    pub(super) fn number(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
        let month = if month > 2 { month - 3 } else { month + 9 };
        let day = (153 * month + 2) / 5 + day - 1;
        cycle * DAYS_IN_400_YEARS + year * 365 + year / 4 - year / 100 + day - EPOCH
    }

    /// Returns the day of the week; zero is Monday.
    pub(super) fn weekday(self) -> i64 {
        // 1 January 1970 was a Thursday.
        (self.number() + 3).rem_euclid(7)
    }
}

/// Returns the number of days in a month.
pub(super) fn days_in(year: u32, month: u32) -> u32 {
    let leaps = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leaps => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_numbers_are_consecutive() {
        let mut date = Date { year: 1969, month: 12, day: 30 };
        for number in -2..90_000 {
            assert_eq!((Date::from_number(number), date.number()), (date, number));
            assert_eq!(date.weekday(), (number + 3).rem_euclid(7));
            date.day += 1;
            if date.day > days_in(date.year, date.month) {
                (date.month, date.day) = (date.month + 1, 1);
            }
            if date.month > 12 {
                (date.year, date.month) = (date.year + 1, 1);
            }
        }
        let known = Date { year: 2026, month: 11, day: 22 };
        assert_eq!((known.number(), known.weekday()), (20_779, 6));
        assert_eq!([1900, 2000, 2024, 2100].map(|year| days_in(year, 2)), [28, 29, 29, 28]);
    }
}

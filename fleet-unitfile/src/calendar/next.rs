//! When a rhythm comes next.
//!
//! First for clocks that are never changed: a date that fits, then a time of the day. Then for
//! those of a zone, era by era: within one of them all clocks go on evenly.

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

/// How many eras are looked at: more than any zone has until the last year.
const MOST_ERAS: usize = 10_000;

impl Calendar {
    /// The first moment after that one, both since the beginning of 1970 in UTC and in whole
    /// microseconds; `None` if there is none until the end of 2199.
    ///
    /// `zone` is that of [`Calendar::zone`]. A time of the day that its clocks leave out does not
    /// come on that day, and one that they show twice counts once, the first time.
    pub fn next_after(&self, after: Duration, zone: &dyn Zone) -> Option<Duration> {
        let mut at = i64::try_from(after.as_micros()).ok()?.checked_add(1)?;
        for _ in 0..MOST_ERAS {
            let era = zone.era(at.div_euclid(SECOND));
            let offset = i64::from(era.offset) * SECOND;
            // What the clocks had shown before they were set back.
            let shown = era.since.map_or(i64::MIN, |(since, before)| {
                since.saturating_add(before.max(era.offset).into()).saturating_mul(SECOND)
            });
            let moment = self.next_shown((at.checked_add(offset)?).max(shown))? - offset;
            let until = era.until.map_or(i64::MAX, |until| until.saturating_mul(SECOND));
            if moment < until {
                return u64::try_from(moment).ok().map(Duration::from_micros);
            }
            // Clocks are never set by more than that, so no earlier era can show it.
            at = until.max(moment - 2 * DAY).max(at + 1);
        }
        None
    }

    /// The first time at or after that one which even clocks show, in microseconds since they
    /// showed the beginning of 1970.
    fn next_shown(&self, from: i64) -> Option<i64> {
        let (day, time) = (from.div_euclid(DAY), from.rem_euclid(DAY));
        let today = Date::of_number(day);
        let mut date = self.next_date(today)?;
        if date == today {
            if let Some(time) = self.next_time(time) {
                return Some(day * DAY + time);
            }
            date = self.next_date(Date::of_number(day + 1))?;
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

    /// The next day within that month.
    fn next_day(&self, year: u32, month: u32, from: u32) -> Option<u32> {
        let most = days_in(year, month);
        let turned = self.from_end.then(|| self.days.turned(most));
        let days = turned.as_ref().unwrap_or(&self.days);
        let mut day = days.next(from, most)?;
        while self.weekdays & (1 << Date { year, month, day }.weekday()) == 0 {
            day = days.next(day + 1, most)?;
        }
        Some(day)
    }

    /// The next time within a day, in microseconds since its beginning.
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

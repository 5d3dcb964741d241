//! Calendar events, such as `Mon..Fri *-*-* 06:30`, and the computation of the next time at which
//! an event elapses.

mod next;
mod parse;
mod part;
#[cfg(feature = "jiff")]
mod zoned;

use std::str::FromStr;

use crate::calendar::part::Part;

pub(crate) use crate::calendar::parse::SHORTHANDS;

/// A calendar event, as used in `OnCalendar=`.
///
/// An event is written as a shorthand such as `daily`, or as weekdays, a date, a time and a time
/// zone, as in `Mon..Fri *-*-01..07 06:30:00 UTC`. Each of these four parts is optional.
///
/// The parser expands no specifiers, so the caller must expand them first. It does not check
/// whether the time zone exists.
///
/// ```
/// use std::time::Duration;
/// use fleet_unitfile::calendar::Utc;
/// use fleet_unitfile::Calendar;
///
/// let calendar: Calendar = "Mon..Fri *-*-* 06:30".parse()?;
/// // On Friday, 2 January 1970, at noon.
/// let after = Duration::from_secs(36 * 3600);
/// let monday = Duration::from_secs((4 * 24 + 6) * 3600 + 30 * 60);
/// assert_eq!(calendar.next_after(after, &Utc), Some(monday));
/// # Ok::<(), fleet_unitfile::calendar::CalendarError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// One bit for each weekday, Monday first.
    weekdays: u8,
    years: Part,
    months: Part,
    days: Part,
    /// Whether `days` count from the end of the month.
    from_end: bool,
    hours: Part,
    minutes: Part,
    /// Microseconds within the minute.
    micros: Part,
    zone: Option<String>,
}

impl Calendar {
    /// Returns the time zone as written; `None` stands for the machine's own.
    ///
    /// systemd also reads the two abbreviations of the machine's own zone, such as `CET` and
    /// `CEST`, as local time without or with daylight saving. Here they are names of zones.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Returns `true` if the time zone is UTC, in any spelling.
    pub fn is_utc(&self) -> bool {
        self.zone().is_some_and(|zone| zone.eq_ignore_ascii_case("UTC"))
    }
}

impl FromStr for Calendar {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        parse::parse(text).ok_or_else(|| CalendarError { text: text.to_owned() })
    }
}

/// Error for a string that is not a calendar event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a calendar event: write an event such as daily, or \
     \"Mon..Fri *-*-* 06:30:00\""
)]
pub struct CalendarError {
    text: String,
}

/// A time zone. Its local time determines when a [`Calendar`] elapses.
///
/// This crate has no time zone database. Callers implement this trait on top of one. With the
/// feature `jiff`, `jiff::tz::TimeZone` implements it. All times are in seconds since 1 January
/// 1970 UTC.
pub trait Zone {
    /// Returns the offset period that contains a time.
    fn offset_period(&self, at: i64) -> OffsetPeriod;
}

/// A period with a constant UTC offset in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPeriod {
    /// Seconds that local time is ahead of UTC.
    pub offset: i32,
    /// The first second of the period, and the UTC offset just before it. `None` if the period has
    /// no beginning.
    pub since: Option<(i64, i32)>,
    /// The first second after the period; `None` if it has no end.
    pub until: Option<i64>,
}

/// UTC, with a constant offset of zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utc;

impl Zone for Utc {
    fn offset_period(&self, _at: i64) -> OffsetPeriod {
        OffsetPeriod { offset: 0, since: None, until: None }
    }
}

/// Returns `true` if a string is a calendar event, as used in `OnCalendar=`. Such a string parses
/// as a [`Calendar`].
///
/// ```
/// use fleet_unitfile::calendar::is_calendar;
///
/// assert!(is_calendar("Sat,Sun *-*-* 10:00/15"));
/// assert!(!is_calendar("*-13-01"));
/// ```
pub fn is_calendar(text: &str) -> bool {
    text.parse::<Calendar>().is_ok()
}

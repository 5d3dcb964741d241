//! Rhythms of the calendar, such as `Mon..Fri *-*-* 06:30`, and when they come next.

mod civil;
mod next;
mod part;
mod read;
mod zone;

use std::str::FromStr;

use part::Part;
pub(crate) use read::SHORTHANDS;
pub use zone::{Era, Utc, Zone};

/// A moment or a rhythm of the calendar, as `OnCalendar=` takes it.
///
/// It is read from a shorthand such as `daily`, or from days of the week, a date, a time and a
/// zone, each of which may be missing: `Mon..Fri *-*-01..07 06:30:00 UTC`. Specifiers have to be
/// replaced before. Whether the zone exists is not looked up.
///
/// ```
/// use std::time::Duration;
/// use fleet_unitfile::{Calendar, Utc};
///
/// let calendar: Calendar = "Mon..Fri *-*-* 06:30".parse()?;
/// // On Friday, 2 January 1970, at noon.
/// let after = Duration::from_secs(36 * 3600);
/// let monday = Duration::from_secs((4 * 24 + 6) * 3600 + 30 * 60);
/// assert_eq!(calendar.next_after(after, &Utc), Some(monday));
/// # Ok::<(), fleet_unitfile::CalendarError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// A bit for each day of the week, Monday first.
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
    /// The zone whose clocks it goes by, as it is written; `None` stands for those of the machine.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Whether it goes by [`Utc`], by whatever name.
    pub fn is_utc(&self) -> bool {
        self.zone().is_some_and(|zone| zone.eq_ignore_ascii_case("UTC"))
    }
}

impl FromStr for Calendar {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        read::read(text).ok_or_else(|| CalendarError { text: text.to_owned() })
    }
}

/// A text is no moment or rhythm of the calendar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a moment of the calendar: write a rhythm such as daily, or \
     \"Mon..Fri *-*-* 06:30:00\""
)]
pub struct CalendarError {
    text: String,
}

//! Calendar events, such as `Mon..Fri *-*-* 06:30`.

use super::code::FindingCode;
use super::value_error::{ValueError, quoted};
use crate::calendar::SHORTHANDS;
use crate::spelling::suggest;
use crate::value::is_calendar;

/// Checks a calendar event, which consists of weekdays, a date, a time and a time zone, each of
/// which is optional. The check does not test whether the time zone exists.
pub(super) fn check(value: &str) -> Option<ValueError> {
    (!is_calendar(value)).then(|| {
        let message = format!("{} is not a calendar event", quoted(value));
        let help = match suggest(value, SHORTHANDS) {
            Some(near) => format!("write {near}"),
            None => "write an event such as daily, or \"Mon..Fri *-*-* 06:30:00\"".to_owned(),
        };
        ValueError::new(FindingCode::Calendar, message, help)
    })
}

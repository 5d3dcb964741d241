//! Moments and rhythms of the calendar, such as `Mon..Fri *-*-* 06:30`.

use super::code::FindingCode;
use super::flaw::{Flaw, quoted};
use super::near::nearest;
use crate::calendar::SHORTHANDS;
use crate::value::is_calendar;

/// What is wrong with the words of a moment: day of the week, date, time and zone, each of which
/// may be missing. The name of a zone is not looked up.
pub(super) fn check(value: &str) -> Option<Flaw> {
    let is_fine = value.contains('%') || is_calendar(value);
    (!is_fine).then(|| {
        let message = format!("{} is not a moment of the calendar", quoted(value));
        let help = match nearest(value, SHORTHANDS) {
            Some(near) => format!("write {near}"),
            None => "write a rhythm such as daily, or \"Mon..Fri *-*-* 06:30:00\"".to_owned(),
        };
        Flaw::whole(FindingCode::Calendar, message, help)
    })
}

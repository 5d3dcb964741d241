//! Parsing of calendar events. An event consists of weekdays, a date, a time and a time zone, each
//! of which is optional.

use crate::calendar::Calendar;
use crate::calendar::next::Date;
use crate::calendar::part::{Part, Range};

/// Shorthands for calendar events.
pub(crate) const SHORTHANDS: [&str; 13] = [
    "minutely",
    "hourly",
    "daily",
    "weekly",
    "monthly",
    "quarterly",
    "semiannually",
    "semi-annually",
    "biannually",
    "bi-annually",
    "yearly",
    "annually",
    "anually",
];

/// The expansion of each shorthand.
const SHORTHAND_EXPANSIONS: [&str; 13] = [
    "*-*-* *:*:00",
    "*-*-* *:00:00",
    "*-*-* 00:00:00",
    "Mon *-*-* 00:00:00",
    "*-*-01 00:00:00",
    "*-01,04,07,10-01 00:00:00",
    "*-01,07-01 00:00:00",
    "*-01,07-01 00:00:00",
    "*-01,07-01 00:00:00",
    "*-01,07-01 00:00:00",
    "*-01-01 00:00:00",
    "*-01-01 00:00:00",
    "*-01-01 00:00:00",
];

const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

const ALL_WEEK: u8 = 0b111_1111;

/// Parses a calendar event without specifiers.
pub(super) fn parse(text: &str) -> Option<Calendar> {
    let (words, zone) = match text.rsplit_once(' ') {
        Some((before, word)) if is_zone(word) => (before, Some(word)),
        _ => (text, None),
    };
    let shorthand = SHORTHANDS.iter().position(|it| it.eq_ignore_ascii_case(words));
    let words = shorthand.map_or(words, |at| SHORTHAND_EXPANSIONS[at]);
    if let Some(seconds) = words.strip_prefix('@') {
        return parse_timestamp(seconds);
    }
    Some(Calendar { zone: zone.map(str::to_owned), ..parse_fields(words)? })
}

/// Parses weekdays, date and time. Blanks may follow weekdays and dates only.
fn parse_fields(words: &str) -> Option<Calendar> {
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let weekdays = week(first);
    let words = if weekdays.is_some() { rest.trim_start_matches(' ') } else { words };
    let calendar = Calendar { weekdays: weekdays.unwrap_or(ALL_WEEK), ..midnight() };
    if words.is_empty() {
        return weekdays.map(|_| calendar);
    }
    let (first, rest) = words.split_once(' ').unwrap_or((words, ""));
    let date = date(first);
    let time = if date.is_some() { rest.trim_start_matches(' ') } else { words };
    let calendar = match date {
        Some((years, months, days)) => {
            Calendar { years, months, days, from_end: first.contains('~'), ..calendar }
        }
        None => calendar,
    };
    if time.is_empty() {
        return Some(calendar);
    }
    let (hours, minutes, micros) = parse_time(time)?;
    Some(Calendar { hours, minutes, micros, ..calendar })
}

/// Returns the event that elapses at the beginning of each day.
fn midnight() -> Calendar {
    Calendar {
        weekdays: ALL_WEEK,
        years: Part::ANY,
        months: Part::ANY,
        days: Part::ANY,
        from_end: false,
        hours: Part::only(0),
        minutes: Part::only(0),
        micros: Part::only(0),
        zone: None,
    }
}

/// Parses seconds since 1970, up to the last year of the calendar.
fn parse_timestamp(seconds: &str) -> Option<Calendar> {
    const LAST: i64 = 7_258_118_399;
    let seconds: u64 = seconds.trim_start().parse().ok()?;
    let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds <= LAST)?;
    let date = Date::from_number(seconds / 86_400);
    let part = |number: i64| u32::try_from(number).ok().map(Part::only);
    Some(Calendar {
        weekdays: ALL_WEEK,
        years: Part::only(date.year),
        months: Part::only(date.month),
        days: Part::only(date.day),
        from_end: false,
        hours: part(seconds % 86_400 / 3600)?,
        minutes: part(seconds % 3600 / 60)?,
        micros: part(seconds % 60 * 1_000_000)?,
        zone: Some("UTC".to_owned()),
    })
}

/// Returns `true` if `word` is `UTC` or looks like a name from the time zone database, such as
/// `Europe/Berlin`.
fn is_zone(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    let is_shorthand = SHORTHANDS.iter().any(|it| it.eq_ignore_ascii_case(word));
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(is_part)
        && week(word).is_none()
        && !is_shorthand
}

/// Parses a list of weekdays such as `Mon,Wed..Fri`, and returns one bit for each day. A range may
/// also be written with a dash, as in `Wed-Fri`.
fn week(word: &str) -> Option<u8> {
    let day = |text: &str| {
        let text = text.to_ascii_lowercase();
        DAYS.iter().position(|day| text == *day || text == day[..3])
    };
    let range = |range: &str| {
        let (first, last) = match range.split_once("..").or_else(|| range.split_once('-')) {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(range)?, day(range)?),
        };
        (first <= last).then(|| (first..=last).fold(0, |bits, day| bits | 1 << day))
    };
    // A comma may follow the last day.
    let mut ranges = word.strip_suffix(',').unwrap_or(word).split(',').map(range);
    ranges.try_fold(0, |bits, range| Some(bits | range?))
}

/// Parses a date `MONTH-DAY` or `YEAR-MONTH-DAY`. In `MONTH~DAY`, the days are counted from the end
/// of the month: `02~01` is the last day of February.
fn date(word: &str) -> Option<(Part, Part, Part)> {
    let (month, day) = word.rsplit_once(['-', '~'])?;
    let (year, month) = month.rsplit_once('-').unwrap_or(("*", month));
    let day = if word.contains('~') { days_from_end(day) } else { part(day, 1, 31) };
    Some((years(year)?, part(month, 1, 12)?, day?))
}

/// Parses years. Years of two digits are those from 1970 to 2069.
fn years(text: &str) -> Option<Part> {
    let year = |text: &str| {
        Some(match whole(text)? {
            year @ 0..70 => year + 2000,
            year @ 70..100 => year + 1900,
            year => year,
        })
    };
    Part::read(text, |piece| Range::read(piece, 1, year, whole), |it| it.is_within(1970, 2199))
}

/// Parses days that are counted from the end of a month. The numbers are at most 28, because every
/// month has at least 28 days. As in systemd, each further range lowers this limit by three.
fn days_from_end(text: &str) -> Option<Part> {
    let part = Part::read(text, |piece| Range::read(piece, 1, whole, whole), |_| true)?;
    let ranges = part.sorted();
    // Like systemd, reduces the limit by three days for each further range.
    let ends = (0..).map(|number| 28_u32.saturating_sub(3 * number));
    let fits = ranges.iter().zip(ends).all(|(range, end)| {
        // A step leads towards the end of the month.
        let leads = range.last.is_some() || range.step.is_none_or(|step| range.first > step);
        let range = Range { step: None, ..*range };
        leads && range.is_within(1, end)
    });
    fits.then_some(part)
}

/// Parses `HOUR:MINUTE` or `HOUR:MINUTE:SECOND`; only seconds may have a fraction.
fn parse_time(word: &str) -> Option<(Part, Part, Part)> {
    let (hour, minute, micros) = match word.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute] => (*hour, *minute, Some(Part::only(0))),
        [hour, minute, second] => (*hour, *minute, seconds(second)),
        _ => return None,
    };
    Some((part(hour, 0, 23)?, part(minute, 0, 59)?, micros?))
}

/// Parses one field: `*`, or a list such as `1,5..9,10/2` in which each number may have a range and
/// a step. All numbers must be from `least` to `most`.
fn part(text: &str, least: u32, most: u32) -> Option<Part> {
    let range = |piece: &str| Range::read(piece, 1, whole, whole);
    Part::read(text, range, |it| it.is_within(least, most))
}

fn whole(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<i32>().ok().filter(|_| is_digits)?;
    u32::try_from(number).ok()
}

/// Parses seconds within a minute; a star stands for each whole second.
fn seconds(text: &str) -> Option<Part> {
    const SECOND: u32 = 1_000_000;
    let range = |piece: &str| Range::read(piece, SECOND, micros, micros);
    let text = if text == "*" { "0/1" } else { text };
    Part::read(text, range, |it| it.is_within(0, 60 * SECOND - 1))
}

/// Parses seconds with a fraction to whole microseconds, rounding the seventh digit.
fn micros(text: &str) -> Option<u32> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let digits = format!("{fraction:0<7}");
    let (six, rest) = digits.split_at_checked(6).filter(|_| is_digits)?;
    let micros = six.parse::<u32>().ok()? + u32::from(rest.as_bytes().first()? >= &b'5');
    whole(seconds)?.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_event(text: &str) -> bool {
        parse(text).is_some()
    }

    #[test]
    fn valid_calendar_events() {
        for value in [
            "daily",
            "Weekly",
            "Mon",
            "Mon,Wed..Fri",
            "Mon..Fri *-*-* 06:30",
            "*-*-* 06:30:00",
            "06:30",
            "*:00/15",
            "*-*-1..7/2 10:00",
            "*-02~03",
            "05-03",
            "70-01-01",
            "2026-1-1 1:1:1 UTC",
            "Sat *-*-* 06:30 Europe/Berlin",
            "*-*-* 10:00:59.5",
            "*:0:0/0.5",
            "@1700000000",
            "2020..2030-01-01",
            "1..2026-12-24",
            "01/169-1-1",
            "2..4/999-1-1",
            "Mon  UTC",
            "Mon, 2026-1-1  10:00 UTC",
            "*-*~3,4,22",
            "*-*~3/2",
            "*:*:0.9999999",
            "@ 7258118399 UTC",
        ] {
            assert!(is_event(value), "{value}");
        }
    }

    #[test]
    fn invalid_calendar_events() {
        for value in [
            "",
            "dayly",
            "Mon..Fry",
            "Fri..Mon",
            "Mon Tue",
            "06",
            "24:00",
            "10:00:60",
            "10:00:59.",
            "*-13-01",
            "*-*-32",
            "1969-01-01",
            "2200-01-01",
            "*-*-*/2",
            "*/2:00",
            "*:0/1.5",
            "*-*-1/0",
            "*-*-* 20..12:00",
            "*-*-* 12..:00",
            "10:00 2026-01-01",
            "2026-01-01T10:00",
            "@1.5",
            "@7258118400",
            "10:00 ",
            " 10:00",
            "10:00  UTC",
            "*-*~3,4,23",
            "*-*~3/3",
            "*:*:1..1.5",
            "*:*:59.9999999",
        ] {
            assert!(!is_event(value), "{value}");
        }
    }
}

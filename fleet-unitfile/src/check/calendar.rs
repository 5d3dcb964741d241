//! Moments and rhythms of the calendar, such as `Mon..Fri *-*-* 06:30`.

use super::code::FindingCode;
use super::flaw::{Flaw, quoted};
use super::near::nearest;

const SHORTHANDS: [&str; 13] = [
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
const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// What is wrong with the words of a moment: day of the week, date, time and zone, each of which
/// may be missing. The name of a zone is not looked up.
pub(super) fn check(value: &str) -> Option<Flaw> {
    let is_fine = value.contains('%') || is_moment(value);
    (!is_fine).then(|| {
        let message = format!("{} is not a moment of the calendar", quoted(value));
        let help = match nearest(value, SHORTHANDS) {
            Some(near) => format!("write {near}"),
            None => "write a rhythm such as daily, or \"Mon..Fri *-*-* 06:30:00\"".to_owned(),
        };
        Flaw::whole(FindingCode::Calendar, message, help)
    })
}

/// Whether a text is a moment or a rhythm, without specifiers.
pub(crate) fn is_moment(value: &str) -> bool {
    let value = match value.rsplit_once(' ') {
        Some((before, word)) if is_zone(word) => before,
        _ => value,
    };
    if SHORTHANDS.iter().any(|it| it.eq_ignore_ascii_case(value)) {
        return true;
    }
    if let Some(seconds) = value.strip_prefix('@') {
        return is_moment_of_the_clock(seconds);
    }
    // Blanks may follow days and dates, and stand nowhere else.
    let (first, rest) = value.split_once(' ').unwrap_or((value, ""));
    let has_week = is_week(first);
    let value = if has_week { rest.trim_start_matches(' ') } else { value };
    if value.is_empty() {
        return has_week;
    }
    let (first, rest) = value.split_once(' ').unwrap_or((value, ""));
    let time = if is_date(first) { rest.trim_start_matches(' ') } else { value };
    time.is_empty() || is_time(time)
}

/// Seconds since the start of 1970, up to the last year of the calendar.
fn is_moment_of_the_clock(seconds: &str) -> bool {
    const LAST: u64 = 7_258_118_399;
    seconds.trim_start().parse::<u64>().is_ok_and(|seconds| seconds <= LAST)
}

/// `UTC`, or a zone of the database, such as `Europe/Berlin`.
fn is_zone(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    let is_shorthand = SHORTHANDS.iter().any(|it| it.eq_ignore_ascii_case(word));
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(is_part)
        && !is_week(word)
        && !is_shorthand
}

/// Days of the week, with commas between them and dots between the first and last of a range.
fn is_week(word: &str) -> bool {
    let day = |text: &str| {
        let text = text.to_ascii_lowercase();
        DAYS.iter().position(|day| text == *day || text == day[..3])
    };
    let is_range = |range: &str| match range.split_once("..").or_else(|| range.split_once('-')) {
        Some((first, last)) => day(first).zip(day(last)).is_some_and(|(a, b)| a <= b),
        None => day(range).is_some(),
    };
    // A comma may follow the last day.
    word.strip_suffix(',').unwrap_or(word).split(',').all(is_range)
}

/// `MONTH-DAY` or `YEAR-MONTH-DAY`; a tilde counts the days from the end of the month.
fn is_date(word: &str) -> bool {
    let Some((month, day)) = word.rsplit_once(['-', '~']) else { return false };
    let (year, month) = month.rsplit_once('-').unwrap_or(("*", month));
    let is_day = if word.contains('~') { is_day_from_end(day) } else { is_part(day, 1, 31) };
    is_year(year) && is_part(month, 1, 12) && is_day
}

/// Years of two digits are of our time.
fn is_year(text: &str) -> bool {
    let year = |text: &str| {
        Some(match whole(text)? {
            year @ 0..70 => year + 2000,
            year @ 70..100 => year + 1900,
            year => year,
        })
    };
    let read = |piece| Range::read(piece, 1, year, whole);
    text == "*" || text.split(',').all(|it| read(it).is_some_and(|it| it.is_within(1970, 2199)))
}

/// Days from the end of a month, of which every month has 28 to count.
fn is_day_from_end(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let ranges = text.split(',').map(|piece| Range::read(piece, 1, whole, whole));
    let Some(mut ranges) = ranges.collect::<Option<Vec<_>>>() else { return false };
    ranges.sort();
    ranges.dedup();
    // systemd takes the last days away once more for each further range.
    let ends = (0..).map(|number| 28_u32.saturating_sub(3 * number));
    ranges.iter().zip(ends).all(|(range, end)| {
        // A step leads towards the end of the month.
        let leads = range.last.is_some() || range.step.is_none_or(|step| range.first > step);
        let range = Range { step: None, ..*range };
        leads && range.is_within(1, end)
    })
}

/// `HOUR:MINUTE` or `HOUR:MINUTE:SECOND`; seconds alone may have a fraction.
fn is_time(word: &str) -> bool {
    match word.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute] => is_part(hour, 0, 23) && is_part(minute, 0, 59),
        [hour, minute, second] => {
            is_part(hour, 0, 23) && is_part(minute, 0, 59) && is_seconds(second)
        }
        _ => false,
    }
}

/// A star alone, or whole numbers with commas between them, each a range and a step if need be.
fn is_part(text: &str, least: u32, most: u32) -> bool {
    let read = |piece| Range::read(piece, 1, whole, whole);
    text == "*" || text.split(',').all(|it| read(it).is_some_and(|it| it.is_within(least, most)))
}

fn whole(text: &str) -> Option<u32> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<i32>().ok().filter(|_| is_digits)?;
    u32::try_from(number).ok()
}

/// The same for seconds, up to a minute.
fn is_seconds(text: &str) -> bool {
    const SECOND: u32 = 1_000_000;
    let read = |piece| Range::read(piece, SECOND, micros, micros);
    let is_within = |piece| read(piece).is_some_and(|it: Range| it.is_within(0, 60 * SECOND - 1));
    text == "*" || text.split(',').all(is_within)
}

/// Seconds with a fraction, in whole microseconds; the seventh digit is rounded.
fn micros(text: &str) -> Option<u32> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let digits = format!("{fraction:0<7}");
    let (six, rest) = digits.split_at_checked(6).filter(|_| is_digits)?;
    let micros = six.parse::<u32>().ok()? + u32::from(rest.as_bytes().first()? >= &b'5');
    whole(seconds)?.checked_mul(1_000_000)?.checked_add(micros)
}

/// `FIRST`, `FIRST..LAST`, and either with `/STEP`; one that holds nothing but its first is that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u32,
    last: Option<u32>,
    step: Option<u32>,
}

impl Range {
    /// Reads a range, which without a step of its own has to hold at least one of `unit`, where
    /// that is more than one.
    fn read(
        piece: &str,
        unit: u32,
        number: impl Fn(&str) -> Option<u32>,
        steps: impl Fn(&str) -> Option<u32>,
    ) -> Option<Self> {
        let (range, step) = match piece.split_once('/') {
            Some((range, step)) => (range, Some(steps(step).filter(|step| *step > 0)?)),
            None => (piece, None),
        };
        let Some((first, last)) = range.split_once("..") else {
            return Some(Self { first: number(range)?, last: None, step });
        };
        let (first, last) = (number(first)?, number(last)?);
        let length = last.checked_sub(first)?;
        if step.is_none() && unit > 1 && length < unit {
            return None;
        }
        let step = step.unwrap_or(unit);
        let length = length - length % step;
        let goes_on = length > 0;
        Some(Self { first, last: goes_on.then_some(first + length), step: goes_on.then_some(step) })
    }

    /// Whether all of it lies within bounds; a step without a last has to lead somewhere.
    fn is_within(&self, least: u32, most: u32) -> bool {
        let end = self.last.or(self.step.map(|step| self.first.saturating_add(step)));
        least <= self.first && self.first <= most && end.is_none_or(|end| end <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
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
            assert!(is_moment(value), "{value}");
        }
    }

    #[test]
    fn what_is_no_moment() {
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
            assert!(!is_moment(value), "{value}");
        }
    }
}

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
    let mut words: Vec<&str> = value.split_ascii_whitespace().collect();
    if words.last().is_some_and(|word| words.len() > 1 && is_zone(word)) {
        words.pop();
    }
    match words.as_slice() {
        [] => false,
        [word] if SHORTHANDS.iter().any(|it| it.eq_ignore_ascii_case(word)) => true,
        [word] if word.starts_with('@') => word[1..].parse::<u64>().is_ok(),
        [first, rest @ ..] if is_week(first) => is_date_and_time(rest),
        words => is_date_and_time(words) && !words.is_empty(),
    }
}

fn is_date_and_time(words: &[&str]) -> bool {
    match words {
        [] => true,
        [word] => is_date(word) || is_time(word),
        [date, time] => is_date(date) && is_time(time),
        _ => false,
    }
}

/// `UTC`, or a zone of the database, such as `Europe/Berlin`.
fn is_zone(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(is_part)
        && !is_week(word)
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
    // Every month has 28 days to count from its end.
    let days = if word.contains('~') { 28 } else { 31 };
    let (year, month) = month.rsplit_once('-').unwrap_or(("*", month));
    // Years of two digits are of our time.
    let is_two_digits = |year: &str| is_list(year, 0, 99, 229);
    let is_year = is_two_digits(year) || is_part(year, 1970, 2199);
    is_year && is_part(month, 1, 12) && is_part(day, 1, days)
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
    is_list(text, least, most, most)
}

/// The same, where a step may lead up to `end`.
fn is_list(text: &str, least: u32, most: u32, end: u32) -> bool {
    let number = |text: &str| {
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| is_digits && *number <= most)
    };
    text == "*" || text.split(',').all(|piece| is_range(piece, least, end, number))
}

/// The same for seconds, in microseconds, up to a minute.
fn is_seconds(text: &str) -> bool {
    const LAST: u32 = 59_999_999;
    let number = |text: &str| {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let whole = whole.parse::<u32>().ok().filter(|number| *number < 60)?;
        let is_fine = is_digits(text.get(..1)?) && is_digits(fraction) && !fraction.is_empty();
        let micros = format!("{fraction:0<6}").get(..6)?.parse::<u32>().ok();
        micros.filter(|_| is_fine).map(|micros| whole * 1_000_000 + micros)
    };
    text == "*" || text.split(',').all(|piece| is_range(piece, 0, LAST, number))
}

/// `FIRST`, `FIRST..LAST`, and either with `/STEP`. A step without a last has to lead somewhere.
fn is_range(piece: &str, least: u32, end: u32, number: impl Fn(&str) -> Option<u32>) -> bool {
    let (range, step) = match piece.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (piece, None),
    };
    let (first, last) = match range.split_once("..") {
        Some((first, last)) => (number(first), Some(number(last))),
        None => (number(range), None),
    };
    let Some(first) = first.filter(|first| least <= *first) else { return false };
    if last.is_some_and(|last| last.is_none_or(|last| last < first)) {
        return false;
    }
    step.is_none_or(|step| {
        let step = number(step).filter(|step| *step > 0);
        step.is_some_and(|step| last.is_some() || first + step <= end)
    })
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
        ] {
            assert!(!is_moment(value), "{value}");
        }
    }
}

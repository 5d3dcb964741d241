//! Moments and rhythms of the calendar, such as `Mon..Fri *-*-* 06:30`.

use super::code::FindingCode;
use super::flaw::{Flaw, quoted};
use super::near::nearest;

const SHORTHANDS: [&str; 12] = [
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

fn is_moment(value: &str) -> bool {
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
    let is_day = |text: &str| {
        let text = text.to_ascii_lowercase();
        DAYS.iter().any(|day| text == *day || text == day[..3])
    };
    let is_range = |range: &str| match range.split_once("..").or_else(|| range.split_once('-')) {
        Some((first, last)) => is_day(first) && is_day(last),
        None => is_day(range),
    };
    // A comma may follow the last day.
    word.strip_suffix(',').unwrap_or(word).split(',').all(is_range)
}

/// `MONTH-DAY` or `YEAR-MONTH-DAY`; a tilde counts the days from the end of the month.
fn is_date(word: &str) -> bool {
    let Some((month, day)) = word.rsplit_once(['-', '~']) else { return false };
    let (year, month) = month.rsplit_once('-').unwrap_or(("*", month));
    is_part(year, 0, 9999) && is_part(month, 1, 12) && is_part(day, 1, 31)
}

/// `HOUR:MINUTE` or `HOUR:MINUTE:SECOND`.
fn is_time(word: &str) -> bool {
    match word.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute] => is_part(hour, 0, 23) && is_part(minute, 0, 59),
        [hour, minute, second] => {
            is_part(hour, 0, 23) && is_part(minute, 0, 59) && is_part(second, 0, 60)
        }
        _ => false,
    }
}

/// Numbers with commas between them, each a range and a step if need be, or a star.
fn is_part(text: &str, least: u32, most: u32) -> bool {
    text.split(',').all(|piece| {
        let (range, step) = match piece.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (piece, None),
        };
        let fits = |number: &str| number_of(number).is_some_and(|it| (least..=most).contains(&it));
        let is_range = range == "*"
            || match range.split_once("..") {
                Some((first, last)) => {
                    fits(first) && fits(last) && number_of(first) <= number_of(last)
                }
                None => fits(range),
            };
        is_range && step.is_none_or(|step| number_of(step).is_some_and(|it| it > 0))
    })
}

/// The whole part of a number in decimal digits.
fn number_of(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_digits(whole) && is_digits(fraction)).then(|| whole.parse().ok()).flatten()
}

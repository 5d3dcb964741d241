//! Values that are numbers, sizes, modes, limits or spans of time.

use super::code::FindingCode;
use super::flaw::{Flaw, one_of, quoted};
use super::kind::Measure;
use crate::timespan::parse_timespan;

pub(super) fn span(value: &str) -> Option<Flaw> {
    let is_fine = value.contains('%') || parse_timespan(value).is_ok();
    (!is_fine).then(|| {
        let message = format!("{} is not a span of time", quoted(value));
        Flaw::whole(FindingCode::Timespan, message, "write numbers with units, such as 1min 30s")
    })
}

pub(super) fn size(value: &str) -> Option<Flaw> {
    (!is_size(value)).then(|| {
        let message = format!("{} is not a size", quoted(value));
        Flaw::whole(
            FindingCode::Size,
            message,
            "write a number of bytes, with K, M, G or T if need be",
        )
    })
}

pub(super) fn memory(value: &str) -> Option<Flaw> {
    let is_fine = value == "infinity"
        || is_size(value)
        || fraction(value).is_some_and(|percent| percent <= 100.0);
    (!is_fine).then(|| {
        let message = format!("{} is neither a size nor a percentage", quoted(value));
        let help = "write a number, with K, M, G or T if need be, a percentage up to 100%, or \
                    infinity";
        Flaw::whole(FindingCode::Size, message, help)
    })
}

pub(super) fn percent(value: &str) -> Option<Flaw> {
    fraction(value).is_none().then(|| {
        let message = format!("{} is not a percentage", quoted(value));
        Flaw::whole(FindingCode::Number, message, "write a number with a percent sign, such as 20%")
    })
}

pub(super) fn mode(value: &str) -> Option<Flaw> {
    let number = is_digits(value).then(|| u32::from_str_radix(value, 8).ok()).flatten();
    let is_fine = number.is_some_and(|number| number <= 0o7777);
    (!is_fine).then(|| {
        let message = format!("{} is not a file mode", quoted(value));
        Flaw::whole(FindingCode::Mode, message, "write octal digits up to 7777, such as 0640")
    })
}

/// An integer within bounds, or one of some words.
pub(super) fn whole(value: &str, least: i64, most: i64, words: &[&str]) -> Option<Flaw> {
    let is_fine =
        integer(value).is_some_and(|it| (least..=most).contains(&it)) || words.contains(&value);
    if is_fine {
        return None;
    }
    let message = match integer(value) {
        Some(_) => format!("{} is out of range", quoted(value)),
        None => format!("{} is not a whole number", quoted(value)),
    };
    let mut help = match (least, most) {
        (i64::MIN, i64::MAX) => "write a whole number".to_owned(),
        _ => format!("write a whole number from {least} to {most}"),
    };
    if !words.is_empty() {
        help = format!("{help}, or {}", one_of("", words).trim_start_matches("write "));
    }
    Some(Flaw::whole(FindingCode::Number, message, help))
}

/// A limit, or a soft and a hard one with a colon between them.
pub(super) fn limit(value: &str, measure: Measure) -> Option<Flaw> {
    let help = "write one limit, or a soft and a hard one with a colon between them; infinity is \
                no limit";
    let (soft, hard) = value.split_once(':').unwrap_or((value, value));
    if ![soft, hard].iter().all(|it| is_limit(it, measure)) {
        let what = match measure {
            Measure::Count => "a number",
            Measure::Nice => "a nice level",
            Measure::Size => "a size",
            Measure::Time => "a span of time",
        };
        let message = format!("{} is not {what} as a limit", quoted(value));
        return Some(Flaw::whole(FindingCode::Limit, message, help));
    }
    let is_above = match measure {
        Measure::Count => matches!((integer(soft), integer(hard)), (Some(a), Some(b)) if a > b),
        _ => false,
    };
    is_above.then(|| {
        let message = format!("the soft limit {soft} is above the hard limit {hard}");
        Flaw::whole(FindingCode::Limit, message, "write the lower one first")
    })
}

fn is_limit(value: &str, measure: Measure) -> bool {
    value == "infinity"
        || match measure {
            Measure::Count => is_digits(value) && value.parse::<u64>().is_ok(),
            Measure::Nice => match value.strip_prefix(['+', '-']) {
                Some(level) => is_digits(level) && level.parse().is_ok_and(|it: u8| it <= 20),
                None => is_digits(value) && value.parse().is_ok_and(|it: u8| it <= 40),
            },
            Measure::Size => is_size(value),
            Measure::Time => parse_timespan(value).is_ok(),
        }
}

/// An integer as systemd reads it: in decimal, or in hexadecimal, octal or binary digits after
/// their prefixes, with a sign if need be.
fn integer(value: &str) -> Option<i64> {
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, value.strip_prefix('+').unwrap_or(value)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    let number = i128::from_str_radix(digits, radix).ok().filter(|_| plain)?;
    i64::try_from(sign * number).ok()
}

/// A number of bytes, with suffixes that may follow each other: `1G 512M`.
fn is_size(value: &str) -> bool {
    let mut rest = value.trim_start();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let after = match after.strip_prefix('.') {
            Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => after,
        };
        if number.is_empty() || number.parse::<u64>().is_err() {
            return false;
        }
        let after = after.trim_start();
        rest = after.strip_prefix(['B', 'K', 'M', 'G', 'T', 'P', 'E']).unwrap_or(after);
        if rest.len() == after.len() && !rest.is_empty() {
            return false;
        }
        rest = rest.trim_start();
    }
    !value.is_empty()
}

/// A percentage of at most two digits after the dot; permille and permyriad signs count too.
fn fraction(value: &str) -> Option<f64> {
    let (number, whole) = [('%', 1.0), ('‰', 10.0), ('‱', 100.0)]
        .into_iter()
        .find_map(|(sign, whole)| Some((value.strip_suffix(sign)?, whole)))?;
    let (digits, places) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = is_digits(digits) && is_digits(places) && places.len() <= 2;
    is_number.then(|| number.parse::<f64>().ok()).flatten().map(|number| number / whole)
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

//! Checks of numbers, sizes, file modes, limits and time spans.

use super::finding::FindingCode;
use super::finding::{ValueError, one_of, quoted};
use super::kind::Measure;
use super::values;
use crate::values::size::{Size, integer, parse_permyriad, parse_size};
use crate::values::timespan::{Timespan, parse_timespan};

pub(super) fn span(value: &str) -> Option<ValueError> {
    parse_timespan(value).is_err().then(|| {
        let message = format!("{} is not a time span", quoted(value));
        ValueError::new(
            FindingCode::Timespan,
            message,
            "write numbers with units, such as 1min 30s",
        )
    })
}

pub(super) fn size(value: &str) -> Option<ValueError> {
    size_of(value).is_none().then(|| {
        let message = format!("{} is not a size", quoted(value));
        ValueError::new(FindingCode::Size, message, "write a number of bytes, such as 4096 or 512M")
    })
}

pub(super) fn memory(option: &str, value: &str) -> Option<ValueError> {
    let message = match parse_size(value) {
        Err(_) => format!("{} is neither a size nor a percentage", quoted(value)),
        // Such a limit would leave no memory at all.
        Ok(Size::Bytes(0) | Size::Permyriad(0)) if NONZERO_OPTIONS.contains(&option) => {
            format!("{} is out of range", quoted(value))
        }
        Ok(Size::Bytes(u64::MAX)) => format!("{} is out of range", quoted(value)),
        Ok(_) => return None,
    };
    let help = "write a size such as 512M, a percentage up to 100%, or infinity";
    Some(ValueError::new(FindingCode::Size, message, help))
}

const NONZERO_OPTIONS: [&str; 5] =
    ["MemoryHigh", "MemoryLimit", "MemoryMax", "StartupMemoryHigh", "StartupMemoryMax"];

pub(super) fn tasks(value: &str) -> Option<ValueError> {
    let is_fine = value == "infinity"
        || integer(value).is_some_and(|number| number > 0)
        || parse_permyriad(value).is_ok_and(|share| share <= 10_000);
    (!is_fine).then(|| {
        let message = format!("{} is neither a number nor a percentage", quoted(value));
        let help = "write a number above 0, a percentage up to 100%, or infinity";
        ValueError::new(FindingCode::Number, message, help)
    })
}

/// Checks a percentage: positive for `CPUQuota=`, at most 100% for all other options.
pub(super) fn percent(option: &str, value: &str) -> Option<ValueError> {
    let shares = if option == "CPUQuota" { 1..=u32::MAX } else { 0..=10_000 };
    let message = match parse_permyriad(value) {
        Ok(share) if shares.contains(&share) => return None,
        Ok(0) => format!("{} is not above 0%", quoted(value)),
        Ok(_) => format!("{} is above 100%", quoted(value)),
        Err(_) => format!("{} is not a percentage", quoted(value)),
    };
    let help = "write a number with a percent sign, such as 20%";
    Some(ValueError::new(FindingCode::Number, message, help))
}

pub(super) fn mode(value: &str) -> Option<ValueError> {
    let number = is_digits(value).then(|| u32::from_str_radix(value, 8).ok()).flatten();
    let is_fine = number.is_some_and(|number| number <= 0o7777);
    (!is_fine).then(|| {
        let message = format!("{} is not a file mode", quoted(value));
        ValueError::new(FindingCode::Mode, message, "write octal digits up to 7777, such as 0640")
    })
}

/// Checks an integer within bounds, or one of some words.
pub(super) fn whole(value: &str, least: i64, most: i64, words: &[&str]) -> Option<ValueError> {
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
    Some(ValueError::new(FindingCode::Number, message, help))
}

/// Checks that a value is one of several words, or a number from 0 to `most`.
pub(super) fn choice_or_number(value: &str, most: i64, words: &[&str]) -> Option<ValueError> {
    match integer(value) {
        Some(number) if (0..=most).contains(&number) => None,
        Some(_) => {
            let message = format!("{} is out of range", quoted(value));
            let help = one_of("", words);
            let help = format!("write a whole number from 0 to {most}, or {}", &help[6..]);
            Some(ValueError::new(FindingCode::Choice, message, help))
        }
        None => values::choice(value, words),
    }
}

/// Checks a resource limit: a single limit, or a soft limit and a hard limit separated by a colon.
pub(super) fn limit(value: &str, measure: Measure) -> Option<ValueError> {
    let help = "write one limit, or SOFT:HARD for two; infinity means no limit";
    let (soft, hard) = value.split_once(':').unwrap_or((value, value));
    if [soft, hard].iter().any(|it| limit_of(it, measure).is_none()) {
        let what = match measure {
            Measure::Count => "a number",
            Measure::Nice => "a nice level",
            Measure::Size => "a size",
            Measure::Time => "a time span",
        };
        let message = format!("{} is not {what} as a limit", quoted(value));
        return Some(ValueError::new(FindingCode::Limit, message, help));
    }
    let is_above = match (limit_of(soft, measure), limit_of(hard, measure)) {
        (Some(soft), Some(hard)) => soft > hard,
        _ => false,
    };
    is_above.then(|| {
        let message = format!("the soft limit {soft} is above the hard limit {hard}");
        ValueError::new(FindingCode::Limit, message, "write the lower limit first")
    })
}

/// Converts a limit to a number, so that two limits can be compared. Returns `None` for an invalid
/// limit.
fn limit_of(value: &str, measure: Measure) -> Option<u128> {
    if value == "infinity" && measure != Measure::Nice {
        return Some(u128::MAX);
    }
    match measure {
        Measure::Count => u128::try_from(integer(value)?).ok(),
        // The kernel counts down from 20; a sign marks a nice level.
        Measure::Nice => {
            // The number after the sign may have a sign of its own.
            let signed = value.strip_prefix('+').map(|level| (1, level));
            let signed = signed.or_else(|| value.strip_prefix('-').map(|level| (-1, level)));
            let level = signed.map(|(sign, level)| Some(sign * integer(level)?));
            match (level, integer(value)) {
                (Some(level), _) => level.filter(|level| (-20..=19).contains(level)),
                (None, number) => Some(20 - number.filter(|number| (0..=40).contains(number))?),
            }
            .and_then(|level| u128::try_from(20 - level).ok())
        }
        // The largest number stands for infinity, and is no size.
        Measure::Size => size_of(value).filter(|size| *size < u64::MAX.into()),
        Measure::Time => match parse_timespan(value).ok()? {
            Timespan::Finite(time) => Some(time.as_micros()),
            Timespan::Infinity => Some(u128::MAX),
        },
    }
}

/// Parses a number of bytes.
fn size_of(value: &str) -> Option<u128> {
    match parse_size(value).ok()? {
        Size::Bytes(bytes) => Some(bytes.into()),
        Size::Permyriad(_) | Size::Infinity => None,
    }
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_must_not_exceed_hard_limit() {
        let fine = |value, measure| limit(value, measure).is_none();
        assert!(fine("1024:4096", Measure::Count) && !fine("4096:1024", Measure::Count));
        assert!(fine("infinity", Measure::Size) && !fine("infinity:1G", Measure::Size));
        assert!(fine("1min:1h", Measure::Time) && !fine("1h:1min", Measure::Time));
        assert!(fine("+5:-5", Measure::Nice) && !fine("+20", Measure::Nice));
        assert!(fine("40", Measure::Nice) && !fine("infinity", Measure::Nice));
    }
}

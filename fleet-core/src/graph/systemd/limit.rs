//! Kernel limits: `LimitNOFILE=` and the like.

use std::time::Duration;

use fleet_unitfile::{Size, parse_size, parse_timespan};

use super::value::unreadable;

/// A limit; `None` means no limit.
type Bound = Option<u64>;

/// Unit of a limit's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Bytes,
    Count,
    Microseconds,
    Nice,
    Seconds,
}

/// Options that set kernel limits, each with the kernel's name of the limit and the unit of measure
/// of its value.
const LIMITS: [(&str, &str, Measure); 16] = [
    ("LimitAS", "as", Measure::Bytes),
    ("LimitCORE", "core", Measure::Bytes),
    ("LimitCPU", "cpu", Measure::Seconds),
    ("LimitDATA", "data", Measure::Bytes),
    ("LimitFSIZE", "fsize", Measure::Bytes),
    ("LimitLOCKS", "locks", Measure::Count),
    ("LimitMEMLOCK", "memlock", Measure::Bytes),
    ("LimitMSGQUEUE", "msgqueue", Measure::Bytes),
    ("LimitNICE", "nice", Measure::Nice),
    ("LimitNOFILE", "nofile", Measure::Count),
    ("LimitNPROC", "nproc", Measure::Count),
    ("LimitRSS", "rss", Measure::Bytes),
    ("LimitRTPRIO", "rtprio", Measure::Count),
    ("LimitRTTIME", "rttime", Measure::Microseconds),
    ("LimitSIGPENDING", "sigpending", Measure::Count),
    ("LimitSTACK", "stack", Measure::Bytes),
];

/// Returns the kernel's name of the limit that an option sets, or `None` if the option sets no
/// limit.
pub(super) fn name(option: &str) -> Option<&'static str> {
    LIMITS.iter().find(|(known, ..)| *known == option).map(|(_, name, _)| *name)
}

/// Parses the soft and the hard limit.
pub(super) fn parse(option: &str, value: &str) -> Result<(Bound, Bound), String> {
    let known = LIMITS.iter().find(|(known, ..)| *known == option);
    let measure = known.map_or(Measure::Count, |(.., measure)| *measure);
    let (soft, hard) = value.split_once(':').unwrap_or((value, value));
    let (soft, hard) = (bound(soft, measure)?, bound(hard, measure)?);
    if hard.is_some_and(|hard| soft.is_none_or(|soft| soft > hard)) {
        return Err(format!(
            "is {value:?}: write the soft limit first; it must not exceed the hard \
                            limit"
        ));
    }
    Ok((soft, hard))
}

fn bound(text: &str, measure: Measure) -> Result<Bound, String> {
    if text == "infinity" {
        return Ok(None);
    }
    let bound = match measure {
        Measure::Bytes => match parse_size(text).map_err(unreadable)? {
            Size::Bytes(bytes) => Some(bytes),
            _ => None,
        },
        Measure::Count => text.parse().ok(),
        Measure::Nice => nice(text),
        Measure::Seconds => time(text, Duration::from_secs(1))?,
        Measure::Microseconds => time(text, Duration::from_micros(1))?,
    };
    bound.map(Some).ok_or_else(|| match measure {
        Measure::Nice => format!("is {text:?}: write +5, -5 or a number from 1 to 40"),
        _ => format!("is {text:?}: write a number or infinity, or two with a colon"),
    })
}

/// Parses a duration in this unit, rounded up.
fn time(text: &str, unit: Duration) -> Result<Option<u64>, String> {
    // A plain number is in the unit of the limit.
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    let span = parse_timespan(text).map_err(unreadable)?.as_duration();
    Ok(span.and_then(|span| u64::try_from(span.as_micros().div_ceil(unit.as_micros())).ok()))
}

/// Parses a `LimitNICE=` value. A number with a sign is a nice level, and a number without a sign
/// is the kernel's raw value.
fn nice(text: &str) -> Option<u64> {
    let number: i64 = text.parse().ok()?;
    let number = if text.starts_with(['+', '-']) {
        Some(20 - number).filter(|_| (-20..=19).contains(&number))
    } else {
        Some(number).filter(|number| (0..=40).contains(number))
    };
    number.and_then(|number| u64::try_from(number).ok())
}

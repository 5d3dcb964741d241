//! Points in time on the command line, in the forms of `journalctl`.

use std::str::FromStr;
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_http::wire::Time;
use fleet_unitfile::values::{Timespan, parse_timespan};
use jiff::civil::{Date, DateTime, Time as TimeOfDay};
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};

/// A point in time, relative to now or fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// This long ago.
    Ago(Timespan),
    /// This time, since 1970 (UTC).
    At(Timestamp),
}

/// Error for a text that is no point in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no time: write a time span such as 10min or \"2h ago\", a date and time such as \
     \"2026-11-25 10:00\", or now, today or yesterday"
)]
pub(crate) struct WhenError;

impl When {
    /// Returns the time for which lines are to be read from now back, as the API needs it.
    pub(crate) fn age(self, now: Timestamp) -> Timespan {
        match self {
            Self::Ago(span) => span,
            Self::At(at) => Timespan::Finite(now.since(at)),
        }
    }

    /// Returns the time itself, since 1970 (UTC).
    pub(crate) fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(Timespan::Finite(age)) => {
                Timestamp::default().after(now.since(Timestamp::default()).saturating_sub(age))
            }
            Self::Ago(Timespan::Infinity) => Timestamp::default(),
            Self::At(at) => at,
        }
    }
}

impl FromStr for When {
    type Err = WhenError;

    fn from_str(text: &str) -> Result<Self, WhenError> {
        let zone = if cfg!(test) { TimeZone::UTC } else { TimeZone::system() };
        parse(text, &Zoned::now().with_time_zone(zone))
    }
}

/// Parses a point in time. `now` also gives the time zone of dates without one.
fn parse(text: &str, now: &Zoned) -> Result<When, WhenError> {
    let text = text.trim();
    let day = |date: Date| date.to_zoned(now.time_zone().clone()).map_err(|_| WhenError);
    match text {
        "now" => return Ok(When::Ago(Timespan::Finite(Duration::ZERO))),
        "today" => return at(&day(now.date())?),
        "yesterday" => {
            return at(&day(now.date().checked_sub(1.day()).map_err(|_| WhenError)?)?);
        }
        _ => {}
    }
    if let Some(seconds) = text.strip_prefix('@') {
        let span = parse_timespan(seconds).map_err(|_| WhenError)?;
        let since = span.as_duration().ok_or(WhenError)?;
        return Ok(When::At(Timestamp::default().after(since)));
    }
    let ago = text.strip_prefix('-').or_else(|| text.strip_suffix(" ago")).unwrap_or(text);
    if let Ok(span) = parse_timespan(ago) {
        return Ok(When::Ago(span));
    }
    if let Ok(time) = text.parse::<Time>() {
        return Ok(When::At(time.timestamp()));
    }
    let (text, zone) = match text.strip_suffix(" UTC") {
        Some(rest) => (rest, TimeZone::UTC),
        None => (text, now.time_zone().clone()),
    };
    // A date and time could also be read as a time.
    let time = match (text.parse::<DateTime>(), text.parse::<Date>()) {
        (Ok(time), _) => time,
        (_, Ok(date)) => date.to_datetime(TimeOfDay::midnight()),
        _ => now.date().to_datetime(text.parse::<TimeOfDay>().map_err(|_| WhenError)?),
    };
    at(&time.to_zoned(zone).map_err(|_| WhenError)?)
}

fn at(time: &Zoned) -> Result<When, WhenError> {
    let millis = u64::try_from(time.timestamp().as_millisecond()).map_err(|_| WhenError)?;
    Ok(When::At(Timestamp::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_journalctl_are_read() {
        let now: Zoned = "2026-11-28T17:40:02+01:00[Europe/Berlin]".parse().expect("it is a time");
        for (text, expected) in [
            ("now", "0s ago"),
            ("10min", "600s ago"),
            ("1h 30min", "5400s ago"),
            ("5 minutes ago", "300s ago"),
            ("-5min", "300s ago"),
            ("90", "90s ago"),
            ("infinity", "always"),
            ("today", "2026-11-27T23:00:00.000Z"),
            ("yesterday", "2026-11-26T23:00:00.000Z"),
            ("2026-11-25 10:00", "2026-11-25T09:00:00.000Z"),
            ("2026-11-25 10:00:30", "2026-11-25T09:00:30.000Z"),
            ("2026-11-25 10:00 UTC", "2026-11-25T10:00:00.000Z"),
            ("2026-11-25", "2026-11-24T23:00:00.000Z"),
            ("2026-07-01", "2026-06-30T22:00:00.000Z"),
            ("10:00", "2026-11-28T09:00:00.000Z"),
            ("2026-11-25T10:00:00Z", "2026-11-25T10:00:00.000Z"),
            ("2026-11-25T10:00:00+02:00", "2026-11-25T08:00:00.000Z"),
            ("@1764212400", "2025-11-27T03:00:00.000Z"),
        ] {
            let read = match parse(text, &now) {
                Ok(When::At(at)) => Time::from(at).to_string(),
                Ok(When::Ago(Timespan::Finite(age))) => format!("{}s ago", age.as_secs()),
                Ok(When::Ago(Timespan::Infinity)) => "always".to_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(read, expected, "{text}");
        }
        for bad in ["", "soon", "2026-13-01", "25:00", "ago", "@", "tomorow"] {
            assert_eq!(parse(bad, &now), Err(WhenError), "{bad}");
        }
    }

    #[test]
    fn age_and_time_are_relative_to_now() {
        let now = Timestamp::from_millis(10_000);
        let fixed = When::At(Timestamp::from_millis(4_000));
        assert_eq!(fixed.age(now).as_duration(), Some(Duration::from_secs(6)));
        assert_eq!(fixed.time(now), Timestamp::from_millis(4_000));
        let ago = When::Ago(Timespan::Finite(Duration::from_secs(3)));
        assert_eq!(ago.time(now), Timestamp::from_millis(7_000));
        assert_eq!(When::Ago(Timespan::Infinity).time(now), Timestamp::default());
    }
}

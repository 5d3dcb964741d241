//! Formats times for people: in local time, and relative to now.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_http::wire::Time;
use jiff::tz::TimeZone;

/// Formats a time as `systemctl` does, in local time; empty for `None`.
pub(crate) fn date(time: Option<Time>) -> String {
    time.map(|time| format_in(time, local_zone())).unwrap_or_default()
}

/// Formats a time and its age, such as `Wed 2026-11-25 10:00:00 UTC; 3min ago`; empty for `None`.
pub(crate) fn date_and_age(time: Option<Time>, now: Timestamp) -> String {
    time.map(|time| format!("{}; {}", date(Some(time)), relative(time, now))).unwrap_or_default()
}

/// Formats a time relative to now, such as `3min ago` or `in 2h`, in one unit of time.
pub(crate) fn relative(time: Time, now: Timestamp) -> String {
    let time = time.timestamp();
    match time > now {
        true => format!("in {}", span(time.since(now))),
        false => format!("{} ago", span(now.since(time))),
    }
}

/// Formats the time of a line of a log, in local time, followed by a space. Empty for `None`.
pub(crate) fn log_time(time: Option<Time>) -> String {
    time.map(|time| local(time, "%b %d %H:%M:%S ", local_zone())).unwrap_or_default()
}

/// Formats a duration in its largest unit of time, such as `3min`, rounded down.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 86_400, seconds / 3600, seconds / 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}min"),
        (0, hours, _) => format!("{hours}h"),
        (days, ..) => format!("{days}d"),
    }
}

fn format_in(time: Time, zone: TimeZone) -> String {
    local(time, "%a %Y-%m-%d %H:%M:%S %Z", zone)
}

fn local(time: Time, format: &str, zone: TimeZone) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    time.to_zoned(zone).strftime(format).to_string()
}

/// Returns the local time zone; UTC in unit tests, so that their output is the same everywhere.
fn local_zone() -> TimeZone {
    if cfg!(test) { TimeZone::UTC } else { TimeZone::system() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Timestamp::from_millis(millis).into()
    }

    #[test]
    fn dates_are_in_the_given_zone() {
        let time = at(1_764_208_800_000);
        assert_eq!(date(Some(time)), "Thu 2025-11-27 02:00:00 UTC");
        let zone = TimeZone::fixed(jiff::tz::offset(9));
        assert_eq!(format_in(time, zone), "Thu 2025-11-27 11:00:00 +09");
        assert_eq!(date(None), "");
        assert_eq!(log_time(Some(time)), "Nov 27 02:00:00 ");
        assert_eq!(date(Some(at(u64::MAX))), "Thu 9999-12-30 22:00:00 UTC");
    }

    #[test]
    fn relative_times_have_one_unit() {
        let now = Timestamp::from_millis(10 * 86_400_000);
        for (seconds_ago, expected) in [
            (0, "0s ago"),
            (59, "59s ago"),
            (61, "1min ago"),
            (3 * 3600 + 1, "3h ago"),
            (9 * 86_400, "9d ago"),
        ] {
            let time = at(now.as_millis() - seconds_ago * 1000);
            assert_eq!(relative(time, now), expected);
        }
        assert_eq!(relative(at(now.as_millis() + 120_000), now), "in 2min");
        let shown = date_and_age(Some(at(now.as_millis() - 5000)), now);
        assert_eq!(shown, "Sat 1970-01-10 23:59:55 UTC; 5s ago");
    }
}

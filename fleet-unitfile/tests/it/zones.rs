//! Elapses in time zones of the machine's database, by the feature `jiff`.

use std::time::Duration;

use fleet_unitfile::Calendar;
use fleet_unitfile::calendar::{OffsetPeriod, Zone as _};
use fleet_unitfile::values::Timespan;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::elapses::{seconds, systemd_finds};
use crate::report_skipped;

fn next(event: &str, after: &Zoned) -> Option<Zoned> {
    let event: Calendar = event.parse().unwrap();
    event.next_zoned(after, jiff::tz::db()).unwrap()
}

#[test]
fn clock_changes_of_named_zones_skip_or_repeat_times() {
    for (event, after, expected) in [
        // An hour is left out in spring, and one occurs twice in autumn.
        ("02:30 Europe/Berlin", "2026-03-28T12:00Z[UTC]", "2026-03-30T02:30+02[Europe/Berlin]"),
        ("02:30 Europe/Berlin", "2026-10-24T12:00Z[UTC]", "2026-10-25T02:30+02[Europe/Berlin]"),
        ("02:30 Europe/Berlin", "2026-10-25T00:30Z[UTC]", "2026-10-26T02:30+01[Europe/Berlin]"),
        (
            "daily America/New_York",
            "2026-11-01T04:00Z[UTC]",
            "2026-11-02T00:00-05[America/New_York]",
        ),
        (
            "01:30 America/New_York",
            "2026-11-01T05:30Z[UTC]",
            "2026-11-02T01:30-05[America/New_York]",
        ),
        // By half an hour.
        (
            "02:15 Australia/Lord_Howe",
            "2026-10-03T00:00Z[UTC]",
            "2026-10-05T02:15+11[Australia/Lord_Howe]",
        ),
        (
            "01:45 Australia/Lord_Howe",
            "2026-04-04T00:00Z[UTC]",
            "2026-04-05T01:45+11[Australia/Lord_Howe]",
        ),
        // At midnight.
        (
            "daily America/Sao_Paulo",
            "2018-11-03T12:00Z[UTC]",
            "2018-11-05T00:00-02[America/Sao_Paulo]",
        ),
        // By a whole day.
        ("12:00 Pacific/Apia", "2011-12-29T23:00Z[UTC]", "2011-12-31T12:00+14[Pacific/Apia]"),
        // Summer time is the standard time there.
        ("01:30 Europe/Dublin", "2026-03-28T12:00Z[UTC]", "2026-03-30T01:30+01[Europe/Dublin]"),
        // Without clock changes.
        (
            "06:00 Asia/Kathmandu",
            "2026-03-28T12:00Z[UTC]",
            "2026-03-29T06:00+05:45[Asia/Kathmandu]",
        ),
        // Beyond the last clock change that the database lists.
        ("02:30 Europe/Berlin", "2100-03-27T12:00Z[UTC]", "2100-03-29T02:30+02[Europe/Berlin]"),
        ("12:00 utc", "2026-03-28T12:00+01[Europe/Berlin]", "2026-03-28T12:00Z[UTC]"),
        // Without a zone: that of the given time.
        ("02:30", "2026-03-28T12:00+01[Europe/Berlin]", "2026-03-30T02:30+02[Europe/Berlin]"),
        ("daily", "1950-01-01T00:00Z[UTC]", "1970-01-01T00:00Z[UTC]"),
    ] {
        let found = next(event, &after.parse().unwrap());
        assert_eq!(found, Some(expected.parse().unwrap()), "{event} after {after}");
    }
}

#[test]
fn event_without_elapse_and_unknown_zone_are_told_apart() {
    let after: Zoned = "2026-03-28T12:00Z[UTC]".parse().unwrap();
    assert_eq!(next("2020-01-01 Europe/Berlin", &after), None);
    let last: Zoned = "2199-12-31T23:59:59Z[UTC]".parse().unwrap();
    assert_eq!(next("hourly", &last), None);
    assert_eq!(next("hourly", &Timestamp::MAX.to_zoned(TimeZone::UTC)), None);
    let nowhere: Calendar = "daily Europe/Atlantis".parse().unwrap();
    assert!(nowhere.next_zoned(&after, jiff::tz::db()).is_err());
}

#[test]
fn offset_periods_follow_the_database() {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let spring = 1_774_746_000;
    let since = Some((1_761_440_400, 7200));
    let winter = OffsetPeriod { offset: 3600, since, until: Some(spring) };
    assert_eq!(berlin.offset_period(spring - 1), winter);
    let summer = berlin.offset_period(spring);
    assert_eq!((summer.offset, summer.since), (7200, Some((spring, 3600))));
    for constant in [TimeZone::UTC.offset_period(0), berlin.offset_period(i64::MAX)] {
        assert_eq!(constant, OffsetPeriod { offset: 0, since: None, until: None });
    }
}

#[test]
fn finite_time_spans_are_signed_durations() {
    let span = |text: &str| text.parse::<Timespan>().unwrap().as_signed_duration();
    assert_eq!(span("1min 500ms"), Some(SignedDuration::from_millis(60_500)));
    assert!(span("584541y").is_some());
    assert_eq!(span("infinity"), None);
    assert_eq!(Timespan::Finite(Duration::MAX).as_signed_duration(), None);
}

#[test]
fn systemd_computes_the_same_elapses_in_named_zones() {
    // systemd 252 loses some times where summer time is shorter or longer than an hour or has
    // negative offsets (Lord Howe, Dublin, Casablanca), and around the day that Apia left out.
    const ZONES: [&str; 9] = [
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "America/St_Johns",
        "Africa/Cairo",
        "Asia/Kathmandu",
        "Asia/Tehran",
        "Pacific/Apia",
        "Pacific/Chatham",
    ];
    const EVENTS: [&str; 9] = [
        "daily",
        "hourly",
        "*:0/25",
        "00:30",
        "01:45",
        "02:30",
        "Sun 03:00",
        "*-*~1",
        "*-3,10,11-* 1..3:0/20",
    ];
    let events: Vec<String> =
        ZONES.iter().flat_map(|zone| EVENTS.map(|event| format!("{event} {zone}"))).collect();
    let texts: Vec<&str> = events.iter().map(String::as_str).collect();
    for after in
        ["2026-03-28 12:34:56", "2026-10-24 22:00:00", "2026-04-04 13:00:00", "2018-11-03 12:00:00"]
    {
        let Some(theirs) = systemd_finds(&texts, after, 12) else {
            return report_skipped("systemd-analyze");
        };
        assert_eq!(theirs.len(), texts.len());
        let start = Timestamp::from_second(seconds(after) as i64).unwrap().to_zoned(TimeZone::UTC);
        for (text, theirs) in texts.iter().zip(theirs) {
            let follow = |at: &Zoned| next(text, at);
            let ours = std::iter::successors(follow(&start), follow).take(12);
            let ours: Vec<u64> = ours.map(|at| at.timestamp().as_second() as u64).collect();
            assert_eq!(ours, theirs, "{text} after {after}");
        }
    }
}

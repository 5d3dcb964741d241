//! Spans of time and rhythms of the calendar, beside systemd's own.

use std::time::Duration;

use fleet_unitfile::{Timespan, is_calendar, parse_timespan};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::left_out;
use crate::properties::config;

#[test]
fn a_span_is_written_with_each_unit_that_occurs() {
    for (micros, text) in [
        (0, "0"),
        (1, "1us"),
        (1_500_000, "1s 500ms"),
        (90_000_000, "1min 30s"),
        (86_400_000_000 * 8, "1w 1d"),
        (2_629_800_000_000, "1month"),
        (31_557_600_000_000, "1y"),
    ] {
        let span = Timespan::Finite(Duration::from_micros(micros));
        assert_eq!(span.to_string(), text);
    }
    assert_eq!(Timespan::Infinity.to_string(), "infinity");
}

/// What systemd makes of a span, as its program prints it after the given word.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn systemd_says(span: &str) -> Option<String> {
    let mut command = std::process::Command::new("systemd-analyze");
    let output = command.args(["timespan", span]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("Human:"))?;
    Some(line.trim().to_owned())
}

#[test]
fn systemd_writes_whole_seconds_the_same() {
    let spans = ["1s", "59", "3600", "100000", "1week 3days", "400d", "2M 1w", "90min", "5y 1s"];
    for span in spans {
        let Some(human) = systemd_says(span) else {
            return left_out("systemd-analyze");
        };
        assert_eq!(parse_timespan(span).unwrap().to_string(), human);
    }
}

/// Whether systemd takes a text for a rhythm.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn systemd_takes(text: &str) -> Option<bool> {
    let mut command = std::process::Command::new("systemd-analyze");
    let output = command.args(["calendar", "--", text]).output().ok()?;
    Some(output.status.success())
}

/// Rhythms that are right or nearly so.
fn rhythm() -> impl Strategy<Value = String> {
    let number = || prop::sample::select(vec!["*", "1", "01", "12", "13", "31", "59", "60", "0"]);
    let part = move || {
        let tail = prop::sample::select(vec!["", "", "", "", "..20", "/5", ",40", "..", "/0"]);
        (number(), tail).prop_map(|(number, tail)| format!("{number}{tail}"))
    };
    let days = prop::sample::select(vec!["", "", "Mon ", "Mon..Fri ", "sat,Sunday ", "Fo "]);
    let year = prop::sample::select(vec!["", "*-", "2026-", "70-", "1969-"]);
    let date = (year, part(), prop::sample::select(vec!["-", "~"]), part());
    let date = date.prop_map(|(year, month, mark, day)| format!("{year}{month}{mark}{day} "));
    let date = prop_oneof![Just(String::new()), date];
    let time = (part(), part(), prop_oneof![Just(None), part().prop_map(Some)]);
    let time = time.prop_map(|(hour, minute, second)| match second {
        Some(second) => format!("{hour}:{minute}:{second}"),
        None => format!("{hour}:{minute}"),
    });
    (days, date, time).prop_map(|(days, date, time)| format!("{days}{date}{time}"))
}

#[test]
fn systemd_takes_the_same_rhythms() {
    let known = [
        "daily",
        "Weekly",
        "yearly",
        "fortnightly",
        "",
        "Mon",
        "2026-11-21",
        "12",
        "20/3:00",
        "20/4:00",
        "20..22/5:00",
        "*-*-31/5",
        "*-*~28",
        "*-*~29",
        "*-*~1/30",
        "*:50..59/20",
        "*:0/59",
        "*:0/60",
        "*:*:59/0.5",
        "*:*:59.5/1",
        "*:*:59/1",
        "2199/1-01-01",
        "99/5-01-01",
    ];
    let mut rhythms: Vec<_> = known.map(str::to_owned).into();
    let (mut runner, mut differing) = (TestRunner::deterministic(), Vec::new());
    rhythms.extend((0..150).map(|_| rhythm().new_tree(&mut runner).unwrap().current()));
    for text in rhythms {
        let Some(takes) = systemd_takes(&text) else {
            return left_out("systemd-analyze");
        };
        if is_calendar(&text) != takes {
            differing.push(format!("{text:?}: {takes}"));
        }
    }
    assert_eq!(differing, [""; 0], "taken by systemd, or not");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_span_that_is_written_reads_back(micros in 0..u64::MAX) {
        let span = Timespan::Finite(Duration::from_micros(micros));
        prop_assert_eq!(parse_timespan(&span.to_string()), Ok(span));
    }
}

//! Spans of time as they are written, beside systemd's own.

use std::time::Duration;

use fleet_unitfile::{Timespan, parse_timespan};
use proptest::prelude::*;

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

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_span_that_is_written_reads_back(micros in 0..u64::MAX) {
        let span = Timespan::Finite(Duration::from_micros(micros));
        prop_assert_eq!(parse_timespan(&span.to_string()), Ok(span));
    }
}

//! Time spans, compared with systemd.

use std::process::Output;
use std::time::Duration;

use fleet_unitfile::values::{Timespan, parse_timespan};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::properties::config;
use crate::report_skipped;

#[test]
fn time_span_is_written_with_its_nonzero_units() {
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

/// Returns the output of `systemd-analyze` for some texts. `None` if the program is not installed.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
pub(crate) fn analyze(verb: &[&str], texts: &[&str]) -> Option<Output> {
    let mut command = std::process::Command::new("systemd-analyze");
    command.args(verb).arg("--").args(texts).output().ok()
}

/// Returns the microseconds and the text form that systemd derives from time spans.
fn systemd_reads(spans: &[&str]) -> Option<Vec<(u64, String)>> {
    let text = String::from_utf8(analyze(&["timespan"], spans)?.stdout).unwrap();
    let of = |word: &str| {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(word));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let micros = of("\u{3bc}s:").into_iter().map(|number| number.parse().unwrap());
    Some(micros.zip(of("Human:")).collect())
}

#[test]
fn systemd_writes_whole_seconds_the_same() {
    let spans = ["1s", "59", "3600", "100000", "1week 3days", "400d", "2M 1w", "90min", "5y 1s"];
    let Some(read) = systemd_reads(&spans) else {
        return report_skipped("systemd-analyze");
    };
    assert_eq!(read.len(), spans.len());
    for (span, (_, human)) in spans.into_iter().zip(read) {
        assert_eq!(parse_timespan(span).unwrap().to_string(), human);
    }
}

/// Returns the indexes of those time spans that systemd cannot parse in a unit file.
#[expect(clippy::disallowed_methods, reason = "the test hands a file to another program")]
fn complained_of(spans: &[&str]) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spans.service");
    let lines = spans.iter().map(|span| format!("RestartSec={span}\n"));
    let source: String = ["[Service]\n".to_owned()].into_iter().chain(lines).collect();
    std::fs::write(&path, source).unwrap();
    let mut command = std::process::Command::new("systemd-analyze");
    let output = command.args(["verify", "--man=no"]).arg(&path).output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    let numbers = report.lines().filter_map(|line| {
        let (_, rest) = line.split_once("spans.service:")?;
        rest.split_once(": Failed to parse sec value, ")?.0.parse::<usize>().ok()
    });
    numbers.map(|line| line - 2).collect()
}

/// Generates time spans that are valid or nearly so.
fn span() -> impl Strategy<Value = String> {
    let numbers = "0 1 5 90 007 1.5 0.25 .5 2.000001 1.0000019 123456789 +3 -1 1. 1..2 . 0x1 1e3 \
                   584542 9223372036854775807 9223372036854775808 18446744073709551615 0.1234567";
    let number = prop::sample::select(numbers.split_whitespace().chain([""]).collect::<Vec<_>>());
    let units = "s sec second seconds m min minute minutes h hr hour hours d day days w week weeks \
                 M month months y year years ms msec us usec \u{b5}s \u{3bc}s ns S Min \
                 infinity sx - mon";
    let unit = prop::sample::select(units.split(' ').chain(["", ""]).collect::<Vec<_>>());
    let blank = || prop::sample::select(vec!["", "", " ", "  ", "\t"]);
    let term = (blank(), number, blank(), unit).prop_map(|(a, b, c, d)| format!("{a}{b}{c}{d}"));
    let sum = (prop::collection::vec(term, 1..4), blank());
    sum.prop_map(|(terms, blank)| terms.concat() + blank)
}

#[test]
fn systemd_reads_the_same_time_spans() {
    let mut runner = TestRunner::deterministic();
    let known = ["infinity", " infinity ", "infinity 1s", "1s infinity", "584541y", "584542y 0s"];
    let mut spans: Vec<String> = known.map(str::to_owned).into();
    while spans.len() < 2200 {
        let span = span().new_tree(&mut runner).unwrap().current();
        spans.extend(Some(span).filter(|span| !span.trim().is_empty()));
    }
    let (taken, refused): (Vec<_>, Vec<_>) =
        spans.iter().map(String::as_str).partition(|span| parse_timespan(span).is_ok());
    assert!(taken.len() > 300 && refused.len() > 300, "{} are taken", taken.len());
    for some in taken.chunks(200) {
        let Some(read) = systemd_reads(some) else {
            return report_skipped("systemd-analyze");
        };
        let ours = some.iter().map(|span| match parse_timespan(span).unwrap().as_duration() {
            Some(span) => u64::try_from(span.as_micros()).unwrap(),
            None => u64::MAX,
        });
        let ours: Vec<_> = some.iter().copied().zip(ours).collect();
        let theirs = read.into_iter().map(|(micros, _)| micros);
        let theirs: Vec<_> = some.iter().copied().zip(theirs).collect();
        assert_eq!(ours, theirs, "systemd stops at the first that it does not take");
    }
    // systemd has to warn about each of these.
    let reported = complained_of(&refused);
    let taken = refused.iter().enumerate().filter(|(number, _)| !reported.contains(number));
    let taken: Vec<&str> = taken.map(|(_, span)| *span).collect();
    assert_eq!(taken, [""; 0], "taken by systemd alone");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn written_time_span_reads_back(micros in 0..u64::MAX) {
        let span = Timespan::Finite(Duration::from_micros(micros));
        prop_assert_eq!(span.to_string().parse(), Ok(span));
    }
}

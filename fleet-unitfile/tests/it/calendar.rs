//! Calendar events, compared with systemd.

use fleet_unitfile::Calendar;
use fleet_unitfile::calendar::is_calendar;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::durations::analyze;
use crate::report_skipped;

/// Returns the texts that systemd does not accept as calendar events. `None` if systemd is not
/// installed.
fn refused_by_systemd(texts: &[&str]) -> Option<Vec<String>> {
    let output = analyze(&["calendar", "--iterations=1"], texts)?;
    let report = String::from_utf8(output.stderr).unwrap();
    let refused = report.lines().filter_map(|line| {
        let text = line.strip_prefix("Failed to parse calendar specification '")?;
        Some(text.rsplit_once("': ")?.0.to_owned())
    });
    Some(refused.collect())
}

/// Picks one of several texts separated by bars, and sometimes an invalid one.
fn part(right: &'static str) -> impl Strategy<Value = &'static str> {
    let wrong = "|24|32|60|13|99|1..|..5|5..3|1/0|*/2|7*|-3|0x1|1,,2|+1|1/|3/40|01/1|2..4/9|\
                 0..2/1,5|1,*|1.5|1..3/100|2/9999999999|1..2/99999|3/200|10..4294967299";
    let one_of = |all: &'static str| prop::sample::select(all.split('|').collect::<Vec<_>>());
    prop_oneof![12 => one_of(right), 1 => one_of(wrong)]
}

/// Generates calendar events that are valid or nearly so.
pub(crate) fn calendar_event() -> impl Strategy<Value = String> {
    let days = part(
        "||||Mon |Mon..Fri |sat,Sunday |Tue,Thu..Sat |Fri-Sun |MON |Sun..Mon |Mon.. |\
         monday,,fri |Mon, |Mon,|Fo |Sun,Mon,Tue..Wed ",
    );
    let year = part(
        "||*-|2026-|70-|69-|2026..2030-|2020/4-|26,27-|99-|1970-|2199-|1969-|2200-|020-|\
         10000-|2026..2300-|2190/20-",
    );
    let month = part("*|1|01|12|2..4|1/3|2,11|9..12/2|6/7");
    let day = part("*|1|07|31|1..7|1/15|3,28|29..31/2|28|9,3|7/2,1");
    let mark = prop::sample::select(vec!["-", "-", "-", "-", "-", "-", "-", "~", "~", "/", "."]);
    let date = (year, month, mark, day);
    let date = date.prop_map(|(year, month, mark, day)| format!("{year}{month}{mark}{day} "));
    let date = prop_oneof![1 => Just(String::new()), 3 => date];
    let hour = part("*|0|07|23|9..17|0/6|8,20|20/4|9..17/4");
    let minute = part("*|0|00|59|0/15|10,40|30..45|50..59/20|58/1");
    let second = part(
        "*|0|59|0/20|0.5|59.999999|1.5/0.25|0..1.5|*.5|5.|60.1|0.1234567|59/0.5|59.5/1|\
         0/0.000001|1,2.5,3",
    );
    let time = (hour, minute, prop::option::of(second));
    let time = time.prop_map(|(hour, minute, second)| match second {
        Some(second) => format!("{hour}:{minute}:{second}"),
        None => format!("{hour}:{minute}"),
    });
    let time = prop_oneof![4 => time, 1 => Just(String::new())];
    let zone = prop::sample::select(vec!["", "", "", "", " UTC", " utc", " "]);
    let all = (days, date, time, zone);
    all.prop_map(|(days, date, time, zone)| format!("{days}{date}{time}{zone}"))
}

/// Calendar events on both sides of a rule, separated by bars.
const KNOWN: &str = concat!(
    "daily|Weekly|yearly|fortnightly||Mon|2026-11-21|12|20/3:00|20/4:00|20..22/5:00|",
    "*-*-31/5|*-*~28|*-*~29|*-*~1/30|*:50..59/20|*:0/59|*:0/60|*:*:59/0.5|*:*:59.5/1|",
    "*:*:59/1|2199/1-01-01|99/5-01-01|daily UTC|UTC|weekly Mon|@0|@1700000000 UTC|@|",
    "Mon UTC|12:00 12:00|2026-11-21T12:00:00|*-*-* *:*:*|1..2026-12-24|01/169-1-1|",
    "01/199-1-1|69..1970-1-1|70..69-1-1|2..4/999-*~1|*:*:0..5/70|*:*:0/70|*:*:0..61|",
    "*:*:0..0.5|*:*:0..0.5/0.1|*:*:1..2|*:*:5..5|*:5..5|07:00 |Mon  07:00| Mon|",
    "2026-1-1  07:00|07:00  UTC|Mon  UTC|Mon,  07:00|Mon, Tue 07:00|*-*~*|*-*~3,26|",
    "*-*~25,3|*-*~3/3|*-*~3/2,5|*-*~1,1..25|*:*:0.9999999|@08|@ 5|@+5|@7258118400|*-*-*|",
    "*:*|*",
);

#[test]
fn systemd_accepts_the_same_calendar_events() {
    let mut events: Vec<String> = KNOWN.split('|').map(str::to_owned).collect();
    let mut runner = TestRunner::deterministic();
    while events.len() < 2400 {
        events.push(calendar_event().new_tree(&mut runner).unwrap().current());
    }
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let ours: Vec<&str> = events.iter().copied().filter(|text| !is_calendar(text)).collect();
    assert!((400..2000).contains(&ours.len()), "{} are refused", ours.len());
    let mut theirs = Vec::new();
    for some in events.chunks(300) {
        let Some(refused) = refused_by_systemd(some) else {
            return report_skipped("systemd-analyze");
        };
        theirs.extend(refused);
    }
    let alone = |some: &[&str], others: &[&str]| {
        let alone = some.iter().filter(|text| !others.contains(text)).map(|it| (*it).to_owned());
        alone.collect::<Vec<String>>()
    };
    let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
    assert_eq!(alone(&ours, &theirs), [""; 0], "refused by us alone");
    assert_eq!(alone(&theirs, &ours), [""; 0], "refused by systemd alone");
}

/// Returns the normalized forms that systemd prints. `None` if it is not installed.
fn normalized_by_systemd(texts: &[&str]) -> Option<Vec<String>> {
    let output = analyze(&["calendar", "--iterations=1"], texts)?;
    let report = String::from_utf8(output.stdout).unwrap();
    // systemd omits the original form where it is the same.
    let lines =
        report.lines().filter_map(|line| line.trim_start().strip_prefix("Normalized form: "));
    Some(lines.map(str::to_owned).collect())
}

#[test]
fn normalized_form_is_that_of_systemd_and_parses_back() {
    let mut events: Vec<String> = KNOWN.split('|').map(str::to_owned).collect();
    let mut runner = TestRunner::deterministic();
    while events.len() < 2400 {
        events.push(calendar_event().new_tree(&mut runner).unwrap().current());
    }
    events.retain(|text| is_calendar(text));
    assert!(events.len() > 400, "{}", events.len());
    for some in events.chunks(300) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        let ours: Vec<String> =
            some.iter().map(|text| text.parse::<Calendar>().unwrap().to_string()).collect();
        for text in &ours {
            assert_eq!(text.parse::<Calendar>().unwrap().to_string(), *text);
        }
        let Some(theirs) = normalized_by_systemd(&some) else {
            return report_skipped("systemd-analyze");
        };
        assert_eq!(theirs.len(), ours.len());
        for ((text, ours), theirs) in some.iter().zip(ours).zip(theirs) {
            assert_eq!(ours, theirs, "{text:?}");
        }
    }
}

#[test]
fn normalized_form_is_complete() {
    for (text, normalized) in [
        ("daily", "*-*-* 00:00:00"),
        ("Mon..Fri 9:00", "Mon..Fri *-*-* 09:00:00"),
        ("Sat,Mon,sunday,Tue 07:00", "Mon,Tue,Sat,Sun *-*-* 07:00:00"),
        ("*:5,0/15:2.5", "*-*-* *:00/15,05:02.500000"),
        ("*:*:*", "*-*-* *:*:*"),
        ("99-2~3 utc", "1999-02~03 00:00:00 UTC"),
        ("weekly Europe/Berlin", "Mon *-*-* 00:00:00 Europe/Berlin"),
        ("@1395716396", "2014-03-25 02:59:56 UTC"),
    ] {
        assert_eq!(text.parse::<Calendar>().unwrap().to_string(), normalized, "{text}");
    }
}

//! Next elapses of calendar events: known cases, a naive search, and systemd's results.

use std::time::Duration;

use fleet_unitfile::Calendar;
use fleet_unitfile::calendar::{OffsetPeriod, Utc, Zone};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::calendar::calendar_event;
use crate::properties::config;
use crate::report_skipped;

/// A time zone: the time of each clock change, and the UTC offset from then on, both in seconds.
#[derive(Debug, Clone)]
struct ClockChanges(Vec<(i64, i32)>);

impl Zone for ClockChanges {
    fn offset_period(&self, at: i64) -> OffsetPeriod {
        let next = self.0.partition_point(|&(since, _)| since <= at);
        let offset = |number: usize| self.0[number].1;
        OffsetPeriod {
            offset: offset(next - 1),
            since: (next > 1).then(|| (self.0[next - 1].0, offset(next - 2))),
            until: self.0.get(next).map(|&(since, _)| since),
        }
    }
}

/// Returns the time zone of Berlin from the end of 2025 to the autumn of 2027.
fn berlin() -> ClockChanges {
    const CHANGES: [i64; 4] = [1_774_746_000, 1_792_890_000, 1_806_195_600, 1_824_944_400];
    let changes = CHANGES.into_iter().zip([7200, 3600, 7200, 3600]);
    ClockChanges([(i64::MIN, 3600)].into_iter().chain(changes).collect())
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1]
}

/// Parses a UTC time such as `2026-01-31 12:00:00` to seconds since 1970. Other words may precede
/// and follow the time.
pub(crate) fn seconds(text: &str) -> u64 {
    let part = |mark: char| text.split(' ').find(|word| word.contains(mark));
    let numbers = |word: &str, mark| word.split(mark).map(|it| it.parse().unwrap()).collect();
    let date: Vec<u64> = numbers(part('-').unwrap(), '-');
    let time: Vec<u64> = numbers(part(':').unwrap(), ':');
    let years = (1970..date[0]).map(|year| 365 + u64::from(is_leap(year)));
    let months = (1..date[1]).map(|month| days_in(date[0], month));
    let days = years.chain(months).sum::<u64>() + date[2] - 1;
    days * 86_400 + time[0] * 3600 + time[1] * 60 + time[2]
}

fn next(text: &str, after: Duration, zone: &impl Zone) -> Option<Duration> {
    text.parse::<Calendar>().unwrap().next_after(after, zone)
}

#[test]
fn next_elapse_of_each_kind_of_event() {
    for (text, after, expected) in [
        ("daily", "2026-11-22 19:00:00", "2026-11-23 00:00:00"),
        ("minutely", "2026-11-22 19:00:00", "2026-11-22 19:01:00"),
        ("hourly", "2026-12-31 23:30:00", "2027-01-01 00:00:00"),
        ("weekly", "2026-11-22 19:00:00", "2026-11-23 00:00:00"),
        ("monthly", "2026-11-22 19:00:00", "2026-12-01 00:00:00"),
        ("quarterly", "2026-11-22 19:00:00", "2027-01-01 00:00:00"),
        ("semi-annually", "2026-01-01 00:00:00", "2026-07-01 00:00:00"),
        ("anually", "2026-11-22 19:00:00", "2027-01-01 00:00:00"),
        ("Mon..Fri 06:30", "2026-11-20 06:30:00", "2026-11-23 06:30:00"),
        ("Sat,Mon", "2026-11-22 19:00:00", "2026-11-23 00:00:00"),
        ("*:00/15", "2026-11-22 19:01:00", "2026-11-22 19:15:00"),
        ("*:*:0/7", "2026-11-22 19:00:56", "2026-11-22 19:01:00"),
        ("*-*~1", "2026-01-31 00:00:00", "2026-02-28 00:00:00"),
        ("*-02~1", "2026-11-22 19:00:00", "2027-02-28 00:00:00"),
        ("Mon *-*~7/1", "2026-11-22 19:00:00", "2026-11-30 00:00:00"),
        ("*-*~1..3", "2026-11-28 00:00:00", "2026-11-29 00:00:00"),
        ("*-02-29", "2097-01-01 00:00:00", "2104-02-29 00:00:00"),
        ("Mon *-02-29", "2026-11-22 19:00:00", "2044-02-29 00:00:00"),
        ("2020/4-1-1", "2026-11-22 19:00:00", "2028-01-01 00:00:00"),
        ("9..17/4:30", "2026-11-22 09:30:00", "2026-11-22 13:30:00"),
        ("@1800000000", "2026-11-22 19:00:00", "2027-01-15 08:00:00"),
    ] {
        let after = Duration::from_secs(seconds(after));
        let expected = Some(Duration::from_secs(seconds(expected)));
        assert_eq!(next(text, after, &Utc), expected, "{text}");
    }
}

#[test]
fn events_without_a_next_elapse() {
    for text in ["2020-1-1", "*-02-30", "2199-12-31 23:59", "@1700000000", "Tue 2030-1-2"] {
        let last = Duration::from_secs(seconds("2199-12-31 23:59:00"));
        assert_eq!(next(text, last, &Utc), None, "{text}");
    }
    assert_eq!(next("minutely", Duration::MAX, &Utc), None);
}

#[test]
fn seconds_may_have_fractions() {
    let at = Duration::from_millis;
    assert_eq!(next("*:*:0/0.25", at(1_500), &Utc), Some(at(1_750)));
    assert_eq!(next("*:*:0.5", at(500), &Utc), Some(at(60_500)));
    assert_eq!(next("*:*:*", at(500), &Utc), Some(at(1000)));
    assert_eq!(next("*:*:0/0.000001", at(7), &Utc), Some(Duration::from_micros(7_001)));
}

#[test]
fn clock_changes_skip_or_repeat_local_times() {
    for (text, after, expected) in [
        // In spring the clock skips from two to three; in autumn it goes back from three to two.
        ("02:30", "2026-03-28 12:00:00", "2026-03-30 00:30:00"),
        ("hourly", "2026-03-29 00:30:00", "2026-03-29 01:00:00"),
        ("02:30", "2026-10-24 12:00:00", "2026-10-25 00:30:00"),
        ("02:30", "2026-10-25 00:30:00", "2026-10-26 01:30:00"),
        ("02:30", "2026-10-25 01:10:00", "2026-10-26 01:30:00"),
        ("*:0/15", "2026-10-25 00:45:00", "2026-10-25 02:00:00"),
        ("daily", "2026-10-25 12:00:00", "2026-10-25 23:00:00"),
    ] {
        let after = Duration::from_secs(seconds(after));
        let expected = Some(Duration::from_secs(seconds(expected)));
        assert_eq!(next(text, after, &berlin()), expected, "{text}");
    }
}

/// A calendar event given by all matching numbers of each field.
#[derive(Debug, Clone)]
struct Numbers {
    weekdays: Vec<u64>,
    months: Vec<u64>,
    days: Vec<u64>,
    from_end: bool,
    hours: Vec<u64>,
    minutes: Vec<u64>,
    seconds: Vec<u64>,
}

impl Numbers {
    fn text(&self) -> String {
        let list = |numbers: &[u64]| match numbers {
            [] => "*".to_owned(),
            numbers => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
        };
        let names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
        let week: Vec<&str> = self.weekdays.iter().map(|&day| names[day as usize]).collect();
        let blank = if week.is_empty() { "" } else { " " };
        let mark = if self.from_end { '~' } else { '-' };
        let (week, days) = (week.join(","), list(&self.days));
        let date = format!("{week}{blank}{}{mark}{days}", list(&self.months));
        let (hours, minutes) = (list(&self.hours), list(&self.minutes));
        format!("{date} {hours}:{minutes}:{}", list(&self.seconds))
    }

    /// Whether a local time, in seconds since 1970, matches the event.
    fn holds(&self, shown: u64) -> bool {
        let has = |numbers: &[u64], number: u64| numbers.is_empty() || numbers.contains(&number);
        let (mut day, mut year, mut month) = (shown / 86_400, 1970, 1);
        let weekday = (day + 3) % 7;
        while day >= days_in(year, month) {
            day -= days_in(year, month);
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        let day = if self.from_end { days_in(year, month) - day } else { day + 1 };
        has(&self.weekdays, weekday)
            && has(&self.months, month)
            && has(&self.days, day)
            && has(&self.hours, shown / 3600 % 24)
            && has(&self.minutes, shown / 60 % 60)
            && has(&self.seconds, shown % 60)
    }
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let some = |least: u64, most: u64, count| {
        let list = prop::collection::btree_set(least..=most, 0..=count);
        list.prop_map(|set| set.into_iter().collect::<Vec<_>>())
    };
    let date = (some(0, 6, 3), some(1, 3, 1), some(1, 22, 3), any::<bool>());
    let time = (some(0, 23, 4), some(0, 59, 3), some(0, 59, 3));
    (date, time).prop_map(|((weekdays, months, days, from_end), (hours, minutes, seconds))| {
        // systemd counts fewer of the last days the more ranges there are.
        let days = if from_end { days.into_iter().take(1).collect() } else { days };
        Numbers { weekdays, months, days, from_end, hours, minutes, seconds }
    })
}

/// Generates a time zone with occasional clock changes by multiples of a quarter hour.
fn zone() -> impl Strategy<Value = ClockChanges> {
    let step = (86_400..200_000_i64, -8..=8_i32);
    (-40..40_i32, prop::collection::vec(step, 0..4)).prop_map(|(offset, steps)| {
        let mut all = vec![(i64::MIN, offset * 900)];
        let (mut at, mut ahead) = (0, offset);
        for (pause, by) in steps {
            (at, ahead) = (at + pause, ahead + by);
            all.push((at, ahead * 900));
        }
        ClockChanges(all)
    })
}

/// Finds the first match after a time by testing every second up to `most`. If a local time occurs
/// twice, only its first occurrence can match.
fn walk(numbers: &Numbers, after: i64, most: i64, zone: &ClockChanges) -> Option<i64> {
    let shown = |at: i64| at + i64::from(zone.offset_period(at).offset);
    let mut latest = (after - 10_000..=after).map(shown).max().unwrap();
    (after + 1..=most).find(|&at| {
        let is_new = shown(at) > latest;
        latest = latest.max(shown(at));
        is_new && u64::try_from(shown(at)).is_ok_and(|shown| numbers.holds(shown))
    })
}

proptest! {
    // An exhaustive search is slow.
    #![proptest_config(ProptestConfig { cases: 100, ..config() })]

    #[test]
    fn next_elapse_equals_that_of_an_exhaustive_search(
        numbers in numbers(),
        zone in zone(),
        after in 50_000..600_000_i64,
    ) {
        let most = after + 90_000;
        let from = Duration::from_secs(after as u64);
        let found = next(&numbers.text(), from, &zone).filter(|at| at.as_secs() <= most as u64);
        let walked = walk(&numbers, after, most, &zone);
        let walked = walked.map(|at| Duration::from_secs(at as u64));
        prop_assert_eq!(found, walked, "{}", numbers.text());
    }

    #[test]
    fn next_elapse_is_monotonic(
        numbers in numbers(),
        zone in zone(),
        micros in 0..u32::MAX,
    ) {
        let calendar: Calendar = numbers.text().parse().unwrap();
        let after = Duration::from_micros(micros.into());
        let Some(first) = calendar.next_after(after, &zone) else { return Ok(()) };
        prop_assert!(first > after);
        let before = first - Duration::from_micros(1);
        prop_assert_eq!(calendar.next_after(before, &zone), Some(first));
        prop_assert!(calendar.next_after(first, &zone).is_none_or(|second| second > first));
    }
}

/// Returns the next elapses that systemd computes for each text, in whole seconds. `None` if
/// systemd is not installed.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
pub(crate) fn systemd_finds(texts: &[&str], after: &str, count: usize) -> Option<Vec<Vec<u64>>> {
    let mut command = std::process::Command::new("systemd-analyze");
    command.arg("calendar").arg(format!("--iterations={count}"));
    command.arg(format!("--base-time={after} UTC")).arg("--").args(texts).env("TZ", "UTC");
    let output = String::from_utf8(command.output().ok()?.stdout).unwrap();
    let mut all: Vec<Vec<u64>> = Vec::new();
    for line in output.lines() {
        let (word, rest) = line.split_once(": ").unwrap_or_default();
        match word.trim_start() {
            "Normalized form" => all.push(Vec::new()),
            "Next elapse" if rest == "never" => {}
            word if word == "Next elapse" || word.starts_with("Iter.") => {
                all.last_mut().unwrap().push(seconds(rest));
            }
            _ => {}
        }
    }
    Some(all)
}

/// Returns the next elapses from this crate.
fn we_find(text: &str, after: &str, count: usize) -> Vec<u64> {
    let calendar: Calendar = text.parse().unwrap();
    let follow = |at: &Duration| match calendar.zone() {
        Some("Europe/Berlin") => calendar.next_after(*at, &berlin()),
        _ => calendar.next_after(*at, &Utc),
    };
    let first = follow(&Duration::from_secs(seconds(after)));
    std::iter::successors(first, follow).take(count).map(|at| at.as_secs()).collect()
}

#[test]
fn systemd_computes_the_same_elapses() {
    const KNOWN: &str = "daily|weekly|*-*~1|*-02~1|Mon *-*~7/1|*-*~1..7/2|*-*~3,4,22|*:0/7:0/13|\
                         *-*-* 02:30 Europe/Berlin|hourly Europe/Berlin|*:0/25 Europe/Berlin|\
                         Sun 03:00 Europe/Berlin|*:*:59.5|2/3:1/7|*-*-29..31/2|*-02-29|\
                         Mon *-02-29|20..40/7-*-1|@1800000000|2020-01-01|*-*-1/9";
    let mut events: Vec<String> = KNOWN.split('|').map(str::to_owned).collect();
    let mut runner = TestRunner::deterministic();
    while events.len() < 1000 {
        let text = calendar_event().new_tree(&mut runner).unwrap().current();
        events.extend(Some(text).filter(|text| text.parse::<Calendar>().is_ok()));
    }
    let mut elapses = 0;
    // On 29 March, Berlin switches to summer time.
    let days = ["2026-03-28 12:34:56", "2027-12-31 23:59:59", "2024-02-29 00:00:00"];
    for (number, some) in events.chunks(100).enumerate() {
        let after = days[number % days.len()];
        let texts: Vec<&str> = some.iter().map(String::as_str).collect();
        let Some(theirs) = systemd_finds(&texts, after, 6) else {
            return report_skipped("systemd-analyze");
        };
        assert_eq!(theirs.len(), texts.len());
        for (text, theirs) in texts.into_iter().zip(theirs) {
            elapses += theirs.len();
            assert_eq!(we_find(text, after, 6), theirs, "{text} after {after}");
        }
    }
    assert!(elapses > 2000, "only {elapses} times were compared");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn normalized_form_elapses_at_the_same_times(
        text in calendar_event(),
        after in 0..4_000_000_000_u64,
    ) {
        if let Ok(calendar) = text.parse::<Calendar>() {
            let again: Calendar = calendar.to_string().parse().unwrap();
            let after = Duration::from_secs(after);
            prop_assert_eq!(again.next_after(after, &Utc), calendar.next_after(after, &Utc));
        }
    }
}

//! Values: specifiers, words and time spans.

use std::time::Duration;

use fleet_unitfile::UnitName;
use fleet_unitfile::specifier::{SpecifierError, expand_fleet_specifiers};
use fleet_unitfile::values::{
    Timespan, TimespanError, WordError, parse_timespan, split_words, split_words_relaxed,
};

#[test]
fn specifiers_expand_to_parts_of_the_name() {
    for (name, text, expanded) in [
        ("web@3.service", "", ""),
        ("web@3.service", "plain", "plain"),
        ("web@3.service", "%n|%N|%p|%i|%%", "web@3.service|web@3|web|3|%"),
        ("web.service", "%n|%N|%p|%i", "web.service|web|web|"),
        ("web@.service", "%N|%p|%i", "web@|web|"),
        (r"a-b\x20c@d-e\x20f.service", "%p|%i|%N", r"a/b c|d-e\x20f|a/b c@d/e f"),
        ("web@3.service", "%%i%%%i%", "refused"),
        ("web@3.service", "ä%iö%%", "ä3ö%"),
    ] {
        let name = UnitName::parse(name).unwrap();
        let result = expand_fleet_specifiers(text, &name);
        assert_eq!(result.as_deref().unwrap_or("refused"), expanded, "{text:?}");
    }
}

#[test]
fn invalid_specifiers_are_refused_with_their_offset() {
    let name = UnitName::parse(r"a\b.service").unwrap();
    for (text, error) in [
        ("ä%H", SpecifierError::Unknown { at: 2, letter: 'H' }),
        ("%%%ä", SpecifierError::Unknown { at: 2, letter: 'ä' }),
        ("%P", SpecifierError::Unknown { at: 0, letter: 'P' }),
        ("50%", SpecifierError::Unfinished { at: 2 }),
        ("% ", SpecifierError::Unknown { at: 0, letter: ' ' }),
    ] {
        assert_eq!(expand_fleet_specifiers(text, &name), Err(error), "{text:?}");
    }
    let error = expand_fleet_specifiers("-%p", &name).unwrap_err();
    assert!(matches!(error, SpecifierError::Unescape { at: 1, letter: 'p', .. }));
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(expand_fleet_specifiers("%n", &name).as_deref(), Ok(r"a\b.service"));
}

#[test]
fn words_are_split_at_blanks_outside_quotes() {
    for (text, words) in [
        ("", &[][..]),
        (" \t\n", &[]),
        ("a", &["a"]),
        ("  a \t b\n\rc ", &["a", "b", "c"]),
        (r#""a b" 'c d'"#, &["a b", "c d"]),
        (r#"a"b c"'d e'f g"#, &["ab cd ef", "g"]),
        (r#""" ''"#, &["", ""]),
        (r#""it's" 'say "x"'"#, &["it's", r#"say "x""#]),
        (r"a\sb a\x20b \101\x62 \u00e4\U0001F600", &["a b", "a b", "Ab", "ä😀"]),
        (r#"'\'' "\"" \\ '\\'"#, &["'", "\"", "\\", "\\"]),
        (r"\a\b\f\n\r\t\v", &["\x07\x08\x0c\n\r\t\x0b"]),
        (r"\xc3\xa4", &["ä"]),
        ("ä\u{a0}ö", &["ä\u{a0}ö"]),
        ("a ; b # c", &["a", ";", "b", "#", "c"]),
    ] {
        assert_eq!(split_words(text).unwrap(), words, "{text:?}");
        assert_eq!(split_words_relaxed(text).unwrap(), words, "{text:?}");
    }
}

#[test]
fn unknown_escapes_are_refused_or_kept() {
    for (text, at, kept) in [
        (r"a \.b", 2, &["a", r"\.b"][..]),
        (r"\", 0, &[r"\"]),
        (r"ä\", 2, &[r"ä\"]),
        (r"a\ b", 1, &[r"a\ b"]),
        (r"\;", 0, &[r"\;"]),
        (r"'\d+'", 1, &[r"\d+"]),
        (r"\x2", 0, &[r"\x2"]),
        (r"\x+1", 0, &[r"\x+1"]),
        (r"\x00", 0, &[r"\x00"]),
        (r"\000 \400", 0, &[r"\000", r"\400"]),
        (r"\u12", 0, &[r"\u12"]),
        (r"\äx", 0, &[r"\äx"]),
    ] {
        assert_eq!(split_words(text), Err(WordError::Escape { at }), "{text:?}");
        assert_eq!(split_words_relaxed(text).unwrap(), kept, "{text:?}");
    }
}

#[test]
fn invalid_words_are_refused_in_relaxed_mode_too() {
    for (text, error) in [
        ("a 'b", WordError::OpenQuote { at: 2 }),
        ("a\"", WordError::OpenQuote { at: 1 }),
        (r#""a\""#, WordError::OpenQuote { at: 0 }),
        (r"ok \xff", WordError::NotUtf8 { at: 3 }),
        (r"ok \ud800", WordError::NotUtf8 { at: 3 }),
    ] {
        assert_eq!(split_words(text), Err(error), "{text:?}");
        assert_eq!(split_words_relaxed(text), Err(error), "{text:?}");
    }
}

#[test]
fn time_spans_add_up() {
    const HOUR: u64 = 3_600_000_000;
    for (text, micros) in [
        ("0", 0),
        ("5", 5_000_000),
        ("5s", 5_000_000),
        (" 5 s ", 5_000_000),
        ("+5", 5_000_000),
        ("100ms", 100_000),
        ("100msec 5us 5usec 1µs", 100_011),
        // The micro sign above, and here the Greek letter that looks the same.
        ("1\u{3bc}s", 1),
        ("1min 30s", 90_000_000),
        ("1min30", 90_000_000),
        ("1m 1M", 60_000_000 + 730 * HOUR + HOUR / 2),
        ("2h", 2 * HOUR),
        ("1hr 1hour 2hours", 4 * HOUR),
        ("1d 1day 1days", 72 * HOUR),
        ("1w 1week 2weeks", 28 * 24 * HOUR),
        ("1y", 8766 * HOUR),
        ("12months", 8766 * HOUR),
        ("1.5", 1_500_000),
        ("1.5 h", HOUR + HOUR / 2),
        (".5s", 500_000),
        ("0.0000019", 1),
        ("1.5us", 1),
        ("5 5", 10_000_000),
        ("12.34 .56", 12_900_000),
        ("12.34s.56", 12_900_000),
        ("1seconds 1second 1sec 1minutes 1minute", 123_000_000),
        ("9223372036854775807us 9223372036854775807us", u64::MAX - 1),
    ] {
        let expected = Timespan::Finite(Duration::from_micros(micros));
        assert_eq!(parse_timespan(text), Ok(expected), "{text:?}");
    }
    assert_eq!(parse_timespan(" infinity "), Ok(Timespan::Infinity));
    assert!(Timespan::Infinity > Timespan::Finite(Duration::MAX));
    assert_eq!(Timespan::Infinity.as_duration(), None);
}

#[test]
fn invalid_time_spans_are_refused() {
    use TimespanError::{Empty, Syntax, TooLong};
    for (text, error) in [
        ("", Empty),
        ("  ", Empty),
        ("s", Syntax { at: 0 }),
        ("-5", Syntax { at: 0 }),
        ("5 -5", Syntax { at: 2 }),
        ("5x", Syntax { at: 1 }),
        ("5sx", Syntax { at: 2 }),
        ("5.s", Syntax { at: 0 }),
        ("5. 1", Syntax { at: 0 }),
        (".", Syntax { at: 0 }),
        ("12.34.56", Syntax { at: 5 }),
        ("infinityx", Syntax { at: 8 }),
        ("5s infinity", Syntax { at: 3 }),
        ("Infinity", Syntax { at: 0 }),
        ("5S", Syntax { at: 1 }),
        ("9223372036854775808us", TooLong),
        ("9223372036854775807us 9223372036854775807us 1us", TooLong),
        ("99999999999999999999999", TooLong),
        ("600000y", TooLong),
        ("500000y 500000y", TooLong),
    ] {
        assert_eq!(parse_timespan(text), Err(error), "{text:?}");
    }
}

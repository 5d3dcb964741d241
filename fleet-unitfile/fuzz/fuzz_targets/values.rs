//! Any text as a value: an accepted value can be written and reads back.
#![no_main]

use fleet_unitfile::specifier::expand_fleet_specifiers;
use fleet_unitfile::values::{
    cescape, cunescape, parse_size, parse_timespan, quote_word, split_words, split_words_relaxed,
};
use fleet_unitfile::{CommandLine, SpecifierContext, UnitName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert_eq!(cunescape(&cescape(text)).as_deref(), Ok(text));
    assert_eq!(split_words(&quote_word(text)), Ok(vec![text.to_owned()]));
    if let Ok(words) = split_words(text) {
        assert_eq!(split_words_relaxed(text), Ok(words));
    }
    if let Ok(commands) = CommandLine::parse(text) {
        let written: Vec<_> = commands.iter().map(ToString::to_string).collect();
        assert_eq!(CommandLine::parse(&written.join(" ; ")), Ok(commands));
    }
    let name = UnitName::parse(r"a-b@c\x20d.service").expect("a name");
    drop(SpecifierContext::system_manager().expand(text, &name));
    drop(expand_fleet_specifiers(text, &name));
    if let Ok(span) = parse_timespan(text) {
        assert_eq!(parse_timespan(&span.to_string()), Ok(span));
    }
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
});

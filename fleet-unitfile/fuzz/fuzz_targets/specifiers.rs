//! Any text with specifiers, for any name: both expansions agree, or refuse it with a position.
#![no_main]

use fleet_unitfile::specifier::expand_fleet_specifiers;
use fleet_unitfile::{SpecifierContext, UnitName};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 5] =
    ["a.service", "a@.service", r"a-b@c\x20d.service", "a@b@c.socket", r"-\x2d-@-.timer"];

fuzz_target!(|input: (u8, &str)| {
    let (which, text) = input;
    let name: UnitName = NAMES[usize::from(which) % NAMES.len()].parse().expect("a name");
    let context = SpecifierContext::system_manager();
    match context.expand(text, &name) {
        Ok(expanded) if !text.contains('%') => assert_eq!(expanded, text),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    // A doubled percent sign stands for itself in any context.
    let literal = text.replace('%', "%%");
    assert_eq!(context.expand(&literal, &name).as_deref(), Ok(text));
    assert_eq!(expand_fleet_specifiers(&literal, &name).as_deref(), Ok(text));
});

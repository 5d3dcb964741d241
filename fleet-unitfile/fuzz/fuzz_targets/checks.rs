//! Any unit with any drop-in: checking ends, and every finding has a location and can be rendered.
#![no_main]

use fleet_unitfile::{UnitFile, UnitName};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 6] =
    ["a.service", "a@.service", "a@b.timer", "a.socket", "tmp.mount", "a.slice"];

fuzz_target!(|input: (u8, &[u8])| {
    let (which, source) = input;
    let name: UnitName = NAMES[usize::from(which) % NAMES.len()].parse().expect("a name");
    let (unit, _) = UnitFile::parse_collecting(source);
    for finding in unit.check(&name) {
        assert!(finding.span().end <= source.len());
        assert!(!finding.render().to_string().is_empty());
    }
});

//! Any text as a name, an escaped part of one, or a path: an accepted text round-trips.
#![no_main]

use fleet_unitfile::escape::{escape, escape_path, unescape, unescape_path};
use fleet_unitfile::tree::drop_in_directories;
use fleet_unitfile::{SpecifierContext, UnitName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert_eq!(unescape(&escape(text)).as_deref(), Ok(text));
    if let Ok(escaped) = escape_path(text) {
        let path = unescape_path(&escaped).expect("what was escaped reads back");
        assert_eq!(escape_path(&path), Ok(escaped));
    }
    if let Ok(path) = unescape_path(text) {
        assert_eq!(unescape_path(&escape_path(&path).expect("a plain path")), Ok(path));
    }
    if let Ok(name) = UnitName::parse(text) {
        assert_eq!(name.as_str(), text);
        assert!(!drop_in_directories(&name).is_empty());
        let context = SpecifierContext::system_manager();
        assert!(context.expand("%n%i%p%j%N%%", &name).is_ok());
        drop(context.expand("%f%I%P%J", &name));
    }
});

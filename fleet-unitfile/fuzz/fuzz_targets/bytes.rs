//! Any bytes: both readers agree, spans stay in the source, and parsed options can be written.
#![no_main]

use fleet_unitfile::{Reader, UnitFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &[u8]| {
    let (unit, diagnostics) = UnitFile::parse_collecting(source);
    assert_eq!(unit.source(), source);
    for diagnostic in diagnostics {
        assert!(diagnostic.span().end <= source.len());
        assert_eq!(unit.location(diagnostic.span().start), diagnostic.location());
    }
    let mut options = unit.options();
    for read in Reader::new(source).options() {
        let option = options.next().expect("both read as many options");
        assert_eq!(read.section(), option.section());
        assert_eq!(read.value(), option.value());
        assert_eq!(read.verbatim(), option.verbatim());
        assert_eq!(read.span(), option.span());
        assert!(option.span().end <= source.len());
    }
    assert!(options.next().is_none());
    let canonical = UnitFile::parse(unit.canonical()).expect("canonical text is valid");
    assert_eq!(canonical.hash(), unit.hash());
    let formatted = unit.formatted();
    assert_eq!(formatted.hash(), unit.hash());
    assert_eq!(formatted.formatted(), formatted);
});

//! The borrowing reader: its events, and its agreement with the unit file.

use std::borrow::Cow;
use std::fmt::Write as _;

use fleet_unitfile::syntax::Event;
use fleet_unitfile::{Reader, UnitFile, UnitOption};
use proptest::prelude::*;

use crate::properties::{config, source};

/// Describes each event on a line, with its part of the source.
fn describe(source: &str) -> String {
    let mut reported = String::new();
    for event in Reader::new(source) {
        match event {
            Event::Comment { text, span } => {
                assert_eq!(text, &source.as_bytes()[span.start..span.end]);
                writeln!(reported, "comment {:?}", &source[span.start..span.end])
            }
            Event::Section { name, span } => {
                writeln!(reported, "section {name} {:?}", &source[span.start..span.end])
            }
            Event::Option(it) => {
                let written = &source[it.value_span().start..it.value_span().end];
                writeln!(reported, "option {it:?} reads {:?} of {written:?}", it.value())
            }
            Event::Diagnostic(it) => writeln!(reported, "{} {}", it.severity(), it.message()),
            _ => unreachable!("there are four kinds of event"),
        }
        .unwrap();
    }
    reported
}

#[test]
fn events_are_in_source_order() {
    let source = "# top\nEarly=1\n[A]\nK = v \nL=a \\\n; inside\n b\n[B\\\nC]\n\nK=\nno\n[D]\nE=\\";
    insta::assert_snapshot!(describe(source), @r##"
    comment "# top"
    error option before the first section in "Early=1"
    section A "[A]"
    option [A] K="v" reads "v" of "v"
    option [A] L="a \\\n b" reads "a   b" of "a \\\n; inside\n b"
    section B C "[B\\\nC]"
    option [B C] K="" reads "" of ""
    error missing "=" in "no"
    section D "[D]"
    warning backslash at the end of the file in "E=\"
    option [D] E="\\\n" reads "" of ""
    "##);
}

#[test]
fn literal_values_are_borrowed_from_the_source() {
    let source = "[A]\nK = v\nL=a\\\nb\n";
    let options: Vec<_> = Reader::new(source).options().collect();
    assert!(matches!(options[0].name(), Cow::Borrowed("K")));
    assert!(matches!(options[0].value(), Cow::Borrowed("v")));
    assert!(matches!(options[1].value(), Cow::Owned(value) if value == "a b"));
}

#[test]
fn overlong_line_is_refused_once_and_reading_continues() {
    let source = "[A]\nK=".to_owned() + &"\\\n[x]".repeat(2_000_000) + "\nL=w\n";
    let events: Vec<_> = Reader::new(&source).collect();
    assert_eq!(events.len(), 3);
    let Event::Diagnostic(diagnostic) = &events[1] else { panic!("a line of 8 MB is refused") };
    assert_eq!(diagnostic.span().end, source.len() - "\nL=w\n".len());
    assert_eq!(diagnostic.location().line, 2);
    let Event::Option(option) = &events[2] else { panic!("what follows is read") };
    assert_eq!(option.value(), "w");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reader_and_unit_file_agree(source in source()) {
        let (unit, diagnostics) = UnitFile::parse_collecting(&source);
        let (mut options, mut reported) = (unit.options(), diagnostics.iter());
        let mut sections: Vec<String> = Vec::new();
        for event in Reader::new(&source) {
            match event {
                Event::Option(it) => {
                    let option = options.next().expect("as many options");
                    prop_assert_eq!(it.section(), option.section());
                    prop_assert_eq!(it.name(), option.name());
                    prop_assert_eq!(it.value(), option.value());
                    prop_assert_eq!(it.verbatim(), option.verbatim());
                    prop_assert_eq!(option, UnitOption::from(it.clone()));
                    prop_assert_eq!(it.span(), option.span());
                    prop_assert_eq!(it.value_span(), option.value_span());
                }
                Event::Diagnostic(it) => prop_assert_eq!(Some(&it), reported.next()),
                Event::Section { name, .. } if !sections.iter().any(|it| *it == name) => {
                    sections.push(name.into_owned());
                }
                _ => {}
            }
        }
        prop_assert!(options.next().is_none() && reported.next().is_none());
        prop_assert!(unit.sections().eq(sections.iter().map(String::as_str)));
    }
}

//! Properties of arbitrary texts, half of them made of significant bytes.

use fleet_unitfile::escape::{escape, unescape};
use fleet_unitfile::specifier::expand_fleet_specifiers;
use fleet_unitfile::syntax::Event;
use fleet_unitfile::values::{parse_timespan, split_words, split_words_relaxed};
use fleet_unitfile::{
    OptionErrorKind, OptionView, Reader, Severity, UnitFile, UnitName, UnitOption,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::edit::edited;

/// Generates sources that are mostly nearly valid, from pieces with syntactic meaning.
pub(crate) fn source() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "[A]", "[B]", "[", "]", "K=v", "L=", "=", "\\", "\\\\", "#", ";", " ", "\t", "\n",
            "\n", "\n", "\r\n", "\r", "\0", "\\\n", "\\\n#c\n", "\\ \n", "\u{feff}", "ä",
            "\n\u{feff}", "\u{a0}", "\u{fffe}", "'", "\"", "%",
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    let start = prop::sample::select(vec!["", "[A]\n", "\u{feff}[A]\n"]);
    (start, vec(piece, 0..24)).prop_map(|(start, pieces)| [start.into(), pieces.concat()].concat())
}

/// Generates a text of characters that are significant in some grammar of this crate.
fn text() -> impl Strategy<Value = String> {
    "[ \\\\\"'%xnNpiuU0-9a-fsm.@:;\\-/\t\r\nä\u{0}]{0,16}"
}

/// Joins the lines of a source with a naive implementation of the rule.
fn naively_joined(source: &[u8]) -> Vec<Vec<u8>> {
    let (mut logical, mut open) = (Vec::new(), None::<Vec<u8>>);
    let mut mark_seen = false;
    for mut line in naive_lines(source) {
        let text = line.iter().position(|&byte| byte != b' ' && byte != b'\t');
        if text.is_some_and(|at| line[at] == b'#' || line[at] == b';') {
            continue;
        }
        if !mark_seen && line.starts_with(b"\xef\xbb\xbf") {
            mark_seen = true;
            line.drain(..3);
        }
        let mut joined = open.take().unwrap_or_default();
        joined.extend(line);
        let mut escaped = false;
        for &byte in &joined {
            escaped = !escaped && byte == b'\\';
        }
        if escaped {
            *joined.last_mut().unwrap() = b' ';
            open = Some(joined);
        } else {
            logical.push(joined);
        }
    }
    logical.extend(open);
    logical
}

fn naive_lines(source: &[u8]) -> Vec<Vec<u8>> {
    let (mut lines, mut line, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for &byte in source {
        let is_end = b"\n\r\0".contains(&byte);
        if !ends.is_empty() && (!is_end || ends.contains(&byte) || ends.contains(&0)) {
            lines.push(std::mem::take(&mut line));
            ends.clear();
        }
        if is_end {
            ends.push(byte);
        } else {
            line.push(byte);
        }
    }
    lines.push(line);
    lines
}

/// Parses the options of a source with a naive parser. Returns `None` if the source is invalid.
fn naively_read(source: &[u8]) -> Option<Vec<(String, String, String)>> {
    let (mut options, mut section) = (Vec::new(), None::<String>);
    for line in naively_joined(source) {
        let line = String::from_utf8(line).ok()?;
        let line = line.trim_matches([' ', '\t']);
        if line.contains('\u{fffe}') {
            return None;
        }
        if let Some(header) = line.strip_prefix('[') {
            let name = header.strip_suffix(']')?;
            let wrong = |c: char| c < ' ' || "]\"'\\\u{7f}".contains(c);
            if name.is_empty() || name.contains(wrong) {
                return None;
            }
            section = Some(name.to_owned());
        } else if line.starts_with(['#', ';']) {
            return None;
        } else if !line.is_empty() {
            let (name, value) = line.split_once('=')?;
            let (name, value) = (name.trim_matches([' ', '\t']), value.trim_matches([' ', '\t']));
            if name.is_empty() {
                return None;
            }
            options.push((section.clone()?, name.to_owned(), value.to_owned()));
        }
    }
    Some(options)
}

pub(crate) fn triples(unit: &UnitFile) -> Vec<(String, String, String)> {
    let triple =
        |it: OptionView<'_>| (it.section().to_owned(), it.name().to_owned(), it.value().to_owned());
    unit.options().map(triple).collect()
}

/// Returns the configuration of the property tests. They run many cases because each case is fast.
/// Failing cases are not saved to a file; they are added to a table of test cases by hand.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn parsing_agrees_with_the_naive_parser(source in source()) {
        let read = UnitFile::parse(&source).ok().map(|unit| triples(&unit));
        prop_assert_eq!(read, naively_read(&source));
    }

    // Holds: I-13
    #[test]
    fn source_is_kept_and_strict_and_lenient_parsing_agree(source in source()) {
        let (unit, diagnostics) = UnitFile::parse_collecting(&source);
        prop_assert_eq!(unit.source(), &source[..]);
        let error = diagnostics.iter().find(|it| it.severity() == Severity::Error);
        match UnitFile::parse(&source) {
            Ok(strict) => {
                prop_assert!(error.is_none());
                prop_assert_eq!(strict.options(), unit.options());
            }
            Err(refusal) => prop_assert_eq!(Some(refusal.diagnostic()), error),
        }
    }

    #[test]
    fn spans_are_valid_and_locate_their_text(source in source()) {
        let (unit, diagnostics) = UnitFile::parse_collecting(&source);
        for diagnostic in &diagnostics {
            let span = diagnostic.span();
            prop_assert!(span.start <= span.end && span.end <= source.len());
            prop_assert_eq!(unit.location(span.start), diagnostic.location());
        }
        for option in unit.options() {
            let (span, value) = (option.span(), option.value_span());
            prop_assert!(span.start < span.end && span.end <= source.len());
            prop_assert!(span.start < value.start && value.end == span.end);
            // A blank that protects a backslash at the end is outside the span.
            let written = String::from_utf8_lossy(&source[value.start..value.end]) + " ";
            let marks = ["\n\u{feff}", "\r\u{feff}", "\0\u{feff}"];
            if marks.iter().any(|mark| written.contains(mark)) {
                continue;
            }
            let again = UnitOption::new(option.section(), option.name(), written);
            prop_assert_eq!(again.value(), option.value());
        }
    }

    // Holds: I-13
    #[test]
    fn canonical_text_reads_back(source in source()) {
        let (unit, _) = UnitFile::parse_collecting(&source);
        let canonical = unit.canonical();
        let again = UnitFile::parse(&canonical).expect("canonical text is valid");
        prop_assert_eq!(&again.canonical(), &canonical);
        prop_assert_eq!(again.hash(), unit.hash());
        match UnitFile::from_options(unit.options().map(UnitOption::from)) {
            Ok(rewritten) => prop_assert_eq!(rewritten.hash(), unit.hash()),
            Err(error) => {
                prop_assert_eq!(error.kind(), OptionErrorKind::ByteOrderMark);
                let is_marked = canonical.starts_with('\u{feff}');
                prop_assert!(is_marked);
            }
        }
        let mut by_section = triples(&unit);
        let order: Vec<_> = by_section.iter().map(|(section, ..)| section.clone()).collect();
        by_section.sort_by_key(|(section, ..)| order.iter().position(|it| it == section));
        prop_assert_eq!(triples(&again), by_section);
    }

    #[test]
    fn option_made_of_its_parts_is_equal(source in source()) {
        let (unit, _) = UnitFile::parse_collecting(&source);
        for option in unit.options() {
            let plain = UnitOption::new(option.section(), option.name(), option.verbatim());
            prop_assert_eq!(&UnitOption::from(option), &plain);
            prop_assert_eq!(option, plain.clone());
            prop_assert_eq!(plain.value(), option.value());
        }
    }

    // Holds: I-13
    #[test]
    fn writable_options_read_back(
        texts in vec((text(), text(), text()), 1..4),
    ) {
        let options = texts.iter().map(|(section, name, value)| {
            UnitOption::new(format!("A{section}"), format!("K{name}"), value)
        });
        let mut options: Vec<_> = options.collect();
        if let Ok(unit) = UnitFile::from_options(options.clone()) {
            let order: Vec<_> = options.iter().map(|it| it.section().to_owned()).collect();
            options.sort_by_key(|it| order.iter().position(|section| section == it.section()));
            prop_assert!(unit.options().eq(options));
        }
    }

    #[test]
    fn edit_changes_one_option(
        source in source(),
        section in "[ABC]",
        name in "[KLM]",
        value in prop_oneof![text(), "[#\\\\ \nv]{0,6}"],
    ) {
        let (unit, _) = UnitFile::parse_collecting(&source);
        let option = UnitOption::new(&section, &name, &value);
        if let Ok(edited) = edited(&unit, |it| it.set(&section, &name, &value)) {
            let mut expected = triples(&unit);
            let new = (section.clone(), name.clone(), option.value().to_owned());
            let same = expected.iter().rposition(|it| it.0 == section && it.1 == name);
            let place = same.or_else(|| expected.iter().rposition(|it| it.0 == section));
            match (same, place) {
                (Some(same), _) => expected[same] = new,
                (None, Some(last)) => expected.insert(last + 1, new),
                // Below the last header of the section, if that has no options, or at the end.
                (None, None) => {
                    let mut below = expected.len();
                    let mut before = 0;
                    for event in Reader::new(&source) {
                        match event {
                            Event::Section { name, .. } if *name == section => below = before,
                            Event::Option(_) => before += 1,
                            _ => {}
                        }
                    }
                    expected.insert(below, new);
                }
            }
            prop_assert_eq!(triples(&edited), expected);
        }
    }

    #[test]
    fn removal_keeps_the_other_options(source in source(), name in "[KL]") {
        let (unit, _) = UnitFile::parse_collecting(&source);
        let mut expected = triples(&unit);
        expected.retain(|it| it.0 != "A" || it.1 != name);
        let edited = edited(&unit, |it| Ok(it.remove("A", &name))).unwrap();
        prop_assert_eq!(triples(&edited), expected);
    }

    #[test]
    fn unescape_inverts_escape(text in any::<String>()) {
        let escaped = escape(&text);
        let name = format!("a{escaped}.service");
        prop_assert!(UnitName::parse(&name).is_ok() || name.len() > 255);
        prop_assert_eq!(unescape(&escaped), Ok(text));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in prop_oneof![text(), any::<String>()]) {
        let name = UnitName::parse(r"a@b\x20c.service").unwrap();
        let percents = text.matches('%').count();
        prop_assert!(expand_fleet_specifiers(&text, &name).is_ok() || percents > 0);
        let (strict, relaxed) = (split_words(&text), split_words_relaxed(&text));
        prop_assert!(strict.is_err() || strict == relaxed);
        if let Err(error) = parse_timespan(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
        if let Ok(plain) = unescape(&text) {
            prop_assert!(plain.len() <= text.len());
        }
        if let Ok(name) = UnitName::parse(&text) {
            prop_assert_eq!(name.as_str(), text);
        }
    }

    #[test]
    fn joined_quoted_words_split_again(words in vec("[ a\"\\\\ä\t]{0,6}", 0..5)) {
        let quoted: Vec<_> = words.iter().map(|word| {
            format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
        }).collect();
        prop_assert_eq!(split_words(&quoted.join(" ")), Ok(words));
    }
}

//! The grammar, case by case: accepted text, refused text, and messages.

use std::fmt::Write as _;

use fleet_unitfile::{Diagnostic, DiagnosticKind, Location, OptionView, Severity, Span, UnitFile};

use crate::folded;

/// Returns the options of a source on one line, and the kinds of its diagnostics.
fn read(source: impl AsRef<[u8]>) -> (String, Vec<DiagnosticKind>) {
    let (unit, diagnostics) = UnitFile::parse_collecting(source);
    let mut text = String::new();
    for option in unit.options() {
        let separator = if text.is_empty() { "" } else { " | " };
        let (section, name, value) = (option.section(), option.name(), option.value());
        write!(text, "{separator}{section}.{name}={value}").unwrap();
    }
    (text, diagnostics.iter().map(Diagnostic::kind).collect())
}

/// Checks a table of sources without diagnostics.
fn all_read(table: &[(&str, &str)]) {
    for &(source, expected) in table {
        assert_eq!(read(source), (expected.to_owned(), vec![]), "{source:?}");
        assert!(UnitFile::parse(source).is_ok(), "{source:?}");
    }
}

/// Checks a table of sources with one error each, and the remaining options.
fn all_refused(table: &[(&[u8], DiagnosticKind, &str)]) {
    for &(source, kind, rest) in table {
        let shown = String::from_utf8_lossy(source);
        assert_eq!(read(source), (rest.to_owned(), vec![kind]), "{shown:?}");
        assert_eq!(UnitFile::parse(source).unwrap_err().kind(), kind, "{shown:?}");
        assert_eq!(kind.severity(), Severity::Error);
    }
}

#[test]
fn sections_and_options() {
    all_read(&[
        ("", ""),
        ("\n \n\t\n", ""),
        ("[A]", ""),
        ("[A]\nK=v", "A.K=v"),
        ("[A]\nK=v\n", "A.K=v"),
        ("[A]\n  K \t= \t v \t\n", "A.K=v"),
        ("  [A]  \nK=v", "A.K=v"),
        ("[A]\nK=\n", "A.K="),
        ("[A]\nK=a=b\n", "A.K=a=b"),
        ("[A]\nK==\n", "A.K=="),
        ("[A]\nK=[B]\n", "A.K=[B]"),
        ("[A]\nK=\"q\" 'r' \\x20 %n\n", "A.K=\"q\" 'r' \\x20 %n"),
        ("[A]\nK=1\nK=\nK=2\n", "A.K=1 | A.K= | A.K=2"),
        ("[A]\nK=1\n[B]\nL=2\n[A]\nM=3\n", "A.K=1 | B.L=2 | A.M=3"),
        ("[ A ]\nK=v\n", " A .K=v"),
        ("[A b=c]\nK=v\n", "A b=c.K=v"),
        ("[A]\nTwo words=v\n", "A.Two words=v"),
        ("[Ä]\nÖ=ü\n", "Ä.Ö=ü"),
        ("[A]\nK=\u{a0}v\u{c}\n", "A.K=\u{a0}v\u{c}"),
    ]);
}

#[test]
fn comments_are_whole_lines() {
    all_read(&[
        ("# c\n; d\n  # e\n\t;\n", ""),
        ("#c\\\n[A]\nK=v\n", "A.K=v"),
        ("[A]\nK=v # c\nL=w;d\n", "A.K=v # c | A.L=w;d"),
        ("[A]\n#K=v\n", ""),
        ("# [A]\n", ""),
    ]);
    assert_eq!(read(b"# \xff\n[A]\nK=v\n"), ("A.K=v".into(), vec![]));
}

#[test]
fn unescaped_backslash_continues_the_line() {
    all_read(&[
        ("[A]\nK=a\\\nb\n", "A.K=a b"),
        ("[A]\nK=a \\\n   b\n", "A.K=a     b"),
        ("[A]\nK=\\\n  b\n", "A.K=b"),
        ("[A]\nK=a\\\n\nL=b\n", "A.K=a | A.L=b"),
        ("[A]\nK=a\\\n  \\\nb\n", "A.K=a    b"),
        ("[A]\nK=a\\\\\nL=b\n", "A.K=a\\\\ | A.L=b"),
        ("[A]\nK=a\\\\\\\nb\n", "A.K=a\\\\ b"),
        ("[A]\nK=a\\\n#c\nb\n", "A.K=a b"),
        ("[A]\nK=a\\\n  ; c \\\n# d\n b \\\n#e\nf\n", "A.K=a  b  f"),
        ("[A]\nK=a\\\nL=b\n", "A.K=a L=b"),
        ("[A]\nNa\\\nme=v\n", "A.Na me=v"),
        ("[A]\nK\\\n=v\n", "A.K=v"),
        ("[A\\\nB]\nK=v\n", "A B.K=v"),
    ]);
}

#[test]
fn all_kinds_of_line_ends() {
    all_read(&[
        ("[A]\r\nK=v\r\nL=w\r\n", "A.K=v | A.L=w"),
        ("[A]\rK=v\rL=w", "A.K=v | A.L=w"),
        ("[A]\n\rK=v\n\rL=w\n\r", "A.K=v | A.L=w"),
        ("[A]\0K=v\0L=w", "A.K=v | A.L=w"),
        ("[A]\r\nK=a \\\r\n  b\r\n", "A.K=a    b"),
        ("[A]\r\nK=a\\\r\n\r\nL=b\r\n", "A.K=a | A.L=b"),
        ("[A]\rK=a\\\rb", "A.K=a b"),
    ]);
}

#[test]
fn byte_order_mark_of_the_first_line_with_one_is_skipped() {
    all_read(&[
        ("\u{feff}[A]\nK=v\n", "A.K=v"),
        ("\u{feff}", ""),
        ("\n\u{feff}[A]\nK=v\n", "A.K=v"),
        ("# c\n\u{feff}[A]\nK=v\n", "A.K=v"),
        ("\u{feff}\n# c\n[A]\nK=v\n", "A.K=v"),
        ("\u{feff} \n[A]\n\u{feff}K=v\n", "A.\u{feff}K=v"),
        ("[A]\n\u{feff}K=v\n\u{feff}L=w\n", "A.K=v | A.\u{feff}L=w"),
        ("[A]\n \u{feff}K=v\n\u{feff}L=w\n", "A.\u{feff}K=v | A.L=w"),
        ("[A]\nK=a \\\n\u{feff}b\n", "A.K=a  b"),
        ("[A]\nK=a \\\n\u{feff}b\\\n\u{feff}c\n", "A.K=a  b \u{feff}c"),
        ("[A]\nK=a \\\n\u{feff}#b\n", "A.K=a  #b"),
        ("[A]\nK=\\\r\n\u{feff} ;b\r\n", "A.K=;b"),
        ("[A]\r\u{feff}[B]\rK=v\r", "B.K=v"),
    ]);
    all_refused(&[
        ("\u{feff}\u{feff}[A]\n".as_bytes(), DiagnosticKind::OutsideSection, ""),
        ("\u{feff}\n\u{feff}[A]\n".as_bytes(), DiagnosticKind::OutsideSection, ""),
    ]);
}

#[test]
fn comment_after_a_byte_order_mark_is_refused() {
    use DiagnosticKind::{InvalidUtf8, MarkedComment};
    all_refused(&[
        ("\u{feff}# c\n[A]\nK=v\n".as_bytes(), MarkedComment, "A.K=v"),
        ("\u{feff} ; c\n[A]\nK=v\n".as_bytes(), MarkedComment, "A.K=v"),
        ("\u{feff}#c\\\nk=v\n[B]\nK=v\n".as_bytes(), MarkedComment, "B.K=v"),
        ("[A]\n\u{feff}#K=v\nL=w\n".as_bytes(), MarkedComment, "A.L=w"),
        ("[A]\n\\\n\u{feff}#K=v\nL=w\n".as_bytes(), MarkedComment, "A.L=w"),
        (b"\xef\xbb\xbf# c\xff\n[A]\nK=v\n", InvalidUtf8, "A.K=v"),
    ]);
}

#[test]
fn invalid_lines_are_refused() {
    use DiagnosticKind::{EmptyName, MissingEquals, OutsideSection};
    all_refused(&[
        (b"[A]\nfoo\nK=v\n", MissingEquals, "A.K=v"),
        (b"[A]\nK=v\nfoo", MissingEquals, "A.K=v"),
        (b"[A]\nK=a\\\n#c\n b\nfoo\n", MissingEquals, "A.K=a  b"),
        (b"[A]\n=v\nK=w\n", EmptyName, "A.K=w"),
        (b"[A]\n  = \n", EmptyName, ""),
        (b"[A]\n\\\n=v\n", EmptyName, ""),
        (b"K=v\n[A]\nK=w\n", OutsideSection, "A.K=w"),
        (b"foo\n[A]\nK=w\n", OutsideSection, "A.K=w"),
    ]);
}

#[test]
fn invalid_headers_hide_their_options() {
    use DiagnosticKind::{EmptySection, SectionCharacter, UnclosedHeader};
    all_refused(&[
        (b"[A\nK=v\n[B]\nL=w\n", UnclosedHeader, "B.L=w"),
        (b"[A] # c\nK=v\n", UnclosedHeader, ""),
        (b"[\n", UnclosedHeader, ""),
        (b"[B]\nL=w\n[]\nK=v\n", EmptySection, "B.L=w"),
        (b"[A] # [c]\nK=v\n", SectionCharacter, ""),
        (b"[[A]]\n", SectionCharacter, ""),
        (b"[A\"]\nK=v\nfoo\n", SectionCharacter, ""),
        (b"[A']\n", SectionCharacter, ""),
        (b"[A\\x]\n", SectionCharacter, ""),
        (b"[A\tB]\n", SectionCharacter, ""),
        (b"[A\x7f]\n", SectionCharacter, ""),
    ]);
}

#[test]
fn invalid_utf8_is_refused_outside_comments() {
    use DiagnosticKind::InvalidUtf8;
    all_refused(&[
        (b"[A]\nK=\xff\nL=w\n", InvalidUtf8, "A.L=w"),
        (b"[A]\nK\xff=v\n", InvalidUtf8, ""),
        (b"[A]\nK=a\\\n\xc3\nL=w\n", InvalidUtf8, "A.L=w"),
        // Half a character at the end of each of two lines is not joined to a whole one.
        (b"[A]\nK=\xc3\\\n\xa4\n", InvalidUtf8, ""),
        (b"[A\xff]\nK=v\n[B]\nL=w\n", InvalidUtf8, "B.L=w"),
        (b"[A]\n \\\n[B]\xff\nK=v\n", InvalidUtf8, ""),
        ("[A]\nK=\u{fffe}\n".as_bytes(), InvalidUtf8, ""),
        ("[A]\nK=\u{fdd0}\n".as_bytes(), InvalidUtf8, ""),
        ("[A]\nK=\u{1ffff}\n".as_bytes(), InvalidUtf8, ""),
    ]);
    all_read(&[(
        "[A]\nK=\u{fffd}\u{fdcf}\u{fdf0}\u{10fffd}\n",
        "A.K=\u{fffd}\u{fdcf}\u{fdf0}\u{10fffd}",
    )]);
}

#[test]
fn line_length_is_limited_joined_or_not() {
    const MAX: usize = 1024 * 1024 - 1;
    let option = |len: usize| format!("[A]\nK={}\nL=w\n", "v".repeat(len - 2));
    let comment = |len: usize| format!("#{}\n[A]\nL=w\n", "c".repeat(len - 1));
    let joined = |len: usize| {
        let half = len / 2;
        format!("[A]\nK={}\\\n#c\n{}\nL=w\n", "v".repeat(half - 3), "v".repeat(len - half))
    };
    for accepted in [option(MAX), comment(MAX), joined(MAX)] {
        assert!(UnitFile::parse(&accepted).is_ok());
        assert_eq!(UnitFile::parse(accepted).unwrap().get("A", "L"), Some("w"));
    }
    for refused in [option(MAX + 1), comment(MAX + 1), joined(MAX + 2)] {
        assert_eq!(read(refused), ("A.L=w".into(), vec![DiagnosticKind::LineTooLong]));
    }
}

#[test]
fn suspicious_lines_are_read_with_a_warning() {
    use DiagnosticKind::{BlankAfterBackslash, SwallowedHeader, UnfinishedContinuation};
    for (source, kind, expected) in [
        ("[A]\nK=a \\ \nL=w\n", BlankAfterBackslash, "A.K=a \\ | A.L=w"),
        ("[A]\nK=a\\\nb \\\t\n", BlankAfterBackslash, "A.K=a b \\"),
        ("[A]\nK=a \\\n", UnfinishedContinuation, "A.K=a"),
        ("[A]\nK=a \\", UnfinishedContinuation, "A.K=a"),
        ("[A]\nK=a \\\n# c", UnfinishedContinuation, "A.K=a"),
        ("[A]\nK=a \\\n [B] \nL=w\n", SwallowedHeader, "A.K=a   [B] | A.L=w"),
    ] {
        assert_eq!(read(source), (expected.to_owned(), vec![kind]), "{source:?}");
        assert_eq!(kind.severity(), Severity::Warning);
        assert!(UnitFile::parse(source).is_ok(), "{source:?}");
    }
}

#[test]
fn diagnostics_are_bounded_and_keep_the_first_error() {
    let warnings = "K=a \\ \n".repeat(1500);
    let (_, diagnostics) = UnitFile::parse_collecting(format!("[A]\n{warnings}foo\nbar\n"));
    assert_eq!(diagnostics.len(), 1001);
    let last = diagnostics.last().unwrap();
    assert_eq!((last.severity(), last.location().line), (Severity::Error, 1502));
}

#[test]
fn messages_have_location_error_and_remedy() {
    let source =
        b"K=v\n[Unit\n[Ser]vice]\n[A]\n=v\n  ExecStart /bin/true\n\xc3\xa4=\xff\nK=\\ \nK=\\\n\
        [B]\nK=a\\";
    let (_, diagnostics) = UnitFile::parse_collecting(source);
    let lines: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(folded(&lines.join("\n")), @r##"
    line 1, column 1: option before the first section in "K=v": put a section header such
        as [Unit] above the option
    line 2, column 1: section header without "]" at its end in "[Unit": write [Section],
        and put further text on the next line
    line 3, column 1: section name with an invalid character in "[Ser]vice]": use no
        control character, quote, backslash or bracket in the name, and put further text on
        the next line
    line 5, column 1: missing option name before "=" in "=v": write Name=value
    line 6, column 3: missing "=" in "ExecStart /bin/true": write Name=value, start a
        comment with "#", or end the line above with a backslash to continue it
    line 7, column 3: text that is not UTF-8 in "ä=�": save the file as UTF-8
    line 8, column 3: blanks after the backslash in "K=\": remove the blanks if the value
        continues on the next line
    line 10, column 1: section header inside the value of the option above in "[B]": remove
        the backslash at the end of the line above
    line 11, column 4: backslash at the end of the file in "K=a\": remove the backslash, or
        write the missing line
    "##);
    insta::assert_snapshot!(folded(&UnitFile::parse(source).unwrap_err().to_string()), @r##"
    line 1, column 1: option before the first section in "K=v": put a section header such
        as [Unit] above the option
    "##);
}

#[test]
fn spans_and_locations_match_the_text() {
    let source = "\u{feff}[A]\r\n  Näme = väl \\\r\n#c\r\n ue  \r\nEmpty=\r\n";
    let unit = UnitFile::parse(source).unwrap();
    let [first, empty] = unit.options().collect::<Vec<_>>()[..] else { panic!("two options") };
    let slice = |span: Span| &source[span.start..span.end];
    assert_eq!(slice(first.span()), "Näme = väl \\\r\n#c\r\n ue");
    assert_eq!(slice(first.value_span()), "väl \\\r\n#c\r\n ue");
    assert_eq!((slice(empty.span()), slice(empty.value_span())), ("Empty=", ""));
    let at = |offset| unit.location(offset);
    assert_eq!(at(0), Location { line: 1, column: 1 });
    assert_eq!(at(first.span().start), Location { line: 2, column: 3 });
    assert_eq!(at(first.value_span().start), Location { line: 2, column: 10 });
    assert_eq!(at(first.value_span().end), Location { line: 4, column: 4 });
    assert_eq!(at(source.len() + 9), Location { line: 5, column: 7 });
    assert_eq!(UnitFile::parse("").unwrap().location(3), Location { line: 1, column: 1 });
}

#[test]
fn unit_file_implements_common_traits() {
    let source = "# c\n[A]\nK=1\n";
    let unit: UnitFile = source.parse().unwrap();
    assert_eq!(unit.as_ref(), source.as_bytes());
    let again = UnitFile::parse(source).unwrap();
    let hash = |unit: &UnitFile| {
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(unit, &mut hasher);
        std::hash::Hasher::finish(&hasher)
    };
    assert_eq!((&unit, hash(&unit)), (&again, hash(&again)));
    assert_eq!("no".parse::<UnitFile>().unwrap_err(), UnitFile::parse("no").unwrap_err());
    assert_eq!(UnitFile::default(), UnitFile::parse("").unwrap());
}

#[test]
fn unit_file_accessors() {
    let unit = UnitFile::parse("[Unit]\nDescription=a\nDescription=b\n[X]\n[Unit]\nK=1\n").unwrap();
    assert_eq!(unit.sections().collect::<Vec<_>>(), ["Unit", "X"]);
    assert!(unit.has_section("X") && !unit.has_section("x"));
    assert_eq!(unit.description(), "b");
    assert_eq!(unit.get("Unit", "Description"), Some("b"));
    assert_eq!(unit.get("Unit", "description"), None);
    let values = unit.values("Unit", "Description").map(OptionView::value);
    assert_eq!(values.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(UnitFile::parse("").unwrap().description(), "");
}

/// systemd refuses a physical line of 1 MiB, but a joined line only if it is longer.
#[test]
fn joined_line_may_have_exactly_one_mebibyte() {
    const MIB: usize = 1 << 20;
    let is_read = |source: &str| UnitFile::parse(source).is_ok();
    let joined = |length: usize| {
        let half = "x".repeat(MIB / 2);
        format!("[Unit]\nDescription={half}\\\n{}\n", "y".repeat(length - MIB / 2 - 13))
    };
    assert!(is_read(&joined(MIB - 1)) && is_read(&joined(MIB)));
    assert!(!is_read(&joined(MIB + 1)));
    let single = |length: usize| format!("[Unit]\nDescription={}\n", "x".repeat(length - 12));
    assert!(is_read(&single(MIB - 1)));
    assert!(!is_read(&single(MIB)));
}

//! Pathological files: long and full of errors. Each must be read in linear time.

use fleet_core::graph::Timeouts;
use fleet_core::graph::format::{
    FileRole, FileSet, InitDiagnostic, InitFile, MAX_FILE_SIZE, read_central, read_stanzas,
};

// Holds: G-27
#[test]
fn files_full_of_errors_are_read_in_linear_time() {
    let head = "unit: a\ntype: oneshot\nprovides: a\nexec-start: /a\n";
    for (head, part) in [
        ("", "\n"),
        ("", "x\n"),
        ("", ":\n"),
        ("", "a:\n"),
        ("", "unit:a\n"),
        ("", "\0"),
        ("", "\u{fc}"),
        (head, "waits-for:!\n"),
        (head, "user:\n"),
        ("unit: a\nprovides: ", "!,"),
        ("unit: a\nprovides: ", "a\n "),
        ("unit: a\nwaits-for: ", "a,\n "),
        ("unit: a\nexec-start: /a ", "$x "),
        ("unit: a\nexec-start: /a ", "$"),
        ("unit: a\nexec-start: /a ", "\\"),
        ("unit: a\nready-grep: ", "("),
        ("unit: a\nready-grep: ", "\\pL"),
        ("unit: a\nsuccess-exit: ", "SIG,"),
        ("unit: a\n", "description:\n "),
        ("goal: ", "a"),
        ("goal: a\nalternatives: ", "a=b,"),
    ] {
        let more = part.repeat(MAX_FILE_SIZE / 4 / part.len());
        let text = format!("{head}{more}");
        let found = match head.contains("goal") {
            true => read_central(text.as_bytes()).diagnostics,
            false => read_stanzas(text.as_bytes(), &Timeouts::default()).diagnostics,
        };
        found.iter().for_each(|it| drop(it.excerpt(text.as_bytes())));
    }
}

/// Regression: the pattern was accepted, and its unit never became ready because it cannot be
/// compiled.
#[test]
fn oversized_pattern_is_rejected() {
    let output = |pattern: &str| -> Vec<String> {
        let text = format!(
            "unit: a\ntype: foreground-supervised\nprovides: a\nexec-start: /a\n\
             ready-grep: {pattern}\n"
        );
        let found = read_stanzas(text.as_bytes(), &Timeouts::default()).diagnostics;
        let output = |it: &InitDiagnostic| {
            let place = format!("{}:{}", it.location.line, it.location.column);
            format!("{place} {} {}; {}", it.code.as_str(), it.message, it.help)
        };
        found.iter().map(output).collect()
    };
    assert_eq!(output(r"^listening on \w{1,64}:\d{1,5}$"), Vec::<String>::new());
    let expected = "5:13 E21 this regular expression is too large when compiled; \
                    repeat less, or write [a-z] or . for a class of all scripts such as \\w";
    assert_eq!(output(r"^listening on \w{1,64}:\w{1,255}$"), [expected]);
    assert_eq!(output(r"\w{5000}"), [expected]);
    assert_eq!(output(&r"\pL".repeat(1300)), [expected]);
    assert_eq!(output(&"x{1000}".repeat(500)), [expected]);
}

#[test]
fn unknown_targets_of_a_long_line_have_own_positions() {
    let targets: Vec<String> = (0..20_000).map(|number| format!("u{number}")).collect();
    let source =
        format!("unit: a\ntype: virtual\nprovides: a\nwaits-for: {}\n", targets.join(", "));
    let (name, source) = ("a.unit".to_owned(), source.into_bytes());
    let mut sources = FileSet::read(vec![InitFile { name, role: FileRole::Units, source }]);
    assert!(sources.graph().is_none());
    let columns = sources.diagnostics[0].iter().map(|it| it.location.column);
    let expected = targets.iter().scan(12, |at, target| {
        let column = *at;
        *at += target.len() + 2;
        Some(column)
    });
    assert!(columns.eq(expected), "a place is wrong");
}

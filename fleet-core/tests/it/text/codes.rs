//! Messages of each diagnostic code.

use std::collections::BTreeSet;

use fleet_core::graph::format::{Code, InitDiagnostic, read_central, read_stanzas};
use fleet_core::graph::{Settings, Timeouts};

use super::broken::{BROKEN, ODD, whole};
use super::output;

fn of_stanza(text: &str) -> String {
    let read = read_stanzas(text.as_bytes(), &Timeouts::default());
    output(text.as_bytes(), &read.diagnostics)
}

// Holds: G-29, X-4
#[test]
fn each_mistake_gives_exactly_its_code() {
    for (text, code) in BROKEN.into_iter().chain(ODD) {
        let text = whole(text).replace("NAME", "web");
        let read = read_stanzas(text.as_bytes(), &Timeouts::default());
        let found: Vec<&str> = read.diagnostics.iter().map(|it| it.code.as_str()).collect();
        assert_eq!(found, [code], "{text}{}", output(text.as_bytes(), &read.diagnostics));
        let is_error = code.starts_with('E');
        assert_eq!(read.stanzas[0].unit.is_none(), is_error, "{text}");
    }
}

#[test]
fn every_stanza_code_has_a_test_case() {
    // These are found in the file set, the central settings, the file as a whole, or on disk.
    let others = ["E03", "E12", "E13", "E15", "E16", "E17", "E27", "E28", "E32"];
    let others = others.into_iter().chain(["W03", "W04", "W05", "W08", "W09"]);
    let shown: BTreeSet<&str> =
        BROKEN.into_iter().chain(ODD).map(|(_, code)| code).chain(others).collect();
    let all: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(shown, all);
}

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../../docs/reference/init-files.md");
    for code in Code::ALL {
        let row = format!("| {code} | {} |", code.meaning());
        assert!(page.contains(&row), "write into docs/reference/init-files.md: {row}");
    }
}

#[test]
fn every_message_has_a_position_and_a_remedy() {
    let all = BROKEN.into_iter().chain(ODD);
    let output: String =
        all.map(|(text, _)| of_stanza(&whole(text).replace("NAME", "web"))).collect();
    insta::assert_snapshot!(output);
}

#[test]
fn fields_before_the_first_unit_are_reported() {
    insta::assert_snapshot!(of_stanza("\u{feff}# shop\r\ntype: virtual\r\nunit: a\r\n"), @"
    E03 line 2, column 1: type precedes the first unit
    2 | type: virtual
      | ^^^^
    help: write `unit: NAME` above it
    E19 line 3, column 7: type is missing
    3 | unit: a
      |       ^
    help: write `type: …` below this line
    E19 line 3, column 7: provides is missing
    3 | unit: a
      |       ^
    help: write `provides: …` below this line
    ");
}

/// Each position follows text with more bytes than characters, or on continuation lines.
// Holds: G-28
#[test]
fn positions_count_characters_in_continued_lines() {
    let text = "\u{feff}type: virtual\n\
                unit: a\ntype: virtual\nprovides: a\nwaits-for: b,\n  c,, d e\n\
                unit: b\ntype: oneshot\nprovides: b\nexec-start: /a \u{e4} $A $B\n";
    let found = read_stanzas(text.as_bytes(), &Timeouts::default()).diagnostics;
    let place = |it: &InitDiagnostic| (it.code.as_str(), it.location.line, it.location.column);
    let expected = [("E03", 1, 1), ("E05", 6, 4), ("E06", 6, 7), ("E11", 10, 18), ("E11", 10, 21)];
    assert_eq!(found.iter().map(place).collect::<Vec<_>>(), expected);
}

#[test]
fn lower_case_signal_names_get_a_suggestion() {
    let output = of_stanza(&whole("ONESHOTsuccess-exit: sigtrem\n").replace("NAME", "web"));
    assert!(output.contains("help: did you mean SIGTERM?"), "{output}");
}

#[test]
fn oversized_file_is_rejected() {
    let text = "#\n".repeat(512 * 1024) + "oops\n";
    insta::assert_snapshot!(of_stanza(&text), @"
    E27 line 524289, column 1: the file has more than 1048576 bytes
    524289 | oops
           | ^
    help: split it into several files
    ");
}

#[test]
fn central_settings_reject_unknown_keys() {
    let text = "goal: a b\nmax-starting: 0\nmax-starting: 4\n\
                alternatives: mta, smtp=exim, smtp=postfix\n\
                mask: cups,\nstart-timeout: x\nunit: a\ngaol: b\nx-y: 1\nstop-timeout:\n";
    insta::assert_snapshot!(output(text.as_bytes(), &read_central(text.as_bytes()).diagnostics), @"
    E06 line 1, column 7: `a b` is not a valid target name
    1 | goal: a b
      |       ^^^
    help: name one target; for several, name the target of a virtual unit that depends on them
    E29 line 2, column 15: `0` is not a valid value for this key
    2 | max-starting: 0
      |               ^
    help: write a whole number from 1 to 4294967295
    E04 line 3, column 1: max-starting is already given in line 2
    3 | max-starting: 4
      | ^^^^^^^^^^^^
    help: remove one of the two lines
    E29 line 4, column 15: `mta` is not of the form target=unit
    4 | alternatives: mta, smtp=exim, smtp=postfix
      |               ^^^
    help: write target=unit
    E29 line 4, column 31: `smtp` is already assigned to `exim`
    4 | alternatives: mta, smtp=exim, smtp=postfix
      |                               ^^^^^^^^^^^^
    help: choose one unit for it
    E05 line 5, column 11: an item is missing at this comma
    5 | mask: cups,
      |           ^
    help: write a name there, or remove the comma
    E08 line 6, column 16: `x` is not a valid duration here
    6 | start-timeout: x
      |                ^
    help: write a number with ms, s, min or h, such as 90s
    E02 line 7, column 1: units are not allowed in the central settings
    7 | unit: a
      | ^^^^
    help: write it into a separate file whose name ends in .unit
    E02 line 8, column 1: there is no key `gaol` here
    8 | gaol: b
      | ^^^^
    help: did you mean goal?
    W07 line 9, column 1: x-y is ignored
    9 | x-y: 1
      | ^^^
    help: if that is not intended, remove the line
    E05 line 10, column 1: stop-timeout has no value
    10 | stop-timeout:
       | ^^^^^^^^^^^^
    help: write one, or remove the line
    ");
}

#[test]
fn invalid_central_settings_keep_their_defaults() {
    let text = "start-timeout: x\nstop-timeout: 0\nreload-timeout: -1\n";
    let central = read_central(text.as_bytes());
    assert_eq!(central.diagnostics.len(), 3);
    assert_eq!(central.settings, Settings::default());
}

#[test]
fn missing_stop_timeout_warns_in_central_settings() {
    let text = "stop-timeout: none\n";
    insta::assert_snapshot!(output(text.as_bytes(), &read_central(text.as_bytes()).diagnostics), @"
    W06 line 1, column 15: a unit that does not exit by itself is then never stopped
    1 | stop-timeout: none
      |               ^^^^
    help: write how long it may take, such as 90s
    ");
}

/// Regression: the help named the key `execstart`, which does not exist, and `exec-start` was
/// reported as missing too.
#[test]
fn key_of_systemd_is_corrected_to_the_key_of_stanzas() {
    for (line, expected) in [
        ("ExecStart: /bin/true", "write `exec-start`"),
        ("ExecStart=/bin/true", "write `exec-start: /bin/true`, or # before a comment"),
        ("ExecStart: /bin/true\nWorkingDirectory: /", "write `directory`"),
        ("ExecStart: /bin/true\nenvironment: A=1", "did you mean env?"),
    ] {
        let found = of_stanza(&format!("unit: a\ntype: oneshot\nprovides: a\n{line}\n"));
        assert!(found.contains(&format!("help: {expected}\n")), "{line}: {found}");
        assert_eq!(found.matches("help: ").count(), line.lines().count(), "{line}: {found}");
    }
}

/// Regression: the help was `write `type: value``.
#[test]
fn assignment_is_corrected_with_its_value() {
    let found = of_stanza("unit: a\ntype = virtual\nprovides: a\n");
    assert!(found.contains("help: write `type: virtual`, or # before a comment"), "{found}");
}

/// Regression: `ready-fd` suggested `ready-grep`, which was then refused for a oneshot.
#[test]
fn unknown_key_causes_no_error_about_a_similar_key() {
    let found = of_stanza("unit: a\ntype: oneshot\nprovides: a\nready-fd: 3\nexec-start: /a\n");
    assert!(found.contains("there is no key `ready-fd`") && !found.contains("grep"), "{found}");
    let found = of_stanza("unit: a\ntype: oneshot\nprovides: a\nready-grp: 3\nexec-start: /a\n");
    assert!(found.contains("did you mean ready-grep?") && !found.contains("E18"), "{found}");
}

/// Regression: operators were passed to the program as arguments, without a finding.
#[test]
fn shell_operators_outside_quotes_are_refused() {
    let command = |text: &str| format!("unit: a\ntype: oneshot\nprovides: a\nexec-start: {text}\n");
    for text in ["/a && /b", "/a || /b", "/a | /b", "/a > /b", "/a >/b", "/a 2>&1", "/a &> /b"] {
        let found = of_stanza(&command(text));
        assert_eq!(found.matches("E30 ").count(), 1, "{text}: {found}");
    }
    for text in ["/a &", "/a; /b", "/a b; c", "/a < /b", "/a </b", "/a << EOF", "-/a |& /b"] {
        assert!(of_stanza(&command(text)).starts_with("E30 "), "{text}");
    }
    for text in ["/a \"&&\" '>' \";\"", "/a a&b x|y <none> -> a>b", "/sh -c 'a && b; c > d'"] {
        assert_eq!(of_stanza(&command(text)), "", "{text}");
    }
    insta::assert_snapshot!(of_stanza(&command("/bin/echo hi && /bin/rm > /x; true")), @r#"
    E30 line 4, column 26: `&&` is for a shell, but no shell runs this command
    4 | exec-start: /bin/echo hi && /bin/rm > /x; true
      |                          ^^
    help: write `/bin/sh -c '…'`, or "&&" in quotes for an argument
    "#);
    let found = of_stanza(&command("/bin/find / -exec /a {} \\;"));
    assert!(found.contains("help: write \";\" in quotes for a semicolon"), "{found}");
}

/// Regression: such a unit never became ready, without a finding.
#[test]
fn ready_grep_needs_output_in_the_log() {
    let grep = "unit: a\ntype: foreground-supervised\nprovides: a\nexec-start: /a\nready-grep: b\n";
    let found = |lines: &str| of_stanza(&format!("{grep}{lines}"));
    for lines in ["output: null\n", "output: file:/x\n", "output: inherit\nerror-output: null\n"] {
        assert!(found(lines).starts_with("E31 line 5"), "{lines}");
    }
    for lines in ["", "error-output: null\n", "output: null\nerror-output: log\n"] {
        assert_eq!(found(lines), "", "{lines}");
    }
}

/// Regression: the key was accepted, and `remain` took precedence without a finding.
#[test]
fn clean_exit_of_a_oneshot_warns() {
    insta::assert_snapshot!(of_stanza(&whole("ONESHOTremain: no\nclean-exit: remain\n")), @"
    W10 line 6, column 1: clean-exit has no effect for units of type oneshot
    6 | clean-exit: remain
      | ^^^^^^^^^^
    help: write `remain: yes` or `remain: no` instead
    ");
}

//! Files that nobody writes by hand: long, and wrong throughout. Each is read in one walk, or this
//! would take for ever.

use fleet_core::graph::TimeOuts;
use fleet_core::graph::text::{LARGEST_FILE, read_central, read_stanzas};

#[test]
fn files_that_are_wrong_throughout_are_read_in_one_walk() {
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
        let more = part.repeat(LARGEST_FILE / 4 / part.len());
        let text = format!("{head}{more}");
        let found = match head.contains("goal") {
            true => read_central(text.as_bytes()).diagnostics,
            false => read_stanzas(text.as_bytes(), &TimeOuts::default()).diagnostics,
        };
        found.iter().take(10).for_each(|it| drop(it.excerpt(text.as_bytes())));
    }
}

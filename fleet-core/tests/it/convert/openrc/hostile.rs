//! Pathological scripts.

use fleet_core::graph::convert::{InitSystem, SourceFile, convert};

/// Converts a script whose unit must call it, and returns the notes.
fn called(body: &str) -> Vec<String> {
    let source = format!("#!/sbin/openrc-run\npidfile=/run/web.pid\n{body}").into_bytes();
    let file = SourceFile { path: "web".to_owned(), source, ..SourceFile::default() };
    let converted = convert(InitSystem::Openrc, vec![file]);
    let text = converted.text();
    assert!(text.contains("exec-start: /etc/init.d/web --nodeps start\n"), "{text:.1000}");
    converted.notes.iter().map(|it| format!("{}: {}", it.line, it.message)).collect()
}

fn has(output: &[String], what: &str) -> bool {
    output.iter().any(|it| it.starts_with(what))
}

/// Regression: every level used stack space until it overflowed.
#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    for open in ["\"$(", "$(\"$(", "\"$((\"$(("] {
        let output = called(&format!("command={}\n", open.repeat(25_000)));
        assert!(
            has(&output, "3: only a shell can evaluate the script from here on"),
            "{open} {output:?}"
        );
        let closed = open.repeat(50);
        let output = called(&format!("command={closed}\n"));
        assert!(
            has(&output, "3: only a shell can evaluate the script from here on"),
            "{open} {output:?}"
        );
    }
    let (open, close) = ("\"$(x ".repeat(150), ")\"".repeat(150));
    let output = called(&format!("command={open}{close}\n"));
    assert!(has(&output, "3: only a shell can evaluate the script from here on"), "{output:?}");
    let (open, close) = ("\"$(x ".repeat(90), ")\"".repeat(90));
    let output = called(&format!("command={open}{close}\n"));
    assert!(has(&output, "3: the value of `command` cannot be determined"), "{output:?}");
}

#[test]
fn nested_defaults_do_not_overflow_the_stack() {
    let deep = |depth: usize, close: &str| {
        format!("command=\"{}/bin/a{}\"\n", "${A:-".repeat(depth), close.repeat(depth))
    };
    for (depth, close) in [(101, "}"), (20_000, "}"), (20_000, "")] {
        let output = called(&deep(depth, close));
        let why =
            if close.is_empty() { "only a shell can evaluate" } else { "the value of `command`" };
        assert!(has(&output, &format!("3: {why}")), "{depth} {output:?}");
    }
    let output = super::script(&format!("pidfile=/run/web.pid\n{}", deep(99, "}")));
    assert!(output.contains("exec-start: /bin/a\n"), "{output}");
}

/// Forty such lines gave a value of one tebibyte.
#[test]
fn doubling_values_are_bounded() {
    let output =
        called(&format!("command=/bin/web\n{}", "command=\"$command$command\"\n".repeat(40)));
    assert!(has(&output, "43: the value of `command` cannot be determined"), "{output:?}");
}

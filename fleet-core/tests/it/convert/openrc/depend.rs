//! Conversion of `depend` functions.

use fleet_core::graph::convert::InitSystem;

use super::super::output;
use super::script;

#[test]
fn depend_words_become_edges() {
    let service = |name: &str, depend: &str| {
        let text = format!("#!/sbin/openrc-run\ndepend() {{\n{depend}}}\n");
        (name.to_owned(), text)
    };
    let web = "\tneed net db\n\tuse dns\n\twant cache\n\tbefore proxy\n\tafter firewall \\\n\
               \t\tclock\n\tprovide http web\n";
    let mut files = vec![service("web", web), service("db", "need net\nneed db\n")];
    for name in ["net", "dns", "cache", "proxy", "firewall"] {
        files.push(service(name, ""));
    }
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let output = output(InitSystem::Openrc, &files);
    let edges = output.lines().filter(|line| {
        ["unit:", "depends", "waits", "after", "provides", "- ", "+ "]
            .iter()
            .any(|it| line.starts_with(it) && !line.contains("so the unit is virtual"))
    });
    insta::assert_snapshot!(edges.collect::<Vec<_>>().join("\n"), @"
    unit: cache
    provides: cache
    unit: db
    provides: db
    depends-ms: net
    unit: dns
    provides: dns
    unit: firewall
    provides: firewall
    unit: net
    provides: net
    unit: proxy
    provides: proxy
    after: web
    unit: web
    provides: web, http
    depends-ms: db, net
    waits-for: cache
    after: dns, firewall
    + db:4:1 db depends on `db`, which it provides itself: this is dropped
    + web:7:1 no file provides `clock`, so the unit does not wait for it
    ");
}

#[test]
fn unpredictable_depend_words_are_reported() {
    let body = "depend() {\n\tkeyword -jail\n\t[ -e /x ] && need x\n\tneed -y !z \"*\"\n\
                \tneed $DBS ${LIST%x}\n\tif true; then\n\t\tneed w\n\tfi\n\tafter *\n}\n";
    insta::assert_snapshot!(script(body), @"
    type: virtual
    ---
    + 1:1 there is no `command`, so the unit is virtual
    - 3:1 `keyword` is not converted: it tells OpenRC where and how to run the
        service
    - 4:1 `depend` has a command that only a shell can run
    - 4:1 only a shell can evaluate whether `need` applies
    - 5:1 `need -y` does not name a single service
    - 5:1 `need !z` does not name a single service
    - 5:1 `need *` does not name a single service
    - 6:1 only a shell can evaluate the arguments of `need`
    - 6:1 only a shell can evaluate the arguments of `need`
    - 7:1 `depend` has a command that only a shell can run
    - 7:1 `depend` has a command that only a shell can run
    - 8:1 only a shell can evaluate whether `need` applies
    - 10:1 only a shell can evaluate the arguments of `after`
    ");
}

#[test]
fn condition_continues_on_the_next_line() {
    for condition in ["yesno \"$USE_DB\" &&\n\tneed db", "yesno \"$USE_DB\" && {\n\tneed db\n\t}"] {
        let output = script(&format!("depend() {{\n\t{condition}\n\tneed net\n}}\n"));
        assert!(
            output.contains("- 4:1 only a shell can evaluate whether `need` applies"),
            "{output}"
        );
        assert!(output.contains("no file provides `net`") && !output.contains("`db`"), "{output}");
    }
}

#[test]
fn text_after_an_open_quote_is_reported() {
    let daemon = "command=/bin/web\npidfile=/run/web.pid\n";
    let depend = "depend() {\n\tneed net\n\tkeyword -jail\n}\n";
    for (start, line) in [
        ("start_pre() {\n\tcat >/run/x <<EOF\nit's here\nEOF\n}\n", 4),
        ("start_pre() {\n\tcat >/run/x <<EOF\nall here\nEOF\n}\n", 5),
        ("name='web\n", 4),
        ("name=\"web\n", 4),
        ("name=`web\n", 4),
    ] {
        let output = script(&format!("{daemon}{start}{depend}")).replace("\n    ", " ");
        assert!(
            output.contains(&format!("- {line}:1 only a shell can evaluate the rest of `depend`")),
            "{output}"
        );
        let why = format!("- {line}:1 only a shell can evaluate the script from here on");
        assert!(output.contains(&why), "{output}");
        // Text before it is known.
        let output = script(&format!("{daemon}{depend}{start}"));
        assert!(output.contains("no file provides `net`"), "{output}");
    }
}

/// Text after a body without braces is read normally.
#[test]
fn function_without_braces_hides_nothing() {
    for body in [
        "reload() (\n\tkill 1\n)\ndepend() {\n\tneed net\n}\n",
        "reload()\n\n(\n\tkill 1\n)\ndepend() { need net; }\n",
    ] {
        let output = script(body).replace("\n    ", " ");
        assert!(output.contains("- 2:1 a line outside functions does more"), "{output}");
        assert!(output.contains("no file provides `net`"), "{output}");
    }
    let output = script("depend()\n(\n\tneed net\n)\n").replace("\n    ", " ");
    assert!(output.contains("- 2:1 only a shell can evaluate the rest of `depend`"), "{output}");
    // One closing brace too many, or one missing.
    for body in ["a()\n}\n}\ndepend() {\n\tneed net\n}\n", "depend() {\n\tneed net\n"] {
        let output = script(body).replace("\n    ", " ");
        assert!(output.contains("- 2:1") && output.contains("only OpenRC can run"), "{output}");
    }
}

/// By counting braces `depend` lies inside the unterminated function.
#[test]
fn depend_in_an_unterminated_function_is_unknown() {
    let output =
        script("start() {\n\techo {\n}\ndepend() {\n\tneed net\n}\nx() {\n\tcat <<EOF\nEOF\n}\n");
    let output = output.replace("\n    ", " ");
    assert!(output.contains("- 2:1 only a shell can evaluate the rest of `depend`"), "{output}");
}

#[test]
fn conditional_depend_is_unknown() {
    for (body, line) in [
        ("if true; then\ndepend() { need one; }\nfi\n", 3),
        ("if true; then depend() { need one; }; fi\n", 2),
        ("if a; then\n\tif b; then c; fi\n\tdepend() { need one; }\nfi\n", 4),
        ("if a; then b\nelif c; then depend()\n{\n\tneed one\n}\nfi\n", 3),
        ("case $A in\n\ta) b ;;\n\t*) depend() { need one; } ;;\nesac\n", 4),
        ("case $A in\n\ta)\n\t\tdepend ()\n\t\t{ need one; } ;;\nesac\n", 4),
        ("for a in b; do\n\tdepend() { need one; }\ndone\n", 3),
        ("true && depend() { need one; }\n", 2),
        ("true && {\n\tdepend() { need one; }\n}\n", 3),
        ("(\n\tdepend() { need one; }\n)\n", 3),
        ("function depend {\n\tneed one\n}\n", 2),
        ("function depend() {\n\tneed one\n}\n", 2),
        ("function depend\n{\n\tneed one\n}\n", 2),
    ] {
        let output = script(body).replace("\n    ", " ");
        assert!(
            output.contains(&format!("- {line}:1 only a shell can evaluate the rest of `depend`")),
            "{output}"
        );
        assert!(!output.contains("`one`"), "{body}\n{output}");
    }
    for body in ["if a; then b; fi\n", "case $A in\n\ta) b ;;\nesac\n", "{ a; }\n", "a && b\n"] {
        let output = script(&format!("{body}depend() {{\n\tneed one\n}}\n")).replace("\n    ", " ");
        assert!(output.contains("no file provides `one`"), "{body}\n{output}");
        assert!(!output.contains("evaluate `depend`"), "{body}\n{output}");
    }
}

#[test]
fn last_of_several_depends_counts() {
    let output = script("depend() {\n\tneed one\n}\ndepend() {\n\twant two\n}\n");
    assert!(
        output.contains("- 6:1 no file provides `two`") && !output.contains("`one`"),
        "{output}"
    );
    // A definition that only a shell can evaluate overrides nothing.
    let output = script("depend() { need one; }\nfunction depend {\n\twant two\n}\n");
    assert!(
        output.contains("- 2:1 no file provides `one`") && !output.contains("`two`"),
        "{output}"
    );
    let output = script("depend() { need one; }\ncat <<EOF\ndepend() { want two; }\nEOF\n");
    assert!(
        output.contains("- 2:1 no file provides `one`") && !output.contains("`two`"),
        "{output}"
    );
}

#[test]
fn depend_counts_up_to_the_unknown_line() {
    let output = script("depend() {\n\tneed net\n\tcat <<EOF\n\tneed db\nEOF\n\tneed dns\n}\n");
    assert!(output.contains("- 4:1 only a shell can evaluate the rest of `depend`"), "{output}");
    assert!(output.contains("no file provides `net`"), "{output}");
    assert!(!output.contains("`db`") && !output.contains("`dns`"), "{output}");
}

/// Regression: the braces ended the function, and its remaining lines were read outside of it.
#[test]
fn nested_braces_stay_inside_the_function() {
    let body = "reload() {\n\tif true; then {\n\t\tkill 1\n\t}\n\tfi\n}\n";
    let output = script(&format!("command=/bin/web\npidfile=/run/web.pid\n{body}"));
    assert!(output.contains("exec-start: /bin/web\n"), "{output}");
    let output = script("depend() {\n\tif x; then {\n\t\tneed db\n\t}\n\tfi\n\tneed net\n}\n");
    assert!(output.contains("no file provides `net`") && !output.contains("`db`"), "{output}");
}

//! What `depend` says, and how much of it can be told.

use fleet_core::graph::convert::InitSystem;

use super::super::told;
use super::script;

#[test]
fn words_of_depend_become_edges() {
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
    let told = told(InitSystem::Openrc, &files);
    let edges = told.lines().filter(|line| {
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
    + db:4:1 it depends on `db` itself
    + web:7:1 `clock` is provided by no file, so it is not waited for
    ");
}

#[test]
fn what_depend_says_and_nobody_can_tell_is_lost() {
    let body = "depend() {\n\tkeyword -jail\n\t[ -e /x ] && need x\n\tneed -y !z \"*\"\n\
                \tneed $DBS ${LIST%x}\n\tif true; then\n\t\tneed w\n\tfi\n\tafter *\n}\n";
    insta::assert_snapshot!(script(body), @"
    type: virtual
    ---
    + 1:1 there is no `command`, so the unit is virtual
    - 3:1 keywords say where and how OpenRC runs the service
    - 4:1 in `depend` something is done that only a shell can do
    - 4:1 whether `need` counts here, only a shell can tell
    - 5:1 `need -y` names no single service
    - 5:1 `need !z` names no single service
    - 5:1 `need *` names no single service
    - 6:1 what is behind `need`, only a shell can tell
    - 6:1 what is behind `need`, only a shell can tell
    - 7:1 in `depend` something is done that only a shell can do
    - 7:1 in `depend` something is done that only a shell can do
    - 8:1 whether `need` counts here, only a shell can tell
    - 10:1 what is behind `after`, only a shell can tell
    ");
}

#[test]
fn a_condition_holds_over_the_end_of_its_line() {
    for condition in ["yesno \"$USE_DB\" &&\n\tneed db", "yesno \"$USE_DB\" && {\n\tneed db\n\t}"] {
        let told = script(&format!("depend() {{\n\t{condition}\n\tneed net\n}}\n"));
        assert!(told.contains("- 4:1 whether `need` counts here, only a shell can tell"), "{told}");
        assert!(told.contains("`net` is provided") && !told.contains("`db`"), "{told}");
    }
}

#[test]
fn what_is_behind_a_quote_without_an_end_is_lost_aloud() {
    let daemon = "command=/bin/web\npidfile=/run/web.pid\n";
    let depend = "depend() {\n\tneed net\n\tkeyword -jail\n}\n";
    for (start, line) in [
        ("start_pre() {\n\tcat >/run/x <<EOF\nit's here\nEOF\n}\n", 4),
        ("start_pre() {\n\tcat >/run/x <<EOF\nall here\nEOF\n}\n", 5),
        ("name='web\n", 4),
        ("name=\"web\n", 4),
        ("name=`web\n", 4),
    ] {
        let told = script(&format!("{daemon}{start}{depend}")).replace("\n    ", " ");
        assert!(told.contains(&format!("- {line}:1 what `depend` says from here on")), "{told}");
        let why = format!("- {line}:1 what the script says from here on only a shell can tell");
        assert!(told.contains(&why), "{told}");
        // What is before it is known.
        let told = script(&format!("{daemon}{depend}{start}"));
        assert!(told.contains("`net` is provided by no file"), "{told}");
    }
}

/// What stands behind a body that is none in braces is read as what it is.
#[test]
fn a_function_without_braces_swallows_nothing() {
    for body in [
        "reload() (\n\tkill 1\n)\ndepend() {\n\tneed net\n}\n",
        "reload()\n\n(\n\tkill 1\n)\ndepend() { need net; }\n",
    ] {
        let told = script(body).replace("\n    ", " ");
        assert!(told.contains("- 2:1 a line outside of functions does more"), "{told}");
        assert!(told.contains("`net` is provided by no file"), "{told}");
    }
    let told = script("depend()\n(\n\tneed net\n)\n").replace("\n    ", " ");
    assert!(told.contains("- 2:1 what `depend` says from here on"), "{told}");
    // An end too many, or too few.
    for body in ["a()\n}\n}\ndepend() {\n\tneed net\n}\n", "depend() {\n\tneed net\n"] {
        let told = script(body).replace("\n    ", " ");
        assert!(told.contains("- 2:1") && told.contains("only OpenRC can run"), "{told}");
    }
}

/// `depend` stands in the function without an end for whoever counts braces.
#[test]
fn a_depend_in_a_function_without_an_end_is_lost_from_its_line_on() {
    let told =
        script("start() {\n\techo {\n}\ndepend() {\n\tneed net\n}\nx() {\n\tcat <<EOF\nEOF\n}\n");
    let told = told.replace("\n    ", " ");
    assert!(
        told.contains("- 2:1 what `depend` says from here on, only a shell can tell"),
        "{told}"
    );
}

#[test]
fn a_depend_that_need_not_be_there_is_lost() {
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
        let told = script(body).replace("\n    ", " ");
        assert!(told.contains(&format!("- {line}:1 what `depend` says from here on")), "{told}");
        assert!(!told.contains("`one`"), "{body}\n{told}");
    }
    for body in ["if a; then b; fi\n", "case $A in\n\ta) b ;;\nesac\n", "{ a; }\n", "a && b\n"] {
        let told = script(&format!("{body}depend() {{\n\tneed one\n}}\n")).replace("\n    ", " ");
        assert!(told.contains("`one` is provided by no file"), "{body}\n{told}");
        assert!(!told.contains("what `depend` says"), "{body}\n{told}");
    }
}

#[test]
fn of_several_depends_the_last_counts() {
    let told = script("depend() {\n\tneed one\n}\ndepend() {\n\twant two\n}\n");
    assert!(
        told.contains("- 6:1 `two` is provided by no file") && !told.contains("`one`"),
        "{told}"
    );
    // What only a shell can tell takes nothing back.
    let told = script("depend() { need one; }\nfunction depend {\n\twant two\n}\n");
    assert!(
        told.contains("- 2:1 `one` is provided by no file") && !told.contains("`two`"),
        "{told}"
    );
    let told = script("depend() { need one; }\ncat <<EOF\ndepend() { want two; }\nEOF\n");
    assert!(
        told.contains("- 2:1 `one` is provided by no file") && !told.contains("`two`"),
        "{told}"
    );
}

#[test]
fn what_depend_says_before_it_is_lost_counts_and_nothing_after_that() {
    let told = script("depend() {\n\tneed net\n\tcat <<EOF\n\tneed db\nEOF\n\tneed dns\n}\n");
    assert!(told.contains("- 4:1 what `depend` says from here on"), "{told}");
    assert!(told.contains("`net` is provided by no file"), "{told}");
    assert!(!told.contains("`db`") && !told.contains("`dns`"), "{told}");
}

/// They ended the function, so that the rest of it stood outside of any.
#[test]
fn braces_behind_a_word_are_braces_within_a_function() {
    let body = "reload() {\n\tif true; then {\n\t\tkill 1\n\t}\n\tfi\n}\n";
    let told = script(&format!("command=/bin/web\npidfile=/run/web.pid\n{body}"));
    assert!(told.contains("exec-start: /bin/web\n"), "{told}");
    let told = script("depend() {\n\tif x; then {\n\t\tneed db\n\t}\n\tfi\n\tneed net\n}\n");
    assert!(told.contains("`net` is provided by no file") && !told.contains("`db`"), "{told}");
}

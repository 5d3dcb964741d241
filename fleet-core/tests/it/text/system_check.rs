//! Errors of the units of several files together.

use fleet_core::graph::format::{FileRole, FileSet, HostResource, InitFile};

use super::output;

/// Returns all diagnostics of these files, and whether they form a graph.
fn check(files: &[(&str, &str)]) -> String {
    let file = |(name, source): &(&str, &str)| InitFile {
        name: (*name).to_owned(),
        role: FileRole::of(name).unwrap(),
        source: source.as_bytes().to_vec(),
    };
    let mut sources = FileSet::read(files.iter().map(file).collect());
    let graph = sources.graph();
    assert_eq!(graph.is_some(), sources.is_valid());
    let files = sources.files.iter().zip(&sources.diagnostics);
    files
        .map(|(file, it)| {
            output(&file.source, it).replace(" line ", &format!(" {} line ", file.name))
        })
        .collect()
}

fn unit(name: &str, lines: &str) -> String {
    format!("unit: {name}\ntype: virtual\nprovides: {name}\n{lines}\n")
}

#[test]
fn valid_files_form_a_graph() {
    let output = check(&[
        ("a.unit", &unit("a", "waits-for: b\n")),
        ("b.unit", &unit("b", "")),
        ("init.conf", "goal: a\n"),
    ]);
    assert_eq!(output, "");
}

#[test]
fn duplicate_names_and_targets_are_reported() {
    let files = [
        ("a.unit", unit("a", "") + &unit("b", "")),
        ("b.unit", unit("b", "") + "unit: c\ntype: virtual\nprovides: d, a\n"),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    insta::assert_snapshot!(check(&files), @"
    E12 b.unit line 1, column 7: the name `b` is already used in a.unit:5
    1 | unit: b
      |       ^
    help: give each unit a unique name
    E13 b.unit line 7, column 14: `a` is also provided by a in a.unit:1
    7 | provides: d, a
      |              ^
    help: choose one in the central settings: `alternatives: a=UNIT`
    ");
    // The provider can be chosen.
    let chosen = [("a.unit", &*unit("a", "")), ("init.conf", "alternatives: a=c\n")];
    insta::assert_snapshot!(check(&chosen), @"
    E29 init.conf line 1, column 15: `c` does not provide `a`
    1 | alternatives: a=c
      |               ^^^
    help: choose a unit that provides it, or remove the entry
    ");
    let text = unit("a", "") + "unit: c\ntype: virtual\nprovides: a, c\n";
    let chosen = [("a.unit", &*text), ("init.conf", "alternatives: a=c\ngoal: c\n")];
    assert_eq!(check(&chosen), "");
}

#[test]
fn invalid_alternative_is_reported_once() {
    let text = unit("a", "") + "unit: b\ntype: virtual\nprovides: b, a\n";
    let codes = |central: &str| {
        let output = check(&[("a.unit", &text), ("init.conf", central)]);
        let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let codes = output.lines().map(first).filter(|it| it.len() == 3 && it.starts_with('E'));
        codes.collect::<Vec<_>>()
    };
    for central in [
        "alternatives: a\n",
        "alternatives: a=b c\n",
        "alternatives: =b\n",
        "alternatives:\n",
        "alternatives: x=\n",
        "alternatives: a=b\x01\n",
        "alternative: a=b\n",
    ] {
        assert!(!["", "E13"].contains(&&*codes(central).join(" ")), "{central:?}");
        assert_eq!(codes(central).iter().filter(|it| *it == "E13").count(), 0, "{central:?}");
    }
    // The second line would be an alternative, if it could be read.
    let twice = codes("alternatives: b=b\nalternatives: a=b\n");
    assert_eq!(twice.len(), 1, "{twice:?}");
    for central in ["", "goal a\n", "max-starting: x\n"] {
        assert!(codes(central).contains(&"E13".to_owned()), "{central:?}");
    }
}

#[test]
fn missing_targets_and_cycles_are_reported() {
    let text = unit("db", "depends-on: wbe\nwaits-for: db, xyz\n")
        + &unit("web", "waits-for: cache\n")
        + &unit("cache", "depends-ms: web\npulls: nothing\nafter: nobody\n");
    insta::assert_snapshot!(check(&[("a.unit", &text)]), @"
    E16 a.unit line 4, column 13: no unit provides `wbe`
    4 | depends-on: wbe
      |             ^^^
    help: did you mean web?
    E15 a.unit line 5, column 12: the unit provides this target itself
    5 | waits-for: db, xyz
      |            ^^
    help: remove one of these dependencies
    E16 a.unit line 5, column 16: no unit provides `xyz`
    5 | waits-for: db, xyz
      |                ^^^
    help: remove it, or write a unit that provides it
    E17 a.unit line 15, column 13: dependency cycle: cache -depends-ms-> web -waits-for-> cache
    15 | depends-ms: web
       |             ^^^
    help: remove one of these dependencies
    E16 a.unit line 16, column 8: no unit provides `nothing`
    16 | pulls: nothing
       |        ^^^^^^^
    help: remove it, or write a unit that provides it
    ");
}

#[test]
fn targets_of_invalid_stanzas_are_not_missing() {
    let text = unit("a", "waits-for: b\n") + &unit("b", "colour: red\n");
    insta::assert_snapshot!(check(&[("a.unit", &text), ("init.conf", "goal: b\n")]), @"
    E02 a.unit line 9, column 1: there is no key `colour`
    9 | colour: red
      | ^^^^^^
    help: remove the line, or prefix a key of your own with x-
    ");
}

/// Files with an error of their own and each error of a file set.
const FLAWED: &str = "unit: a\ntype: oneshot\nrestart: always\nprovides: a\n\
                      depends-on: a, nowhere\nexec-start: /a\n\
                      unit: b\ntype: virtual\nprovides: b, a\nwaits-for: c\ncolour: red\n\
                      unit: c d\ntype: virtual\nprovides: c\nwaits-for: b\n\
                      unit: e\ntype: virtual\nprovides: e\n\
                      unit: e\ntype: virtual\nprovides: e, f\nwaits-for: f, g\n";

#[test]
fn invalid_stanzas_take_part_in_set_checks() {
    insta::assert_snapshot!(check(&[("a.unit", FLAWED), ("init.conf", "alternatives: f=e\n")]), @r"
    E24 a.unit line 3, column 10: a oneshot that has succeeded is not started again
    3 | restart: always
      |          ^^^^^^
    help: write on-failure
    E15 a.unit line 5, column 13: the unit provides this target itself
    5 | depends-on: a, nowhere
      |             ^
    help: remove one of these dependencies
    E16 a.unit line 5, column 16: no unit provides `nowhere`
    5 | depends-on: a, nowhere
      |                ^^^^^^^
    help: remove it, or write a unit that provides it
    E13 a.unit line 9, column 14: `a` is also provided by a in a.unit:1
    9 | provides: b, a
      |              ^
    help: choose one in the central settings: `alternatives: a=UNIT`
    E17 a.unit line 10, column 12: dependency cycle: b -waits-for-> an unnamed unit -waits-for-> b
    10 | waits-for: c
       |            ^
    help: remove one of these dependencies
    E02 a.unit line 11, column 1: there is no key `colour`
    11 | colour: red
       | ^^^^^^
    help: remove the line, or prefix a key of your own with x-
    E06 a.unit line 12, column 7: `c d` is not a valid unit name
    12 | unit: c d
       |       ^^^
    help: use ASCII letters, digits and _ - . @ : \
    E12 a.unit line 19, column 7: the name `e` is already used in a.unit:16
    19 | unit: e
       |       ^
    help: give each unit a unique name
    E15 a.unit line 22, column 12: the unit provides this target itself
    22 | waits-for: f, g
       |            ^
    help: remove one of these dependencies
    E16 a.unit line 22, column 15: no unit provides `g`
    22 | waits-for: f, g
       |               ^
    help: remove it, or write a unit that provides it
    ");
    // Every diagnostic after one correction was reported before.
    let mended = FLAWED.replace("restart: always\n", "").replace("colour: red\n", "");
    let codes = |text: &str| {
        let output = check(&[("a.unit", text)]);
        let lines = output.lines().filter(|it| it.starts_with('E')).map(|it| it[..3].to_owned());
        lines.collect::<Vec<_>>()
    };
    let (before, after) = (codes(FLAWED), codes(&mended));
    assert!(after.iter().all(|code| before.contains(code)), "{before:?} {after:?}");
}

#[test]
fn no_missing_targets_with_incomplete_provides() {
    let a = unit("a", "waits-for: db\n");
    let flawed = [
        "unit: b\ntype: virtual\n",
        "unit: b\ntype: virtual\nprovides:\n",
        "unit: b\ntype: virtual\nprovides: db x\n",
        "unit: b\ntype: virtual\nprovides: x\nprovides: db\n",
        "unit: b\ntype: virtual\nprovides: x,\n\n db\n",
        "unit: b\ntype: virtual\nprovides: x\n\n db\n",
        "unit: b\ntype: virtual\nprovides: x\nprovide: db\n",
        "unit: b\ntype: virtual\nprovides db\n",
        "unti: b\ntype: virtual\nprovides: db\n",
        "unit: b c\ntype: virtual\nprovides: db\n",
        "unit: a\ntype: virtual\nprovides: db\n",
    ];
    for text in flawed {
        let files = [("0.unit", text), ("a.unit", &a), ("init.conf", "goal: db\nmask: db\n")];
        let output =
            check(&files).replace("E28 init.conf line 1, column 7: the goal `db` is mas", "");
        assert!(
            output.contains("E0") || output.contains("E1") || output.contains("E2"),
            "{text}{output}"
        );
        assert!(!output.contains("no unit provides"), "{text}{output}");
    }
    let chosen = [("0.unit", flawed[2]), ("init.conf", "alternatives: db=b\n")];
    let output = check(&chosen);
    assert!(output.contains("E06") && !output.contains("does not provide"), "{output}");
    // A list with a duplicate target is still complete.
    let twice = "unit: b\ntype: virtual\nprovides: x, x\n";
    assert!(check(&[("0.unit", twice), ("a.unit", &a)]).contains("no unit provides `db`"));
}

#[test]
fn goal_errors_and_unneeded_units_are_reported() {
    let text = unit("a", "depends-on: b\n") + &unit("b", "") + &unit("c", "");
    insta::assert_snapshot!(check(&[("a.unit", &text), ("init.conf", "goal: a\n")]), @"
    W04 a.unit line 4, column 13: the goal stops whenever `b` stops
    4 | depends-on: b
      |             ^
    help: if that is not intended, write waits-for instead of depends-on
    W03 a.unit line 10, column 7: neither the goal nor any other unit needs this one
    10 | unit: c
       |       ^
    help: if the unit should run, make another one depend on one of its targets
    ");
    insta::assert_snapshot!(check(&[("a.unit", &text), ("init.conf", "goal: aa\n")]), @"
    E28 init.conf line 1, column 7: no unit provides the goal `aa`
    1 | goal: aa
      |       ^^
    help: choose a target that a unit provides
    ");
    let masked = "goal: a\nmask: a\n";
    insta::assert_snapshot!(check(&[("a.unit", &text), ("init.conf", masked)]), @"
    E28 init.conf line 1, column 7: the goal `a` is masked
    1 | goal: a
      |       ^
    help: choose another goal, or unmask it
    ");
}

/// An `after` edge does not need its dependency.
#[test]
fn unit_with_only_after_edges_is_unneeded() {
    let text = unit("a", "after: b\npulls: c\n") + &unit("b", "") + &unit("c", "");
    let output = check(&[("a.unit", &text), ("init.conf", "goal: a\n")]);
    let codes: Vec<&str> = output.lines().filter(|line| line.starts_with(['E', 'W'])).collect();
    let expected =
        "W03 a.unit line 7, column 7: neither the goal nor any other unit needs this one";
    assert_eq!(codes, [expected]);
}

#[test]
fn mask_without_provider_is_an_error() {
    let text = unit("a", "waits-for: cups\n") + &unit("cups", "");
    insta::assert_snapshot!(check(&[("a.unit", &text), ("init.conf", "mask: cusp, xyz\n")]), @"
    E29 init.conf line 1, column 7: no unit provides `cusp`
    1 | mask: cusp, xyz
      |       ^^^^
    help: did you mean cups?
    E29 init.conf line 1, column 13: no unit provides `xyz`
    1 | mask: cusp, xyz
      |             ^^^
    help: remove it, or write a unit that provides it
    ");
    assert_eq!(check(&[("a.unit", &text), ("init.conf", "mask: cups\n")]), "");
}

#[test]
fn missing_program_is_a_warning() {
    let source = "unit: a\ntype: oneshot\nprovides: a\nexec-start: /a b\nexec-stop: -/c\n";
    let (name, source) = ("a.unit".to_owned(), source.as_bytes().to_vec());
    let mut sources = FileSet::read(vec![InitFile { name, role: FileRole::Units, source }]);
    sources.check_host(|resource| *resource == HostResource::Program("/c".to_owned()));
    assert!(sources.graph().is_some());
    insta::assert_snapshot!(output(&sources.files[0].source, &sources.diagnostics[0]), @r"
    W05 line 4, column 13: `/a` is not an executable file here
    4 | exec-start: /a b
      |             ^^
    help: install the program, or correct the path
    ");
}

#[test]
fn errors_of_duplicate_names_name_the_first_stanza() {
    let text = unit("a", "colour: red\n") + &unit("a", "waits-for: b\n");
    insta::assert_snapshot!(check(&[("a.unit", &text)]), @"
    E02 a.unit line 4, column 1: there is no key `colour`
    4 | colour: red
      | ^^^^^^
    help: remove the line, or prefix a key of your own with x-
    E12 a.unit line 6, column 7: the name `a` is already used in a.unit:1
    6 | unit: a
      |       ^
    help: give each unit a unique name
    E16 a.unit line 9, column 12: no unit provides `b`
    9 | waits-for: b
      |            ^
    help: remove it, or write a unit that provides it
    ");
}

/// Regression: the units failed at each start, and the check found nothing.
#[test]
fn missing_accounts_and_paths_are_warnings() {
    let source = "unit: a\ntype: oneshot\nprovides: a\nexec-start: /c\nuser: u\ngroup: g\n\
                  groups: root, w\ndirectory: /d\nenv-file: /e\nenv-file: -/optional\n\n\
                  unit: b\ntype: oneshot\nprovides: b\nexec-start: /c\ndirectory: -/optional\n";
    let (name, source) = ("a.unit".to_owned(), source.as_bytes().to_vec());
    let mut sources = FileSet::read(vec![InitFile { name, role: FileRole::Units, source }]);
    sources.check_host(|resource| ["/c", "root"].contains(&resource.name()));
    assert!(sources.graph().is_some());
    insta::assert_snapshot!(output(&sources.files[0].source, &sources.diagnostics[0]), @"
    W09 line 5, column 7: there is no user `u` here
    5 | user: u
      |       ^
    help: create the user before the unit starts, or correct the name
    W09 line 6, column 8: there is no group `g` here
    6 | group: g
      |        ^
    help: create the group before the unit starts, or correct the name
    W09 line 7, column 15: there is no group `w` here
    7 | groups: root, w
      |               ^
    help: create the group before the unit starts, or correct the name
    W09 line 8, column 12: `/d` is not a directory here
    8 | directory: /d
      |            ^^
    help: create it before the unit starts, or put - before the path to use / without it
    W09 line 9, column 11: `/e` is not a file here
    9 | env-file: /e
      |           ^^
    help: create it before the unit starts, or put - before the path to ignore this
    ");
}

/// Regression: `check` accepted dependencies that can never be up.
#[test]
fn dependencies_that_are_never_up_are_warnings() {
    let text = unit("a", "depends-on: once\ndepends-ms: cups\nwaits-for: m\n")
        + &unit("b", "depends-ms: once\npulls: cups\ndepends-on: stays\n")
        + &unit("m", "")
        + "unit: c\ntype: virtual\nprovides: cups, print\n\
           unit: once\ntype: oneshot\nprovides: once\nremain: no\nexec-start: /a\n\
           unit: stays\ntype: oneshot\nprovides: stays\nexec-start: /a\n";
    insta::assert_snapshot!(check(&[("a.unit", &text), ("init.conf", "mask: print, m\n")]), @"
    W08 a.unit line 4, column 13: `once` completes without staying active (`remain: no`)
    4 | depends-on: once
      |             ^^^^
    help: write depends-ms, or `remain: yes` in once
    W08 a.unit line 5, column 13: this unit never starts, because `print` is masked
    5 | depends-ms: cups
      |             ^^^^
    help: unmask it, or write waits-for
    ");
}

/// Regression: the help was to write a unit that provides the target.
#[test]
fn name_of_a_unit_as_a_target_is_corrected() {
    let text =
        "unit: a\ntype: virtual\nprovides: ta, tb\n\n".to_owned() + &unit("b", "waits-for: a\n");
    let found = check(&[("a.unit", &text), ("init.conf", "goal: b\nmask: a\n")]);
    assert_eq!(
        found.matches("help: the unit a provides `ta`: write that target").count(),
        2,
        "{found}"
    );
}

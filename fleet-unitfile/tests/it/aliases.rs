//! Tests of unit names (aliases, masks, links, and the directories of each name) against systemd.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use fleet_unitfile::tree::UnitEntry;
use fleet_unitfile::{MergedUnit, UnitFile, UnitName, UnitTree};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::report_skipped;

const DIRECTORIES: [&str; 3] = ["/etc/units", "/run/units", "/lib/units"];

fn name(text: &str) -> UnitName {
    UnitName::parse(text).unwrap()
}

/// Builds a tree from entries written as `PATH`, `PATH!` for an empty file, or `PATH -> TARGET` for
/// a link.
fn tree(entries: &[String]) -> UnitTree {
    let text = "[Service]\nExecStart=/bin/true\n";
    let entries = entries.iter().map(|entry| match entry.split_once(" -> ") {
        Some((path, target)) => (path.to_owned(), UnitEntry::Link(target.to_owned())),
        None => match entry.strip_suffix('!') {
            Some(path) => (path.to_owned(), UnitEntry::File(UnitFile::parse("").unwrap())),
            None => (entry.clone(), UnitEntry::File(UnitFile::parse(text).unwrap())),
        },
    });
    UnitTree::new(&DIRECTORIES, entries)
}

/// Describes a unit in the format of systemd's own listing.
fn describe(unit: &MergedUnit) -> String {
    let Some(main) = unit.main() else { return "not found\n".to_owned() };
    if unit.is_masked() {
        return "masked\n".to_owned();
    }
    let mut text = format!("Unit: {}\n", unit.name());
    for alias in unit.aliases() {
        writeln!(text, "Alias: {alias}").unwrap();
    }
    writeln!(text, "Fragment Path: {}", main.path).unwrap();
    for part in &unit.parts()[1..] {
        writeln!(text, "DropIn Path: {}", part.path).unwrap();
    }
    for dependency in unit.dependencies() {
        writeln!(text, "{:?}: {}", dependency.kind, dependency.unit).unwrap();
    }
    text
}

#[test]
fn unit_merges_the_files_of_all_its_names() {
    let entries = [
        "/lib/units/a.service",
        "/etc/units/b.service -> ../../lib/units/a.service",
        "/run/units/c.service -> b.service",
        "/lib/units/c.service",
        "/lib/units/a.service.d/1.conf",
        "/etc/units/b.service.d/2.conf",
        "/etc/units/b.service.d/1.conf",
        "/lib/units/c.service.d/3.conf -> /opt/three.conf",
        "/opt/three.conf",
        "/lib/units/service.d/4.conf",
        "/etc/units/c.service.d/4.conf -> /dev/null",
        "/lib/units/service.d/5.conf!",
        "/lib/units/a.service.wants/x.service -> ../x.service",
        "/lib/units/c.service.requires/y.service -> /nowhere",
        "/lib/units/a.service.wants/z@.service -> ../z@.service",
        "/lib/units/a.service.wants/off.service -> ../off.service",
        "/etc/units/b.service.wants/off.service -> /dev/null",
        "/lib/units/a.service.wants/b.service -> ../b.service",
        "/lib/units/a.service.wants/file.service",
    ];
    let tree = tree(&entries.map(str::to_owned));
    let expected = "Unit: a.service\nAlias: b.service\nAlias: c.service\n\
                    Fragment Path: /lib/units/a.service\n\
                    DropIn Path: /lib/units/a.service.d/1.conf\n\
                    DropIn Path: /etc/units/b.service.d/2.conf\n\
                    DropIn Path: /lib/units/c.service.d/3.conf\n\
                    Requires: y.service\n\
                    Wants: off.service\nWants: x.service\nWants: z@a.service\n";
    for wanted in ["a.service", "b.service", "c.service"] {
        assert_eq!(describe(&tree.unit(&name(wanted))), expected, "{wanted}");
    }
    let names: Vec<String> = tree.names().map(|name| name.to_string()).collect();
    assert_eq!(names, ["a.service", "b.service", "c.service"]);
}

#[test]
fn instances_inherit_the_aliases_of_their_template() {
    let entries = [
        "/lib/units/a@.service",
        "/lib/units/b@.service -> a@.service",
        "/lib/units/c@7.service -> a@.service",
        "/lib/units/d@7.service -> a@8.service",
        "/lib/units/b@.service.d/b.conf",
        "/lib/units/c@7.service.d/c.conf",
        "/lib/units/a@.service.wants/w@.service -> x",
    ];
    let tree = tree(&entries.map(str::to_owned));
    let of = |wanted: &str| describe(&tree.unit(&name(wanted)));
    let expected = "Unit: a@7.service\nAlias: b@7.service\n\
                    Fragment Path: /lib/units/a@.service\n\
                    DropIn Path: /lib/units/b@.service.d/b.conf\nWants: w@7.service\n";
    let of_seven = expected
        .replace("b@7.service\n", "b@7.service\nAlias: c@7.service\n")
        .replace("b.conf\n", "b.conf\nDropIn Path: /lib/units/c@7.service.d/c.conf\n");
    assert_eq!(of("a@7.service"), of_seven);
    assert_eq!(of("c@7.service"), of_seven);
    // By an alias of the template, systemd does not find the aliases of the instance.
    assert_eq!(of("b@7.service"), expected);
    // An alias of one instance only, which other instances do not have.
    assert_eq!(of("b@8.service"), expected.replace('7', "8"));
    // Another instance is not an alias of this one.
    assert_eq!(of("d@7.service"), "not found\n");
}

#[test]
fn instance_alias_follows_the_file_of_the_instance() {
    let alias = "/lib/units/a@i.service -> e@.service";
    for (entries, wanted, expected) in [
        (
            [alias, "/lib/units/e@.service", "/run/units/e@i.service"],
            "e@i.service",
            "Unit: e@i.service\nAlias: a@i.service\nFragment Path: /run/units/e@i.service\n",
        ),
        (
            [alias, "/etc/units/e@.service", "/lib/units/e@i.service -> /dev/null"],
            "a@i.service",
            "Unit: a@i.service\nAlias: e@i.service\nFragment Path: /etc/units/e@.service\n",
        ),
    ] {
        let tree = tree(&entries.map(str::to_owned));
        assert_eq!(describe(&tree.unit(&name(wanted))), expected);
    }
}

#[test]
fn masks_links_and_missing_files() {
    let entries = [
        "/etc/units/a.service -> /dev/null",
        "/lib/units/a.service",
        "/etc/units/b.service!",
        "/lib/units/c.service -> b.service",
        "/lib/units/d.service -> /opt/other",
        "/opt/other -> more/last",
        "/opt/more/last",
        "/lib/units/e.service -> /opt/nothing",
        "/etc/units/f.socket -> f.service",
        "/lib/units/f.socket",
        "/lib/units/g.service -> h.service",
        "/lib/units/h.service -> g.service",
        "/etc/units/i.service -> i.service",
        "/lib/units/i.service",
        "/lib/units/j.mount",
        "/lib/units/k.mount -> j.mount",
    ];
    let tree = tree(&entries.map(str::to_owned));
    for (wanted, expected) in [
        ("a.service", "masked\n"),
        ("b.service", "masked\n"),
        ("c.service", "masked\n"),
        ("d.service", "Unit: d.service\nFragment Path: /lib/units/d.service\n"),
        ("e.service", "not found\n"),
        ("f.socket", "Unit: f.socket\nFragment Path: /lib/units/f.socket\n"),
        ("g.service", "not found\n"),
        ("i.service", "Unit: i.service\nFragment Path: /lib/units/i.service\n"),
        ("k.mount", "not found\n"),
        ("z.service", "not found\n"),
    ] {
        assert_eq!(describe(&tree.unit(&name(wanted))), expected, "{wanted}");
    }
}

/// Generates units, aliases and masks of a few names, with drop-ins and dependencies.
///
/// The directories of different names contain files with different names. Otherwise, the result
/// would depend on the order of aliases, which systemd leaves undefined.
fn entries() -> impl Strategy<Value = Vec<String>> {
    let directory = || prop::sample::select(DIRECTORIES.to_vec());
    let names = ["a-b", "c", "d", "a-b@", "a-b@i", "e@", "e@i"];
    let unit = || prop::sample::select(names.to_vec());
    let kind = prop::sample::select(vec!["file", "file", "alias", "alias", "mask", "empty", "out"]);
    let main = (directory(), unit(), kind, directory(), unit()).prop_map(
        |(directory, unit, kind, other_directory, other)| {
            let path = format!("{directory}/{unit}.service");
            match kind {
                "file" => path,
                "alias" => format!("{path} -> ../..{other_directory}/{other}.service"),
                "mask" => format!("{path} -> /dev/null"),
                "empty" => format!("{path}!"),
                _ => format!("{path} -> ../../outside/file"),
            }
        },
    );
    let folders = ["a-b", "c", "d", "a-b@", "a-b@i", "e@", "e@i", "a-", "a-@", "a-@i", "service"];
    let beside = (directory(), prop::sample::select(folders.to_vec()), 0..3, 0..8).prop_map(
        |(directory, folder, number, kind)| {
            let (own, folder) = match folder {
                // A directory shared by all units has the lowest precedence.
                "service" => ("c".to_owned(), "service".to_owned()),
                _ => (
                    folder.replace(['-', '@'], "").replace("ai", "ab"),
                    format!("{folder}.service"),
                ),
            };
            let link = |suffix: &str, target: &str| {
                format!("{directory}/{folder}.{suffix}/w-{own}{number}.service -> {target}")
            };
            match kind {
                0 => link("wants", "../x.service"),
                1 => link("requires", "/nowhere"),
                2 => link("wants", "/dev/null"),
                3 => format!("{directory}/{folder}.d/{own}{number}.conf -> /dev/null"),
                4 => format!("{directory}/{folder}.wants/w-{number}@.service -> x@.service"),
                _ => format!("{directory}/{folder}.d/{own}{number}.conf"),
            }
        },
    );
    let all = (prop::collection::vec(main, 1..7), prop::collection::vec(beside, 0..10));
    all.prop_map(|(main, beside)| {
        let path = |entry: &String| entry.split([' ', '!']).next().unwrap_or_default().to_owned();
        let all = main.into_iter().chain(beside).map(|entry| (path(&entry), entry));
        let mut all: Vec<String> = all.collect::<BTreeMap<_, _>>().into_values().collect();
        all.push("/outside/file".to_owned());
        all
    })
}

#[expect(clippy::disallowed_methods, reason = "the test hands files to another program")]
fn write(top: &Path, entries: &[String]) {
    for entry in entries {
        let (path, target) = entry.split_once(" -> ").unwrap_or((entry, ""));
        let file = top.join(&path.trim_end_matches('!')[1..]);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = if entry.ends_with('!') { "" } else { "[Service]\nExecStart=/bin/true\n" };
        match target {
            "" if path.contains(".d/") => std::fs::write(file, "[Service]\nNice=1\n").unwrap(),
            "" => std::fs::write(file, text).unwrap(),
            _ => std::os::unix::fs::symlink(target, file).unwrap(),
        }
    }
}

/// Returns systemd's description of a unit, in the format of [`describe`]. `None` if systemd is not
/// installed.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn describe_by_systemd(top: &Path, unit: &str) -> Option<String> {
    let path = DIRECTORIES.map(|it| format!("{}{it}", top.display())).join(":");
    let mut command = std::process::Command::new("systemd-analyze");
    command.args(["verify", "--man=no", unit]).current_dir(top);
    let output = command.env("SYSTEMD_UNIT_PATH", path).env("SYSTEMD_LOG_LEVEL", "debug").output();
    let output = output.ok()?;
    let (report, listing) =
        (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    if report.contains(" is masked.") {
        return Some("masked\n".to_owned());
    }
    let listing = listing.replace(&top.display().to_string(), "");
    let blocks = listing.split("\t-> Unit ").skip(1).map(|block| {
        let (id, rest) = block.split_once(":\n").unwrap();
        let of = |word: &str| {
            let lines = rest.lines().filter_map(|line| line.trim().strip_prefix(word));
            let values = lines.map(|it| it.split(" (").next().unwrap_or_default());
            values.map(|value| format!("{word}{value}\n")).collect::<Vec<String>>()
        };
        let sorted = |word: &str| {
            let mut lines = of(word);
            lines.sort();
            lines.concat()
        };
        let of_links = |word: &str| {
            let lines = sorted(word);
            let links = lines.lines().filter(|line| line.contains(": w-"));
            links.fold(String::new(), |text, line| text + line + "\n")
        };
        let text = [
            format!("Unit: {id}\n"),
            sorted("Alias: "),
            of("Fragment Path: ").concat(),
            of("DropIn Path: ").concat(),
            of_links("Requires: "),
            of_links("Wants: "),
        ];
        text.concat()
    });
    let is_wanted = |block: &String| {
        let names =
            block.lines().filter(|it| it.starts_with("Unit: ") || it.starts_with("Alias: "));
        names.into_iter().any(|line| line.ends_with(&format!(" {unit}")))
    };
    let found = blocks.into_iter().filter(is_wanted).find(|it| it.contains("Fragment Path: "));
    Some(found.unwrap_or_else(|| "not found\n".to_owned()))
}

#[test]
fn systemd_resolves_the_same_names_links_and_masks() {
    let mut runner = TestRunner::deterministic();
    let mut loaded = 0;
    for _ in 0..80 {
        let top = tempfile::tempdir().unwrap();
        let entries = entries().new_tree(&mut runner).unwrap().current();
        write(top.path(), &entries);
        let tree = tree(&entries);
        for wanted in ["a-b.service", "c.service", "a-b@i.service", "e@i.service"] {
            let Some(theirs) = describe_by_systemd(top.path(), wanted) else {
                return report_skipped("systemd-analyze");
            };
            loaded += usize::from(theirs.starts_with("Unit: "));
            // systemd lists masked drop-ins, but reads nothing from them.
            let masked = |line: &&str| {
                let path = line.strip_prefix("DropIn Path: ");
                path.is_some_and(|path| entries.contains(&format!("{path} -> /dev/null")))
            };
            let theirs = theirs.lines().filter(|line| !masked(line));
            let theirs = theirs.fold(String::new(), |text, line| text + line + "\n");
            assert_eq!(describe(&tree.unit(&name(wanted))), theirs, "{wanted} in {entries:#?}");
        }
    }
    assert!(loaded > 40, "systemd lists units as this test knows it: {loaded}");
}

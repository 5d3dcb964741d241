//! Drop-ins: selection and order, compared with systemd.

use std::collections::BTreeMap;
use std::path::Path;

use fleet_unitfile::tree::drop_in_directories;
use fleet_unitfile::{MergedUnit, UnitFile, UnitName};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::report_skipped;

const DIRECTORIES: [&str; 3] = ["/etc/units", "/run/units", "/lib/units"];

fn name(text: &str) -> UnitName {
    UnitName::parse(text).unwrap()
}

/// Returns the paths of the files from which a unit is merged. In `paths`, a path that ends in `!`
/// is an empty file.
fn selected(unit: &str, paths: &[&str]) -> Vec<String> {
    let files = paths.iter().map(|path| match path.strip_suffix('!') {
        Some(path) => (path.to_owned(), UnitFile::parse("").unwrap()),
        None => ((*path).to_owned(), UnitFile::parse(format!("[Unit]\nX={path}\n")).unwrap()),
    });
    let unit = MergedUnit::select(name(unit), &DIRECTORIES, files);
    unit.parts().iter().map(|part| part.path.clone()).collect()
}

#[test]
fn drop_in_directories_of_a_name() {
    for (unit, expected) in [
        ("a.service", &["a.service.d"][..]),
        ("a@.service", &["a@.service.d"]),
        ("a-b@.service", &["a-b@.service.d", "a-.service.d"]),
        ("a-b-c.slice", &["a-b-c.slice.d", "a-b-.slice.d", "a-.slice.d"]),
        ("a-b--c.mount", &["a-b--c.mount.d", "a-b--.mount.d", "a-b-.mount.d", "a-.mount.d"]),
        ("a-b-.socket", &["a-b-.socket.d", "a-.socket.d"]),
        ("-a-b.target", &["-a-b.target.d", "-a-.target.d"]),
        (
            "a-b-c@i-j.timer",
            &[
                "a-b-c@i-j.timer.d",
                "a-b-c@.timer.d",
                "a-b-.timer.d",
                "a-.timer.d",
                "a-b-@i-j.timer.d",
                "a-b-@.timer.d",
                "a-@i-j.timer.d",
                "a-@.timer.d",
            ],
        ),
    ] {
        assert_eq!(drop_in_directories(&name(unit)), expected, "{unit}");
    }
}

#[test]
fn drop_ins_are_read_in_file_name_order() {
    let paths = [
        "/lib/units/service.d/20.conf",
        "/etc/units/a.service.d/30.conf",
        "/lib/units/a.service.d/10.conf",
        "/lib/units/a.service",
        "/lib/units/a.service.d/9.conf",
        "/lib/units/a.service.d/note.txt",
        "/lib/units/b.service.d/10.conf",
        "/elsewhere/a.service.d/40.conf",
        "/lib/units/a.service.d/deeper/10.conf",
    ];
    let expected = [
        "/lib/units/a.service",
        "/lib/units/a.service.d/10.conf",
        "/lib/units/service.d/20.conf",
        "/etc/units/a.service.d/30.conf",
        "/lib/units/a.service.d/9.conf",
    ];
    assert_eq!(selected("a.service", &paths), expected);
}

#[test]
fn first_of_same_named_drop_ins_counts_even_if_empty() {
    for (paths, expected) in [
        (
            &["/lib/units/a-b.service.d/1.conf", "/etc/units/a-.service.d/1.conf"][..],
            Some("/etc/units/a-.service.d/1.conf"),
        ),
        (
            &["/etc/units/a-.service.d/1.conf", "/etc/units/a-b.service.d/1.conf"],
            Some("/etc/units/a-b.service.d/1.conf"),
        ),
        (
            &["/etc/units/service.d/1.conf", "/lib/units/a-.service.d/1.conf"],
            Some("/lib/units/a-.service.d/1.conf"),
        ),
        (&["/lib/units/a-b.service.d/1.conf", "/etc/units/a-b.service.d/1.conf!"], None),
        (
            &["/lib/units/a-b.service.d/1.conf!", "/etc/units/a-b.service.d/1.conf"],
            Some("/etc/units/a-b.service.d/1.conf"),
        ),
    ] {
        assert_eq!(selected("a-b.service", paths), Vec::from_iter(expected), "{paths:?}");
    }
}

#[test]
fn instance_uses_its_own_file_or_the_template() {
    let template = "/etc/units/a@.service";
    assert_eq!(selected("a@1.service", &[template]), [template]);
    let own = "/lib/units/a@1.service";
    assert_eq!(selected("a@1.service", &[template, own]), [own]);
    assert_eq!(selected("a@1.service", &[own, "/run/units/a@1.service", template]).len(), 1);
}

#[test]
fn options_have_their_file_and_resets_span_files() {
    let file = |path: &str, text: &str| (path.to_owned(), UnitFile::parse(text).unwrap());
    let files = [
        file("/lib/units/a.service", "[Service]\nNice=1\nUser=somebody\nExecStart=/bin/a\n"),
        file("/etc/units/a.service.d/b.conf", "[Service]\nExecStart=\nExecStart=/bin/b\n"),
    ];
    let unit = MergedUnit::select(name("a.service"), &DIRECTORIES, files);
    let effective: Vec<_> = unit.effective("Service", "ExecStart").collect();
    assert_eq!(effective.len(), 1);
    assert_eq!(
        (effective[0].path, effective[0].option.value()),
        ("/etc/units/a.service.d/b.conf", "/bin/b")
    );
    assert_eq!(unit.get("Service", "Nice").unwrap().path, "/lib/units/a.service");
    assert_eq!(
        unit.to_unit_file().source_str(),
        Some("[Service]\nNice=1\nUser=somebody\nExecStart=/bin/a\nExecStart=\nExecStart=/bin/b\n")
    );
    assert!(!unit.is_masked());
    let masked = [file("/etc/units/a.service", "")];
    assert!(MergedUnit::select(name("a.service"), &DIRECTORIES, masked).is_masked());
}

/// Generates drop-in paths below the three directories. The flag of each path is true if the file
/// is empty.
fn tree() -> impl Strategy<Value = BTreeMap<String, bool>> {
    let directory = prop::sample::select(DIRECTORIES.to_vec());
    let drop_in = prop::sample::select(vec![
        "service.d",
        "a-b@i-j.service.d",
        "a-b@.service.d",
        "a-.service.d",
        "a-@.service.d",
        "a-@i-j.service.d",
        "a-b.service.d",
        "a-b-.service.d",
        "a-b@i-.service.d",
        "b.service.d",
    ]);
    let file = prop::sample::select(vec!["1.conf", "10.conf", "2.conf", "Z.conf", "a.txt"]);
    let path = (directory, drop_in, file).prop_map(|(a, b, c)| format!("{a}/{b}/{c}"));
    prop::collection::btree_map(path, prop::bool::weighted(0.2), 0..20)
}

/// Returns the paths of the files that systemd reads, in order. Each file contains its path in an
/// invalid value, so that systemd reports the path in a warning. `None` if systemd is not
/// installed.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn read_by_systemd(top: &Path, unit: &str) -> Option<Vec<String>> {
    let path = DIRECTORIES.map(|it| format!("{}{it}", top.display())).join(":");
    let mut command = std::process::Command::new("systemd-analyze");
    command.args(["verify", "--man=no", unit]).env("SYSTEMD_UNIT_PATH", path).current_dir(top);
    let report = String::from_utf8(command.output().ok()?.stderr).unwrap();
    let reported = report.lines().filter_map(|line| line.split_once("ignoring: at "));
    Some(reported.map(|(_, path)| path.to_owned()).collect())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test hands files to another program")]
fn systemd_reads_the_same_drop_ins() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..40 {
        let top = tempfile::tempdir().unwrap();
        let mut tree = tree().new_tree(&mut runner).unwrap().current();
        // A drop-in that always applies shows whether systemd's warnings have the expected wording.
        tree.insert("/etc/units/a-b@i-j.service.d/0.conf".to_owned(), false);
        let text = |path: &str| format!("[Service]\nKillMode=at {path}\n");
        for (path, is_empty) in &tree {
            let file = top.path().join(&path[1..]);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, if *is_empty { String::new() } else { text(path) }).unwrap();
        }
        let main = top.path().join("lib/units/a-b@.service");
        std::fs::create_dir_all(main.parent().unwrap()).unwrap();
        std::fs::write(main, "[Service]\nExecStart=/bin/true\n").unwrap();
        let read = read_by_systemd(top.path(), "a-b@i-j.service");
        let Some(read) = read.filter(|read| !read.is_empty()) else {
            return report_skipped("systemd-analyze");
        };
        let marked = tree.iter().map(|(path, is_empty)| match is_empty {
            true => format!("{path}!"),
            false => path.clone(),
        });
        let marked: Vec<String> = marked.collect();
        let paths: Vec<&str> = marked.iter().map(String::as_str).collect();
        assert_eq!(selected("a-b@i-j.service", &paths), read, "{tree:?}");
    }
}

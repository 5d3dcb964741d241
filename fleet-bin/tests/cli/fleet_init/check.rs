//! Findings of `check` about the machine and the file system.

use super::{folder, run};

/// Regression: `check` reported `ok: 0 units` for such directories.
#[test]
fn check_fails_without_any_unit() {
    let folder = folder();
    let units = folder.path().join("s");
    std::fs::create_dir_all(units.join("dir.unit")).unwrap();
    let printed = run(folder.path(), "check s/dir.unit");
    insta::assert_snapshot!(printed, @"
    exit 1
    ---
    fleet-init: the files contain no units
    help: write units into a file whose name ends in .unit
    ");
    std::fs::write(units.join("web.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    let printed = run(folder.path(), "check s");
    insta::assert_snapshot!(printed, @"
    exit 1
    ---
    s/dir.unit: skipped: a directory; its files are not read
    s/web.service: skipped: a systemd unit file; fleet-init convert turns it into a stanza
    fleet-init: the files contain no units
    help: write units into a file whose name ends in .unit
    help: skipped these systemd units: s/web.service
    help: convert these units with `fleet-init convert --from systemd s`
    ");
}

/// Regression: a dangling link was the only error that `check` reported.
#[test]
fn check_reports_dangling_links_with_other_errors() {
    let folder = folder();
    let units = folder.path().join("s");
    std::fs::create_dir(&units).unwrap();
    std::os::unix::fs::symlink("/no/such", units.join("d.unit")).unwrap();
    let text = "unit: a\ntype: virtul\nprovides: a\nwaits-for: in-d\n";
    std::fs::write(units.join("x.unit"), text).unwrap();
    insta::assert_snapshot!(run(folder.path(), "check s"), @"
    exit 1
    s/x.unit:2:7: there is no type `virtul` [E07]
    2 | type: virtul
      |       ^^^^^^
    help: did you mean virtual?
    s/d.unit:1:1: cannot read s/d.unit: No such file or directory (os error 2) [E32]
    help: make it readable, or remove it
    ---
    fleet-init: the files have 2 errors
    ");
    let printed = run(folder.path(), "run s --goal a --state-dir d --socket k");
    assert!(printed.starts_with("exit 1\n") && printed.contains("[E32]"), "{printed}");
}

#[test]
fn check_looks_up_accounts_and_directories() {
    let folder = folder();
    let text = "unit: a\ntype: oneshot\nprovides: a\nexec-start: /bin/sh\nuser: root\n\
                group: no-such-group\ndirectory: /no/such\n";
    std::fs::write(folder.path().join("a.unit"), text).unwrap();
    let printed = run(folder.path(), "check a.unit");
    assert!(printed.starts_with("exit 0\n") && !printed.contains("root"), "{printed}");
    for text in ["no group `no-such-group` here [W09]", "`/no/such` is not a directory here [W09]"]
    {
        assert!(printed.contains(text), "{printed}");
    }
}

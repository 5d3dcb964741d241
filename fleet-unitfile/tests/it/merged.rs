//! Checks of units with their drop-ins, and the file of each finding.

use fleet_unitfile::check::FindingCode;
use fleet_unitfile::tree::UNIT_DIRECTORIES;
use fleet_unitfile::{MergedUnit, Severity, UnitFile, UnitName};

const MAIN: &str = "/usr/lib/systemd/system/web.service";

/// Merges a unit from a main file and drop-ins. If `main` is empty, the unit has only drop-ins.
fn unit(main: &str, drop_ins: &[&str]) -> MergedUnit {
    let file = |text: &str| UnitFile::parse_collecting(text).0;
    let main = (!main.is_empty()).then(|| (MAIN.to_owned(), file(main)));
    let drop_ins = drop_ins.iter().enumerate().map(|(number, text)| {
        (format!("/etc/systemd/system/web.service.d/{number}.conf"), file(text))
    });
    let name = UnitName::parse("web.service").unwrap();
    MergedUnit::select(name, &UNIT_DIRECTORIES, main.into_iter().chain(drop_ins))
}

/// Returns the codes of all findings, each with its file name and line.
fn describe(main: &str, drop_ins: &[&str]) -> String {
    let unit = unit(main, drop_ins);
    let findings = unit.check();
    let reported = findings.iter().map(|it| {
        let file = it.file().rsplit('/').next().unwrap();
        format!("{file}:{} {}", it.location().line, it.code())
    });
    reported.collect::<Vec<_>>().join(", ")
}

#[test]
fn unit_rules_apply_to_the_merged_unit() {
    let web = "[Service]\nExecStart=/bin/web\n";
    for (main, drop_ins, expected) in [
        (web, &[][..], ""),
        ("[Service]\nUser=web\n", &[], "web.service:1 U0401"),
        ("[Service]\nUser=web\n", &[web], ""),
        ("[Unit]\nDescription=Web\n", &["[Service]\nUser=web\n"], "web.service:1 U0401"),
        (web, &["[Service]\nExecStart=\n"], "web.service:1 U0401"),
        (web, &["[Service]\nExecStart=\nExecStart=/bin/b\n"], ""),
        (web, &[web], "0.conf:2 U0402"),
        (web, &[web, "[Service]\nType=oneshot\n"], ""),
        (web, &["[Service]\nType=oneshot\n", "[Service]\nRestart=always\n"], "1.conf:2 U0404"),
        (web, &["[Service]\nType=dbus\n"], "0.conf:2 U0403"),
        (web, &["[Service]\nType=dbus\n", "[Service]\nBusName=org.a.Web\n"], ""),
        // An invalid value is reported once, in its own file.
        (web, &["[Service]\nNice=high\n", "[Servcie]\nNice=1\n"], "0.conf:2 U0204, 1.conf:1 U0101"),
        // Drop-ins may set an option again; in one file that is reported.
        ("[Service]\nExecStart=/bin/web\nNice=1\n", &["[Service]\nNice=2\n"], ""),
        (web, &["[Service]\nNice=2\nNice=3\n"], "0.conf:3 U0106"),
        // After an error systemd skips the rest of the drop-in, so it does not set the type.
        (
            web,
            &["[Service]\nExecStart=/bin/b\nExecStop=b/c\nType=oneshot\n"],
            "0.conf:2 U0402, 0.conf:3 U0301",
        ),
        (
            web,
            &["[Service]\nType=oneshot\nExecStart=/bin/b\nExecStop=b/c\nExecStart=/bin/d\n"],
            "0.conf:4 U0301",
        ),
    ] {
        assert_eq!(describe(main, drop_ins), expected, "{main:?} and {drop_ins:?}");
    }
}

#[test]
fn lone_drop_in_and_masked_unit_miss_no_options() {
    assert_eq!(describe("", &["[Service]\nUser=web\nExecStart=/bin/a\nExecStart=/bin/b\n"]), "");
    assert_eq!(describe("", &["[Service]\nUser=-1\n"]), "0.conf:2 U0304");
    let empty = (MAIN.to_owned(), UnitFile::parse("").unwrap());
    let name = UnitName::parse("web.service").unwrap();
    let masked = MergedUnit::select(name, &UNIT_DIRECTORIES, [empty]);
    assert!(masked.is_masked() && masked.check().is_empty());
}

#[test]
fn unit_without_drop_ins_has_the_findings_of_its_file() {
    let name = UnitName::parse("web.service").unwrap();
    for source in [
        "[Service]\nExecStart=bin/web\nNice=x\nRestrat=no\n[Foo]\n",
        "[Service]\nType=dbus\nExecStart=/bin/a \\\n  # why\n  b ; /c\n[Unit]\nAfter=a@.service\n",
        "[Service]\nExecStart=/bin/a\nEnvironment=\"A=b\n",
        "[Service]\nType=oneshot\nRestart=always\nExecStart=/bin/a\\",
    ] {
        let unit = unit(source, &[]);
        let merged: Vec<_> = unit.check().into_iter().map(|it| it.in_file(name.as_str())).collect();
        assert_eq!(merged, UnitFile::parse_collecting(source).0.check(&name), "{source}");
    }
}

#[test]
fn finding_is_rendered_with_its_file() {
    let unit = unit("[Service]\nExecStart=/bin/web\n", &["# Ours.\n[Service]\nUser=-1\n"]);
    let findings = unit.check();
    assert_eq!(findings[0].code(), FindingCode::User);
    assert_eq!(findings[0].severity(), Severity::Error);
    insta::assert_snapshot!(findings[0].render(), @r#"
    error[U0304]: User: "-1" is a negative number
     --> /etc/systemd/system/web.service.d/0.conf:3:6
      |
    3 | User=-1
      |      ^^
      = help: write a name such as www-data, or a number
    "#);
    let one_line = "/etc/systemd/system/web.service.d/0.conf: line 3, column 6: User: \"-1\" \
                    is a negative number: write a name such as www-data, or a number";
    assert_eq!(findings[0].to_string(), one_line);
}

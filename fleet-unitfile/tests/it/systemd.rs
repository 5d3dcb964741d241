//! Compares parsed sources with an installed systemd.

use std::fmt::Write as _;
use std::path::Path;

use fleet_unitfile::{DiagnosticKind, UnitFile};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::report_skipped;

/// The prefix after which systemd prints an invalid value.
const IGNORED_PREFIX: &str = "ignoring: ";

/// Generates sources from syntactically significant pieces; no value is a kill mode.
fn source() -> impl Strategy<Value = String> {
    let pieces = [
        "[Service]",
        "[Unit]",
        "KillMode=v",
        "KillMode=",
        "KillMode",
        "=",
        "\\",
        "\\\\",
        "#",
        ";",
        " ",
        "\t",
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\r",
        "\0",
        "\\\n",
        "\\\n#c\n",
        "\\ \n",
        "ä",
        "\u{a0}",
        "\"",
        "'",
        "w",
        "\u{b}",
    ];
    let start = prop::sample::select(vec!["", "\u{feff}"]);
    let rest = vec(prop::sample::select(pieces.to_vec()), 1..24);
    (start, rest).prop_map(|(start, rest)| {
        format!("{start}[Service]\nExecStart=/bin/true\n{}", rest.concat())
    })
}

/// Returns systemd's report about all files of a directory; `None` without systemd.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn verify(folder: &Path, names: &[String]) -> Option<String> {
    let mut command = std::process::Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).args(names).current_dir(folder);
    let output = command.output().ok()?;
    Some(String::from_utf8(output.stderr).unwrap())
}

/// Returns the non-empty values of `KillMode=` in a file, one per line.
fn read_by_systemd(report: &str, name: &str) -> String {
    let about = report.lines().filter(|line| line.contains(&format!("/{name}:")));
    let values = about.filter_map(|line| line.split_once(IGNORED_PREFIX));
    values.fold(String::new(), |mut text, (_, value)| {
        writeln!(text, "{value}").unwrap();
        text
    })
}

fn read_by_us(unit: &UnitFile) -> String {
    let values = unit.values("Service", "KillMode").map(fleet_unitfile::OptionView::value);
    values.filter(|value| !value.is_empty()).fold(String::new(), |mut text, value| {
        writeln!(text, "{value}").unwrap();
        text
    })
}

/// Whether systemd reads the file to its end.
fn is_read_whole(source: &str) -> bool {
    use DiagnosticKind::{EmptySection, SectionCharacter, UnclosedHeader};
    let (_, diagnostics) = UnitFile::parse_collecting(source);
    let stops = [EmptySection, SectionCharacter, UnclosedHeader];
    !diagnostics.iter().any(|diagnostic| stops.contains(&diagnostic.kind()))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test hands files to another program")]
fn systemd_reads_the_same_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut sources = vec!["[Service]\nExecStart=/bin/true\nKillMode=known\n".to_owned()];
    while sources.len() < 200 {
        let source = source().new_tree(&mut runner).unwrap().current();
        sources.extend(Some(source).filter(|source| is_read_whole(source)));
    }
    let names: Vec<_> = (0..sources.len()).map(|index| format!("unit{index}.service")).collect();
    for (name, source) in names.iter().zip(&sources) {
        std::fs::write(folder.path().join(name), source).unwrap();
    }
    let Some(report) = verify(folder.path(), &names) else {
        return report_skipped("systemd-analyze");
    };
    // A systemd with other warning texts cannot be compared.
    if read_by_systemd(&report, &names[0]) != "known\n" {
        return report_skipped("a systemd-analyze that words its warnings as this test knows them");
    }
    for (name, source) in names.iter().zip(&sources) {
        let unit = UnitFile::parse_collecting(source).0;
        assert_eq!(read_by_us(&unit), read_by_systemd(&report, name), "{source:?}");
    }
}

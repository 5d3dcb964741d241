//! A complete example: its files, and their printed form.

use fleet_core::graph::format::{FileRole, FileSet, InitFile, print};
use fleet_core::graph::{Target, Timeouts};

fn home() -> FileSet {
    let file = |name: &str, role, source: &str| InitFile {
        name: name.to_owned(),
        role,
        source: source.as_bytes().to_vec(),
    };
    FileSet::read(vec![
        file("home.unit", FileRole::Units, include_str!("../../../../examples/home/home.unit")),
        file("init.conf", FileRole::Central, include_str!("../../../../examples/home/init.conf")),
    ])
}

// Holds: G-26
#[test]
fn example_units_print_as_written() {
    let home = home();
    assert!(home.is_valid(), "{:#?}", home.diagnostics);
    let printed = home.units().map(|unit| print(unit, &Timeouts::default()));
    let printed: Vec<String> = printed.map(|it| it.text).collect();
    let written = include_str!("../../../../examples/home/home.unit");
    let lines = written.lines().filter(|line| !line.starts_with('#'));
    let written: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(printed.join("\n"), written.trim_start());
}

#[test]
fn example_settings_are_read() {
    let home = home();
    assert_eq!(home.settings().goal.as_ref().map(Target::as_str), Some("irc-bot"));
    assert_eq!(home.settings().max_starting.map(std::num::NonZero::get), Some(4));
}

#[test]
fn file_names_determine_their_roles() {
    for (name, role) in [
        ("web.unit", Some(FileRole::Units)),
        ("init.conf", Some(FileRole::Central)),
        (".web.unit", None),
        ("web.unit~", None),
        ("README", None),
    ] {
        assert_eq!(FileRole::of(name), role, "{name}");
    }
}

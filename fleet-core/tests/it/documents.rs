//! The examples of the page on unit options are read as they stand there.

use fleet_core::{FleetOption, Requirements, Strictness};
use fleet_unitfile::UnitFile;

const PAGE: &str = include_str!("../../../docs/unit-options.md");

/// The blocks of unit file text.
fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```ini\n").skip(1);
    blocks.map(|block| block.split_once("```").expect("the block is closed").0).collect()
}

#[test]
fn every_example_is_accepted_without_a_warning() {
    for example in examples() {
        let file = UnitFile::parse(example).unwrap();
        let name = "web@1.service".parse().unwrap();
        let read = Requirements::parse(&name, &file, Strictness::Refuse);
        let parsed = read.unwrap_or_else(|errors| panic!("{example}\n{errors}"));
        assert!(parsed.warnings.is_empty(), "{example}\n{:?}", parsed.warnings);
        assert_ne!(parsed.requirements, Requirements::default(), "{example}");
    }
}

#[test]
fn every_option_has_an_example_and_a_row() {
    let examples = examples().concat();
    for option in FleetOption::ALL {
        assert!(examples.contains(&format!("\n{option}=")), "{option} has no example");
        let row = PAGE
            .lines()
            .any(|line| line.starts_with("| [") && line.contains(&format!("`{option}`")));
        assert!(row, "{option} has no row");
    }
}

//! Parses the examples on the page about unit options.

use fleet_core::requirements::FleetOption;
use fleet_core::{Requirements, Strictness};
use fleet_unitfile::UnitFile;

const PAGE: &str = include_str!("../../../docs/reference/unit-options.md");

/// Returns the code blocks with unit file text.
fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```ini\n").skip(1);
    blocks.map(|block| block.split_once("```").expect("the block is closed").0).collect()
}

#[test]
fn documented_examples_parse_without_warnings() {
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
fn every_option_is_documented_with_an_example() {
    let examples = examples().concat();
    for option in FleetOption::ALL {
        assert!(examples.contains(&format!("\n{option}=")), "{option} has no example");
        let row = PAGE
            .lines()
            .any(|line| line.starts_with("| [") && line.contains(&format!("`{option}`")));
        assert!(row, "{option} has no row");
    }
}

//! The project speaks of itself alone: no place on the machine of whoever built it.

use crate::report::{Finding, settle};
use crate::tree::files;

/// Put together here, so that this file does not break its own rule.
fn places() -> [String; 3] {
    [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat(), ["/tmp/bash", "_jobs"].concat()]
}

#[test]
fn no_file_names_a_build_machine() {
    let places = places();
    let findings = files().iter().flat_map(|file| named(&file.path, &file.text, &places));
    settle(findings.collect(), "use a path of the project, or one that means something to all");
}

fn named(path: &str, text: &str, places: &[String]) -> Vec<Finding> {
    let lines = (1..).zip(text.lines()).filter_map(|(line, text)| {
        let place = places.iter().find(|place| text.contains(place.as_str()))?;
        Some(Finding::at(path, line, format!("`{place}`")))
    });
    lines.collect()
}

#[test]
fn a_place_is_found_wherever_it_stands() {
    let places = places();
    for place in &places {
        let text = format!("one\n\"cd {place}here\"\n");
        assert_eq!(named("a", &text, &places), [Finding::at("a", 2, format!("`{place}`"))]);
    }
    assert_eq!(named("a", "framework/x and ./work", &places), []);
}

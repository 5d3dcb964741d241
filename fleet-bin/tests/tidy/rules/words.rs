//! The project speaks of itself alone: no place on the machine of whoever built it.

use crate::report::{Finding, settle};
use crate::tree::files;

/// The home of whoever builds as root, put together here, so that this file does not break its own
/// rule.
fn place() -> String {
    ["/ro", "ot/"].concat()
}

#[test]
fn no_file_names_a_build_machine() {
    let place = place();
    let findings = files().iter().flat_map(|file| named(&file.path, &file.text, &place));
    settle(findings.collect(), "use a path of the project, or one that means something to all");
}

fn named(path: &str, text: &str, place: &str) -> Vec<Finding> {
    let lines = (1..).zip(text.lines()).filter(|(_, text)| text.contains(place));
    lines.map(|(line, _)| Finding::at(path, line, format!("`{place}`"))).collect()
}

#[test]
fn a_place_is_found_wherever_it_stands() {
    let place = place();
    let text = format!("one\n\"cd {place}here\"\n");
    assert_eq!(named("a", &text, &place), [Finding::at("a", 2, format!("`{place}`"))]);
    assert_eq!(named("a", "root/x and ./root", &place), []);
}

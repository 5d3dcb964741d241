//! No file names a folder of the machine on which it was written.

use crate::report::{Finding, fail_on};
use crate::tree::files;

/// The home folder of root. It is assembled here so that this file does not break its own rule.
fn home() -> String {
    ["/ro", "ot/"].concat()
}

#[test]
fn no_file_names_a_build_machine() {
    let home = home();
    let findings = files().iter().flat_map(|file| mentions(&file.path, &file.text, &home));
    fail_on(findings.collect(), "use a path of the project, or one that exists on every machine");
}

fn mentions(path: &str, text: &str, home: &str) -> Vec<Finding> {
    let lines = (1..).zip(text.lines()).filter(|(_, text)| text.contains(home));
    lines.map(|(line, _)| Finding::at(path, line, format!("`{home}`"))).collect()
}

#[test]
fn a_home_folder_is_found_anywhere() {
    let home = home();
    let text = format!("one\n\"cd {home}here\"\n");
    assert_eq!(mentions("a", &text, &home), [Finding::at("a", 2, format!("`{home}`"))]);
    assert_eq!(mentions("a", "root/x and ./root", &home), []);
}

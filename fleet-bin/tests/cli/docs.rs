//! Completions, manual pages and the reference, all generated from the program.

use std::path::Path;

use crate::fleetctl::Fleetctl;

async fn alone(line: &str) -> Fleetctl {
    let folder = tempfile::tempdir().unwrap();
    Fleetctl::run(folder.path(), "unix:///none/f.sock", line).await
}

#[tokio::test]
async fn completion_scripts_have_all_commands() {
    for (shell, words) in [
        ("bash", &["complete-words"] as &[_]),
        ("zsh", &["#compdef fleetctl", "complete-words"]),
        ("fish", &["complete-words"]),
        ("elvish", &["apply", "dry-run", "uncordon"]),
        ("powershell", &["apply", "dry-run", "uncordon"]),
    ] {
        let script = alone(&format!("completions {shell}")).await.ok().stdout;
        for word in words {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(alone("completions tcl").await.code, 2);
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("man {}", folder.path().display());
    alone(&line).await.ok();
    for page in ["fleetctl.1", "fleetctl-apply.1", "fleetctl-machine-drain.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    assert!(!folder.path().join("fleetctl-reference.1").exists(), "the command is hidden");
    let nowhere = alone("man none").await;
    assert_eq!(nowhere.code, 1, "{nowhere}");
    assert!(nowhere.stderr.contains("help: give an existing folder"), "{nowhere}");
}

/// Start of the reference, which ends the document.
const BEGIN: &str = "## Reference\n";

#[tokio::test]
async fn documentation_matches_the_generated_reference() {
    let printed = alone("reference").await.ok().stdout;
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/fleetctl.md"));
    let document = std::fs::read_to_string(path).unwrap();
    let at = document.find(BEGIN).expect("the document has a reference");
    assert!(
        document[at..] == printed,
        "docs/reference/fleetctl.md is out of date: replace its section \"## Reference\" by \
         the output of \"fleetctl reference\""
    );
}

//! What is written from the program itself: completions, manual pages, the reference.

use std::path::Path;

use crate::fleetctl::Fleetctl;

async fn alone(line: &str) -> Fleetctl {
    let folder = tempfile::tempdir().unwrap();
    Fleetctl::run(folder.path(), "unix:///none/f.sock", line).await
}

#[tokio::test]
async fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = alone(&format!("completions {shell}")).await.ok().stdout;
        for word in ["apply", "dry-run", "uncordon"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(alone("completions tcl").await.code, 2);
}

#[tokio::test]
async fn manual_pages_are_written_for_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("man {}", folder.path().display());
    alone(&line).await.ok();
    for page in ["fleetctl.1", "fleetctl-apply.1", "fleetctl-machine-drain.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    assert!(!folder.path().join("fleetctl-reference.1").exists(), "it is no command for people");
    let nowhere = alone("man none").await;
    assert_eq!(nowhere.code, 1, "{nowhere}");
    assert!(nowhere.stderr.contains("help: name a folder that is there"), "{nowhere}");
}

/// Where the reference begins in the document; it ends the document.
const BEGIN: &str = "## Reference\n";

#[tokio::test]
async fn the_document_has_the_reference_that_the_program_prints() {
    let printed = alone("reference").await.ok().stdout;
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fleetctl.md"));
    let document = std::fs::read_to_string(path).unwrap();
    let at = document.find(BEGIN).expect("the document has a reference");
    assert!(
        document[at..] == printed,
        "docs/fleetctl.md is not what the program says: put the output of \"fleetctl reference\" \
         in the place of what follows \"## Reference\""
    );
}

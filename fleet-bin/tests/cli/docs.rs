//! Completions, manual pages and the reference, all generated from the program.

use std::path::Path;

use crate::fleetctl::Fleetctl;

async fn alone(line: &str) -> Fleetctl {
    let folder = tempfile::tempdir().unwrap();
    Fleetctl::run(folder.path(), "unix:///none/f.sock", line).await
}

#[tokio::test]
async fn completion_scripts_have_all_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = alone(&format!("completions {shell}")).await.ok().stdout;
        for word in ["apply", "dry-run", "uncordon"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(alone("completions tcl").await.code, 2);
}

/// Completes each line with a bash that has loaded the script.
async fn completed(script: &str, lines: &[&str]) -> String {
    let complete = r#"
complete_line() {
    COMP_WORDS=($1)
    if [[ $1 == *' ' ]]; then COMP_WORDS+=(''); fi
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _fleetctl fleetctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s: %s\n' "$1" "${COMPREPLY[*]}"
}"#;
    let lines = lines.iter().map(|line| format!("complete_line '{line}'\n")).collect::<String>();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("complete");
    std::fs::write(&path, format!("{script}{complete}\n{lines}")).unwrap();
    let output = tokio::process::Command::new("bash").arg("--norc").arg(&path).output();
    let run = Fleetctl::from(output.await.unwrap());
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    run.stdout
}

#[tokio::test]
async fn bash_completes_commands_options_and_values() {
    let script = alone("completions bash").await.ok().stdout;
    let lines =
        ["fleetctl sta", "fleetctl list-units --no", "fleetctl -o js", "fleetctl start --wait "];
    insta::assert_snapshot!(completed(&script, &lines).await, @r"
    fleetctl sta: start status
    fleetctl list-units --no: --no-legend
    fleetctl -o js: json jsonl
    fleetctl start --wait : loaded active finished
    ");
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

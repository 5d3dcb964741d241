//! Completion in real shells, with names of a running cluster.

use std::path::Path;

use tokio::process::Command;

use crate::cluster::Cluster;
use crate::fleetctl::{Fleetctl, command};

/// Completes each line with a bash that has loaded the script. As readline does, it splits words
/// at `@` and `=`, too.
const BASH: &str = r#"
complete_line() {
    COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
    _fleetctl fleetctl "${1##*[ @=]}" ''
    printf '%s: %s\n' "$1" "${COMPREPLY[*]}"
}
"#;

const ZSH: &str = r#"
compdef() { :; }
compadd() { while [[ $1 != -a ]]; do shift; done; local name=$2; print -r -- "$line_: ${(P)name}"; }
complete_line() {
    line_=$1
    words=("${(@s: :)1}")
    CURRENT=$#words
    _fleetctl
}
"#;

const FISH: &str = r#"
function complete_line
    printf '%s: ' $argv[1]
    complete -C $argv[1] | string replace -r '\t.*' '' | string join ' '
    return 0
end
"#;

/// Runs a shell that completes lines. Returns `None` if the shell is not installed.
async fn completed(cluster: &Cluster, shell: &str, lines: &[&str]) -> Option<String> {
    let functions = match shell {
        "bash" => BASH,
        "zsh" => ZSH,
        _ => FISH,
    };
    let script = cluster.run(&format!("completions {shell}")).await.ok().stdout;
    let calls = lines.iter().map(|line| format!("complete_line '{line}'\n")).collect::<String>();
    let path = cluster.folder().join(format!("complete.{shell}"));
    // zsh calls the function at the end of the script if it loads it by itself.
    let text = match shell {
        "zsh" => format!("{functions}{script}{calls}"),
        _ => format!("{script}{functions}{calls}"),
    };
    std::fs::write(&path, text).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_fleetctl")).parent().unwrap();
    let inherited = std::env::var("PATH").unwrap_or_default();
    let mut run = Command::new(shell);
    run.args(if shell == "fish" { &["--no-config"] as &[_] } else { &["-f"] }).arg(&path);
    run.current_dir(cluster.folder()).env("FLEETCTL_ENDPOINT", cluster.endpoint());
    run.env("HOME", cluster.folder()).env("PATH", format!("{}:{inherited}", program.display()));
    let output = match run.output().await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => Fleetctl::from(output.unwrap()),
    };
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{shell}: {output}");
    Some(output.stdout)
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "282f949fc0de4711"]).await;
    cluster.write_sleepers(&["web@1.service", "web@2.service", "db.service"]);
    cluster.run("start --no-block web@1 web@2 db").await.ok();
    cluster
}

const LINES: [&str; 8] = [
    "fleetctl sta",
    "fleetctl -o js",
    "fleetctl stop d",
    "fleetctl restart web@",
    "fleetctl machine show 28",
    "fleetctl list-units --machine=m",
    "fleetctl list-units --fields unit,ac",
    "fleetctl list-units --state unh",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bash_completes_names_of_the_cluster() {
    let completed = completed(&cluster().await, "bash", &LINES).await.expect("bash is installed");
    insta::assert_snapshot!(completed, @r"
    fleetctl sta: start status
    fleetctl -o js: json jsonl
    fleetctl stop d: db.service
    fleetctl restart web@: 1.service 2.service
    fleetctl machine show 28: 282f949fc0de4711
    fleetctl list-units --machine=m: m1
    fleetctl list-units --fields unit,ac: unit,active
    fleetctl list-units --state unh: unhealthy
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs zsh and fish: run by scripts/test --full"]
async fn zsh_and_fish_complete_names_of_the_cluster() {
    let cluster = cluster().await;
    if let Some(completed) = completed(&cluster, "zsh", &LINES).await {
        insta::assert_snapshot!(completed, @r"
        fleetctl sta: start status
        fleetctl -o js: json jsonl
        fleetctl stop d: db.service
        fleetctl restart web@: web@1.service web@2.service
        fleetctl machine show 28: 282f949fc0de4711
        fleetctl list-units --machine=m: --machine=m1
        fleetctl list-units --fields unit,ac: unit,active
        fleetctl list-units --state unh: unhealthy
        ");
    }
    if let Some(completed) = completed(&cluster, "fish", &LINES).await {
        insta::assert_snapshot!(completed, @r"
        fleetctl sta: start status
        fleetctl -o js: json jsonl
        fleetctl stop d: db.service
        fleetctl restart web@: web@1.service web@2.service
        fleetctl machine show 28: 282f949fc0de4711
        fleetctl list-units --machine=m: --machine=m1
        fleetctl list-units --fields unit,ac: unit,active
        fleetctl list-units --state unh: unhealthy
        ");
    }
}

/// A cluster that cannot be reached, or does not respond, must not block the shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_without_a_cluster_prints_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    for socket in [folder.path().join("none.sock"), silent] {
        let endpoint = format!("unix://{}", socket.display());
        let line = "complete-words -- fleetctl status we";
        let run = command(folder.path(), &endpoint, line).output().await.unwrap();
        let run = Fleetctl::from(run);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""), "{endpoint}");
    }
}

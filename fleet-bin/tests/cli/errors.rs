//! Errors and exit codes of each command.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::cluster::Cluster;
use crate::fake_engine::Role;
use crate::fleetctl::{DEADLINE, command};

async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write_sleepers(&["web.service", "idle.service", "job@.service", "bad.service"]);
    cluster.write_sleepers(&["nowhere.service"]);
    cluster.write("all.service", "[Service]\nExecStart=/bin/true\n[X-Fleet]\nGlobal=true\n");
    cluster.write("wrong.service", "[Service]\nExecStart=/bin/true\n[X-Fleet]\nConflict=a\n");
    cluster.roles.set("bad.service", Role::FailingBefore(u64::MAX));
    cluster.roles.set("nowhere.service", Role::Unplaceable);
    cluster.run("start web all").await.ok();
    cluster.run("submit idle job@.service").await.ok();
    cluster
}

/// Runs the commands, and returns all that they print.
async fn transcript(cluster: &Cluster, lines: &[&str]) -> String {
    let mut all = String::new();
    for line in lines {
        let run = cluster.run(line).await;
        let _infallible = writeln!(all, "$ fleetctl {line}\n{run}");
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_unit_command_suggests_similar_names() {
    let cluster = cluster().await;
    for line in [
        "stop wbe",
        "unload wbe",
        "destroy wbe",
        "restart wbe",
        "status wbe",
        "cat wbe",
        "journal wbe",
        "logs wbe",
        "explain wbe",
        "ssh --unit wbe",
        "ssh wbe",
        "plan --destroy wbe",
        "submit wbe",
        "load wbe",
        "start wbe",
    ] {
        let run = cluster.run(line).await;
        // As in fleet v1, destroying a unit that does not exist is no error.
        let codes = if line.starts_with("destroy") { [0, 0] } else { [1, 4] };
        assert!(codes.contains(&run.code), "{line}: {run}");
        assert!(run.stderr.contains("help: did you mean web.service?\n"), "{line}: {run}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unit_command_errors_have_help() {
    let cluster = cluster().await;
    let lines = [
        "submit wrong.service",
        "load job@.service",
        "start wbe",
        "start a/b",
        "restart idle",
        "stop idle",
        "unload wbe",
        "destroy none*",
        "apply none.service",
        "diff none/",
        "plan wrong.service",
        "explain wbe",
        "scale web 2",
        "scale none@ 2",
        "cat wbe",
        "status wbe",
        "journal idle",
        "logs idle",
        "logs web --machine m3",
        "verify none.service",
        "verify wrong.service",
        "ssh all",
        "ssh idle",
        "ssh nobody",
    ];
    insta::assert_snapshot!("errors_units", transcript(&cluster, &lines).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_command_errors_have_help() {
    let cluster = cluster().await;
    cluster.write("not.jsonl", "no export\n");
    let lines = [
        "list-units --fields mashine",
        "list-unit-files --fields hsah",
        "list-machines --fields metdata",
        "machine show m3",
        "machine cordon m",
        "machine uncordon m3",
        "machine drain m3",
        "machine dran m1",
        "events --machine m3",
        "events -o json",
        "export none/out.jsonl",
        "import none.jsonl",
        "import not.jsonl",
        "completions tcl",
        "scale worker@ x",
        "man none",
        "fd-forward none.sock",
        "--endpoint ftp://a version --server",
        "--token-file none version --server",
    ];
    insta::assert_snapshot!("errors_others", transcript(&cluster, &lines).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typos_get_suggestions() {
    let cluster = cluster().await;
    let lines =
        ["strat web", "start --no-blok web", "list-units -o jsno", "apply --wait activ web"];
    insta::assert_snapshot!(transcript(&cluster, &lines).await, @r"
    $ fleetctl strat web
    exit 2
    ---
    error: unrecognized subcommand 'strat'

      tip: a similar subcommand exists: 'start'

    Usage: fleetctl [OPTIONS] [COMMAND]

    For more information, try '--help'.

    $ fleetctl start --no-blok web
    exit 2
    ---
    error: unexpected argument '--no-blok' found

      tip: a similar argument exists: '--no-block'

    Usage: fleetctl start --no-block <UNIT>...

    For more information, try '--help'.

    $ fleetctl list-units -o jsno
    exit 2
    ---
    error: invalid value 'jsno' for '--output <FORMAT>'
      [possible values: table, json, jsonl, name]

      tip: a similar value exists: 'json'

    Usage: fleetctl list-units [OPTIONS] [UNIT]...

    For more information, try '--help'.

    $ fleetctl apply --wait activ web
    exit 2
    ---
    error: invalid value 'activ' for '--wait <STATE>'
      [possible values: loaded, active, finished]

      tip: a similar value exists: 'active'

    Usage: fleetctl apply [OPTIONS] <FILE|DIR>...

    For more information, try '--help'.
    ");
}

/// Returns the exit codes of the reference.
async fn documented(cluster: &Cluster) -> BTreeSet<i32> {
    let reference = cluster.run("reference").await.ok().stdout;
    let table = reference.split("### Exit codes").nth(1).unwrap().split("###").next().unwrap();
    let codes = table.lines().filter_map(|row| row.split('|').nth(1)?.trim().parse().ok());
    codes.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_exit_code_occurs() {
    let cluster = cluster().await;
    let mut codes = BTreeSet::new();
    for (code, line) in [
        (0, "start web"),
        (0, "status web all"),
        (0, "submit idle"),
        (0, "diff web.service"),
        (0, "apply --dry-run web.service"),
        (0, "scale job@ 0 --dry-run"),
        (0, "doctor"),
        (1, "stop wbe"),
        (1, "start bad"),
        (1, "start --wait-timeout 0 nowhere"),
        (1, "doctor"),
        (1, "verify wrong.service"),
        (2, "strat"),
        (2, "scale web 2"),
        (3, "status bad"),
        (3, "status idle web"),
        (4, "status wbe web"),
        (4, "status bad wbe"),
        (5, "diff nowhere.service --state inactive"),
        (5, "plan --destroy web"),
        (5, "apply --dry-run job@.service idle.service"),
        (5, "scale job@ 1 --dry-run"),
    ] {
        let run = cluster.run(line).await;
        assert_eq!(run.code, code, "{line}: {run}");
        codes.insert(run.code);
    }
    codes.insert(interrupted(&cluster).await);
    assert_eq!(codes, documented(&cluster).await);
}

/// Returns the exit code of a wait that is interrupted by Ctrl-C.
async fn interrupted(cluster: &Cluster) -> i32 {
    cluster.run("destroy nowhere").await.ok();
    let mut command = command(cluster.folder(), &cluster.endpoint(), "start nowhere");
    let mut fleetctl = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(fleetctl.stderr.take().unwrap()).lines();
    // After the first line, the command waits and handles the signal.
    let first = tokio::time::timeout(DEADLINE, stderr.next_line()).await.unwrap().unwrap();
    assert!(first.unwrap().contains("waiting: "));
    let pid = Pid::from_raw(fleetctl.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = tokio::time::timeout(DEADLINE, fleetctl.wait()).await.unwrap().unwrap();
    status.code().unwrap()
}

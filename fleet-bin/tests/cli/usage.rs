//! The command line: help, errors, exit codes, and a closed output.

use std::path::Path;
use std::process::Stdio;

use crate::cluster::Cluster;
use crate::fleetctl::{DEADLINE, Fleetctl, command};

/// Runs the program without a daemon.
async fn alone(line: &str) -> Fleetctl {
    let folder = tempfile::tempdir().unwrap();
    Fleetctl::run(folder.path(), "unix:///none/f.sock", line).await
}

#[tokio::test]
async fn help_succeeds_on_standard_output() {
    for line in ["", "help", "--help", "-h", "-help", "start --help", "help start"] {
        let run = alone(line).await.ok();
        assert!(run.stdout.contains("Usage: fleetctl"), "{line}: {run}");
        assert_eq!(run.stderr, "", "{line}");
    }
    let help = alone("").await.stdout;
    for command in
        ["submit", "load", "start", "restart", "stop", "unload", "destroy", "cat", "status"]
            .into_iter()
            .chain([
                "journal",
                "verify",
                "list-units",
                "list-unit-files",
                "list-machines",
                "export",
                "import",
                "version",
            ])
    {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is missing in {help}");
    }
}

/// As in fleet v1, so that the options of a shell alias can be overridden.
#[tokio::test]
async fn last_of_repeated_options_wins() {
    for line in ["-o json version -o name", "-o json -o name version"] {
        let output = alone(line).await.ok().stdout;
        assert_eq!(output, concat!(env!("CARGO_PKG_VERSION"), "\n"), "{line}");
    }
}

// Holds: D-41
#[tokio::test]
async fn command_line_errors_exit_with_2() {
    for line in [
        "strat web",
        "start --wrong web",
        "journal --since noon web",
        "start",
        "list-units --fields=nothing",
        "list-units -o xml",
        "list-unit",
        "--endpoint=var/run/fleet.sock list-units",
        "--endpoint=unix://var/run/fleet.sock list-units",
        "--endpoint=https://a:1 --ca-file=/nowhere list-units",
        "machine show ...",
        "start --block-attempts=x web",
    ] {
        let run = alone(line).await;
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{line}: {run}");
        assert!(!run.stderr.is_empty(), "{line}");
    }
    insta::assert_snapshot!(alone("strat web").await, @r"
    exit 2
    ---
    error: unrecognized subcommand 'strat'

      tip: a similar subcommand exists: 'start'

    Usage: fleetctl [OPTIONS] [COMMAND]

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(alone("list-units --fields unit,machin").await, @r#"
    exit 2
    ---
    fleetctl: --fields: unknown field "machin"
    help: did you mean machine?
    help: the fields are unit, load, machine, active, sub, hash, since, reason
    "#);
    let endpoint = alone("--endpoint=unix://var/run/fleet.sock list-units").await;
    let expected = "write three slashes, as in unix:///var/run/fleet.sock";
    assert!(endpoint.stderr.contains(expected), "{endpoint}");
}

#[tokio::test]
async fn unreachable_daemon_error_has_help() {
    insta::assert_snapshot!(alone("list-units").await, @r#"
    exit 1
    ---
    fleetctl: no fleetd answers at unix:///none/f.sock: No such file or directory (os error 2)
    help: start the fleetd there ("systemctl start fleet", or "fleetd dev")
    help: or set the address of another fleetd, with --endpoint or FLEETCTL_ENDPOINT
    "#);
}

#[tokio::test]
async fn dev_cluster_is_the_default_without_a_daemon() {
    // A daemon of this host would answer.
    if Path::new("/run/fleet.sock").exists() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join(".local/state/fleet/dev");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("fleet.sock"), "").unwrap();
    let output = command(home.path(), "", "list-units").env("HOME", home.path()).output();
    let run = Fleetctl::from(output.await.unwrap());
    let error = format!("no fleetd answers at unix://{}/fleet.sock: ", state.display());
    assert!(run.code == 1 && run.stderr.contains(&error), "{run}");
}

// Holds: D-41
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_may_be_abbreviated_and_v1_options_work() {
    let cluster = Cluster::start(&["m1"]).await;
    for line in ["list-m -no-legend -o name", "list-machines --no-legend --fields=machine --full"] {
        assert_eq!(cluster.run(line).await.ok().stdout, "m1\n", "{line}");
    }
    let elsewhere = format!("-endpoint={} list-machines -o name", cluster.endpoint());
    assert_eq!(alone(&elsewhere).await.ok().stdout, "m1\n");
    let v1 =
        "--driver=API --strict-host-key-checking=false --request-timeout=5 list-machines -o name";
    assert_eq!(cluster.run(v1).await.ok().stdout, "m1\n");
}

// Holds: D-41
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boolean_options_accept_go_values() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    for line in [
        "--debug=false start --replace=true --no-block=f --sign=0 web",
        "journal --follow=false --sudo=true --output=cat -n=1 web",
        "stop -no-block=FALSE web",
        "--debug=False list-machines --full=true --no-legend=1 -fields=machine",
    ] {
        let run = cluster.run(line).await.ok();
        assert_eq!(run.stderr, "", "{line}");
    }
    let machines = cluster.run("list-machines --no-legend=T --fields=machine").await;
    assert_eq!(machines.stdout, "m1\n");
    let wrong = cluster.run("list-machines --full=yes").await;
    assert_eq!(wrong.code, 2, "{wrong}");
}

/// `FLEETCTL_DEBUG=true fleetctl --debug=false` logs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_option_wins_over_the_environment() {
    let cluster = Cluster::start(&["m1"]).await;
    for (line, logs) in [("list-machines", true), ("--debug=false list-machines", false)] {
        let mut command = command(cluster.folder(), &cluster.endpoint(), line);
        let output = command.env("FLEETCTL_DEBUG", "true").output().await.unwrap();
        assert_eq!(!output.stderr.is_empty(), logs, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_output_is_no_failure() {
    let cluster = Cluster::start(&["m1"]).await;
    cluster.write_sleepers(&["web.service"]);
    cluster.run("start web").await.ok();
    let mut command = command(cluster.folder(), &cluster.endpoint(), "journal -f web");
    let mut fleetctl = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Nothing reads the output from here on.
    drop(fleetctl.stdout.take());
    let output =
        tokio::time::timeout(DEADLINE, fleetctl.wait_with_output()).await.unwrap().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"" as &[u8]));
}

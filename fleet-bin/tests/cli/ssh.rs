//! `--tunnel`, `ssh` and `fd-forward`, with a fake ssh program.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::fleetctl::{DEADLINE, Fleetctl, command};

/// Records its arguments. Links a socket to forward to its local name, and runs a command locally.
const FAKE: &str = r#"#!/bin/sh
printf 'ssh %s\n' "$*" >>"${0%/*}/calls"
echo $$ >"${0%/*}/pid"
forward=
while [ $# -gt 0 ]; do
    case $1 in
    -L) forward=$2; shift 2 ;;
    --) shift; break ;;
    *) shift ;;
    esac
done
if [ -n "$forward" ]; then
    [ -S "${forward#*:}" ] || exit 255
    ln -s "${forward#*:}" "${forward%%:*}"
    exec sleep 60
fi
echo "on $1:"
shift
exec "$@"
"#;

/// Starts a cluster with the fake ssh in its folder.
async fn cluster() -> Cluster {
    let cluster = Cluster::start(&["m1", "m2"]).await;
    cluster.write("ssh", FAKE);
    let path = cluster.folder().join("ssh");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    cluster.write_sleepers(&["web.service", "m2.service", "idle.service"]);
    cluster.write("all.service", "[Service]\nExecStart=/bin/a\n[X-Fleet]\nGlobal=true\n");
    cluster.run("start web all").await.ok();
    cluster.run("submit idle m2").await.ok();
    cluster
}

async fn run(cluster: &Cluster, line: &str) -> Fleetctl {
    let mut command = command(cluster.folder(), &cluster.endpoint(), line);
    command.env("PATH", format!("{}:/usr/bin:/bin", cluster.folder().display()));
    timeout(DEADLINE, command.output()).await.unwrap().unwrap().into()
}

/// Returns and clears the recorded calls of ssh.
fn calls(cluster: &Cluster) -> String {
    let path = cluster.folder().join("calls");
    let calls = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let folder = cluster.folder().display().to_string();
    let known = |word: &str| match word.contains("/fleetctl-") {
        true => "LOCAL:REMOTE".to_owned(),
        false => word.replace(&folder, "FOLDER"),
    };
    let lines = calls.lines().map(|line| line.split(' ').map(known).collect::<Vec<_>>().join(" "));
    lines.map(|line| line + "\n").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_forwards_the_remote_socket() {
    let cluster = cluster().await;
    let line = "--tunnel core@host:2222 --ssh-username=core list-machines -o name";
    insta::assert_snapshot!(run(&cluster, line).await, @r"
    exit 0
    m1
    m2
    ");
    let called = "ssh -o User=core -o ExitOnForwardFailure=yes -p 2222 -N -T \
                  -L LOCAL:REMOTE -- core@host\n";
    assert_eq!(calls(&cluster), called);
    let nowhere = run(&cluster, "--tunnel host --endpoint unix:///none list-machines").await;
    insta::assert_snapshot!(nowhere, @r#"
    exit 1
    ---
    fleetctl: cannot open the ssh tunnel to host: exit status: 255
    help: check that "ssh host" works
    help: the host must allow forwarding of unix sockets
    "#);
    calls(&cluster);
    // Commands without a daemon open no tunnel.
    run(&cluster, "--tunnel host version").await.ok();
    let offline = run(&cluster, "--tunnel host export --config none.toml").await;
    assert_eq!(offline.code, 2, "{offline}");
    assert!(!cluster.folder().join("calls").exists());
    let refused = run(&cluster, "--tunnel host --endpoint tcp://nothing version --server").await;
    insta::assert_snapshot!(refused, @"
    exit 2
    ---
    fleetctl: --endpoint tcp://nothing cannot be used through a tunnel
    help: use unix:///path or http://host:port, as seen from the host of the tunnel
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_is_closed_on_every_signal() {
    let cluster = cluster().await;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let temp = tempfile::tempdir().unwrap();
        let mut command = command(cluster.folder(), &cluster.endpoint(), "--tunnel host events");
        command.env("PATH", format!("{}:/usr/bin:/bin", cluster.folder().display()));
        let mut fleetctl =
            command.env("TMPDIR", temp.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(fleetctl.stdout.take().unwrap()).lines();
        timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().expect("an event");
        let ssh = std::fs::read_to_string(cluster.folder().join("pid")).unwrap();
        let alive = Path::new("/proc").join(ssh.trim());
        assert!(alive.exists(), "ssh is not running");
        let pid = Pid::from_raw(fleetctl.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let result = timeout(DEADLINE, fleetctl.wait()).await.unwrap().unwrap();
        assert_eq!(result.code(), Some(130), "{signal:?}");
        assert_eq!(
            temp.path().read_dir().unwrap().count(),
            0,
            "the temporary folder is left behind"
        );
        wait_until_gone(&alive).await;
    }
}

async fn wait_until_gone(process: &Path) {
    let deadline = Instant::now() + DEADLINE;
    // A process reaped late stays as a zombie, which has no memory.
    let is_alive =
        || std::fs::read_to_string(process.join("statm")).is_ok_and(|it| !it.starts_with("0 "));
    while is_alive() {
        assert!(Instant::now() < deadline, "ssh is left behind: {}", process.display());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ssh_runs_a_command_on_the_machine() {
    let cluster = cluster().await;
    insta::assert_snapshot!(run(&cluster, "ssh web echo -n --full here").await, @r"
    exit 0
    on 10.0.0.1:
    --full here
    ");
    insta::assert_snapshot!(run(&cluster, "ssh -A --ssh-port 23 --machine m2 expr 0").await, @r"
    exit 1
    on 10.0.0.2:
    0
    ");
    insta::assert_snapshot!(run(&cluster, "ssh --unit web --tunnel host echo").await, @r"
    exit 0
    on 10.0.0.1:
    ");
    insta::assert_snapshot!(calls(&cluster), @r"
    ssh -- 10.0.0.1 echo -n --full here
    ssh -A -p 23 -- 10.0.0.2 expr 0
    ssh -o ExitOnForwardFailure=yes -N -T -L LOCAL:REMOTE -- host
    ssh -J host -- 10.0.0.1 echo
    ");
    insta::assert_snapshot!(run(&cluster, "ssh m2").await, @"
    exit 1
    ---
    fleetctl: m2 is both a machine and a unit
    help: use --machine m2 or --unit m2
    ");
    insta::assert_snapshot!(run(&cluster, "ssh").await, @r#"
    exit 2
    ---
    fleetctl: no machine or unit given
    help: "fleetctl list-machines" and "fleetctl list-units" list both
    "#);
    insta::assert_snapshot!(run(&cluster, "ssh wbe").await, @r#"
    exit 1
    ---
    fleetctl: no present machine has an ID or name that starts with wbe
    help: "fleetctl list-machines" shows the present machines
    help: did you mean web.service?
    "#);
    insta::assert_snapshot!(run(&cluster, "ssh --unit all").await, @r#"
    exit 1
    ---
    fleetctl: all.service is on many machines
    help: choose a machine with --machine; "fleetctl list-units" shows the machines
    "#);
    insta::assert_snapshot!(run(&cluster, "ssh idle").await, @r#"
    exit 1
    ---
    fleetctl: idle.service is on no machine
    help: "fleetctl status idle.service" shows why
    "#);
    assert!(!cluster.folder().join("calls").exists(), "{}", calls(&cluster));
    let mut without = command(cluster.folder(), &cluster.endpoint(), "ssh web");
    let without: Fleetctl = without.env("PATH", "/none").output().await.unwrap().into();
    insta::assert_snapshot!(without, @r"
    exit 1
    ---
    fleetctl: cannot run ssh: No such file or directory (os error 2)
    help: install OpenSSH's client
    ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fd_forward_connects_to_a_socket() {
    let cluster = Cluster::start(&["m1"]).await;
    let endpoint = cluster.endpoint();
    let socket = endpoint.trim_start_matches("unix://");
    let mut command = command(cluster.folder(), "unix:///none", &format!("fd-forward {socket}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut fleetctl = command.spawn().unwrap();
    // The command exits when the connection closes, even while its input is open.
    let mut stdin = fleetctl.stdin.take().unwrap();
    let request = "GET /fleet/v1/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stdin.write_all(request.as_bytes()).await.unwrap();
    let result = timeout(DEADLINE, fleetctl.wait_with_output()).await.unwrap().unwrap();
    let response = String::from_utf8(result.stdout).unwrap();
    assert!(result.status.success() && response.ends_with(r#"{"version":"1.2.3"}"#), "{response}");
    drop(stdin);
    insta::assert_snapshot!(cluster.run("fd-forward /none/s").await, @"
    exit 1
    ---
    fleetctl: cannot connect to /none/s: No such file or directory (os error 2)
    help: give the unix socket of a fleetd on this machine
    ");
}
